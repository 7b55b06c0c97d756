"""`make mixed`: librdkafka, Java and franz-go in one group while members join, leave and are killed."""

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.fetch.programs import Unavailable
from tools.mixed.churn import SETTINGS, Churn
from tools.mixed.members import CLIENTS, Command
from tools.processes import unwind_when_ended

MEMBERS_MAX = {"librdkafka": 3, "java": 2, "franz-go": 2}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mixed")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long members join and leave")
    parser.add_argument("--port", type=int, help="test the broker at this loopback port instead of a new one")
    parser.add_argument("--clients", nargs="*", choices=sorted(CLIENTS), default=list(CLIENTS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--scratch", type=Path, help="keep logs and data in this folder")
    options = parser.parse_args()
    unwind_when_ended()
    print(f"seed {options.seed}", flush=True)
    with ExitStack() as stack:
        scratch = options.scratch
        if scratch is None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-mixed-")))
        clients: dict[str, Command] = {}
        for name in options.clients:
            try:
                clients[name] = CLIENTS[name](scratch)
            except Unavailable as reason:
                print(f"SKIPPED {name}: {reason}", flush=True)
        port = options.port or stack.enter_context(BrokerProcess(scratch / "data", SETTINGS)).port
        churn = Churn(port, clients, scratch, MEMBERS_MAX, options.seed, lambda line: print(line, flush=True))
        result = churn.run(options.seconds)
    for name, figure in result.figures.items():
        print(f"{name}: {figure}")
    for fault in result.faults[:50]:
        print(f"FAULT {fault}")
    print(f"{len(result.faults)} faults")
    return 1 if result.faults or not clients else 0


if __name__ == "__main__":
    sys.exit(main())
