"""Play simulated worlds by seed: exit 0 if every promise held, 1 with the seed of the first that broke."""

import argparse
import sys
import time
import traceback

from runnel.sim.story import tell


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m runnel.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds (default 200)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--seed", type=int, help="play only this world")
    options = parser.parse_args()
    seeds = (
        [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    )
    started = time.monotonic()
    acknowledged = deaths = 0
    for seed in seeds:
        try:
            verdict = tell(seed)
        except Exception:  # noqa: BLE001 - whatever broke, its seed is what matters
            traceback.print_exc()
            print(f"seed {seed} broke a promise; play it again with: python -m runnel.sim --seed {seed}")
            return 1
        acknowledged += verdict.acknowledged
        deaths += len(verdict.deaths)
        if options.seed is not None:
            print(verdict)
    seconds = time.monotonic() - started
    print(
        f"{len(seeds)} worlds, {deaths} deaths, {acknowledged} records acknowledged and kept, {seconds:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
