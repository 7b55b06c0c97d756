"""`make mixed`: librdkafka, Java and franz-go in one consumer group while members come and go."""

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.fetch.programs import Unavailable
from tools.mixed.members import MAKES, Command
from tools.mixed.story import SETTINGS, Story
from tools.processes import unwind_when_ended

AT_MOST = {"librdkafka": 3, "java": 2, "franz-go": 2}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mixed")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long members come and go")
    parser.add_argument(
        "--port", type=int, help="judge the broker at this loopback port instead of a fresh one"
    )
    parser.add_argument("--makes", nargs="*", choices=sorted(MAKES), default=list(MAKES))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--scratch", type=Path, help="leave logs and data behind in this folder")
    options = parser.parse_args()
    unwind_when_ended()
    print(f"seed {options.seed}", flush=True)
    with ExitStack() as stack:
        scratch = options.scratch
        if scratch is None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-mixed-")))
        makes: dict[str, Command] = {}
        for name in options.makes:
            try:
                makes[name] = MAKES[name](scratch)
            except Unavailable as reason:
                print(f"SKIPPED {name}: {reason}", flush=True)
        port = options.port or stack.enter_context(BrokerProcess(scratch / "data", SETTINGS)).port
        story = Story(port, makes, scratch, AT_MOST, options.seed, lambda line: print(line, flush=True))
        told = story.tell(options.seconds)
    for name, figure in told.figures.items():
        print(f"{name}: {figure}")
    for fault in told.faults[:50]:
        print(f"FAULT {fault}")
    print(f"{len(told.faults)} faults")
    return 1 if told.faults or not makes else 0


if __name__ == "__main__":
    sys.exit(main())
