"""`make fuzz`: mutated frames against a live broker. Exit 1 if it dies, grows or meets a bug."""

import argparse
import sys
import tempfile
from pathlib import Path

from tools.fuzz.story import fuzz
from tools.processes import unwind_when_ended


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unwind_when_ended()
    with tempfile.TemporaryDirectory(prefix="runnel-fuzz-") as folder:
        outcome = fuzz(
            Path(folder), options.frames, options.seed, lambda line: print(f"  {line}", flush=True)
        )
    sent, fates = outcome.fates.total(), dict(outcome.fates)
    before, largest = outcome.memory_before_bytes >> 20, outcome.memory_largest_bytes >> 20
    print(f"{sent} mutated frames in {outcome.seconds:.0f} s, seed {options.seed}: {fates}")
    print(
        f"started from: {dict(outcome.kinds)}; captured requests by client: {dict(outcome.captures.counts)}"
    )
    for reason in outcome.captures.unheard:
        print(f"NOT RECORDED {reason}")
    print(f"memory {before} MB before, {largest} MB at most")
    for complaint in outcome.complaints:
        print(f"FAILED {complaint}")
    if not outcome.complaints:
        print("the broker is alive, small, and works")
    return 1 if outcome.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
