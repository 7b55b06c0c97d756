"""Play simulated worlds by seed: exit 0 if every promise held, 1 with the seed of the first that broke."""

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable

from runnel.sim.story import Verdict, tell
from runnel.sim.txn_story import TransactionVerdict, tell_transactions

STORIES: dict[str, Callable[[int], Verdict | TransactionVerdict]] = {
    "records": tell,
    "transactions": tell_transactions,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m runnel.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds of each kind (default 200)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--seed", type=int, help="play only this seed")
    parser.add_argument("--story", choices=STORIES, help="play only worlds of this kind")
    options = parser.parse_args()
    seeds = (
        [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    )
    started = time.monotonic()
    total: Counter[str] = Counter()
    for seed in seeds:
        for story in [options.story] if options.story else STORIES:
            try:
                verdict = STORIES[story](seed)
            except Exception:  # noqa: BLE001 - whatever broke, its seed is what matters
                traceback.print_exc()
                again = f"python -m runnel.sim --story {story} --seed {seed}"
                print(f"seed {seed} broke a promise; play it again with: {again}")
                return 1
            count(verdict, total)
            if options.seed is not None:
                print(verdict)
    print(", ".join(f"{number} {what}" for what, number in total.items()), end="")
    print(f": every promise kept, {time.monotonic() - started:.0f} s")
    return 0


def count(verdict: Verdict | TransactionVerdict, total: Counter[str]) -> None:
    total["worlds"] += 1
    total["deaths"] += len(verdict.deaths)
    if isinstance(verdict, Verdict):
        total["records acknowledged"] += verdict.acknowledged
    else:
        total["transactions committed"] += verdict.commits
        total["given up"] += verdict.attempts - verdict.commits


if __name__ == "__main__":
    sys.exit(main())
