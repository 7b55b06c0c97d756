"""`make crash`: kill -9 under load, power cuts, a full disk. Exit 1 if anything acknowledged was lost."""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.crash import volumes
from tools.crash.disk_full import disk_full
from tools.crash.powercut import power_cuts
from tools.crash.story import Note, Outcome, kill, tell
from tools.processes import unwind_when_ended


def kills(folder: Path, rounds: int, seed: int, note: Note) -> Outcome:
    broker = BrokerProcess(folder / "data")
    try:
        return tell(broker, rounds, kill, seed, note)
    finally:
        broker.kill()


def report(name: str, outcome: Outcome) -> bool:
    starts = outcome.start_seconds
    timing = f", start {statistics.median(starts):.2f} s (worst {max(starts):.2f} s)" if starts else ""
    print(
        f"{name}: {outcome.rounds} rounds, {outcome.acknowledged} acknowledged, {outcome.read} read{timing}"
    )
    for violation in outcome.violations:
        print(f"  VIOLATION {violation}")
    print(f"  {'FAILED' if outcome.violations else 'nothing lost, changed, doubled or reordered'}")
    return not outcome.violations


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash")
    parser.add_argument("--rounds", type=int, default=200, help="kill -9 rounds")
    parser.add_argument("--cuts", type=int, default=20, help="power cuts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["kill", "powercut", "full"])
    options = parser.parse_args()
    unwind_when_ended()

    def note(line: str) -> None:
        print(f"\r  {line}\033[K", end="\n" if not sys.stdout.isatty() else "", flush=True)

    passed = []
    refusal = volumes.missing()
    with tempfile.TemporaryDirectory(prefix="runnel-crash-") as name:
        folder = Path(name)
        if options.only in (None, "kill"):
            outcome = kills(folder / "kill", options.rounds, options.seed, note)
            passed.append(report("kill -9", outcome))
        if refusal is not None:
            print(f"power cut and full disk SKIPPED: {refusal}")
        else:
            if options.only in (None, "powercut"):
                passed.append(
                    report("power cut", power_cuts(folder / "cut", options.cuts, options.seed, note))
                )
            if options.only in (None, "full"):
                passed.append(report("disk full", disk_full(folder / "full", note)))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
