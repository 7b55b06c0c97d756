"""`make fuzz`: mutated frames against a live broker. Exit 1 if it crashes, grows or logs an exception.

With --secured: through TLS and SASL, and as clients without permissions, against a broker with an authorizer.
With --cost: requests as large as the protocol permits. Exit 1 if one pauses the event loop for too long.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tools.fuzz.cluster import fuzz_controllers
from tools.fuzz.cost.measure import Cost
from tools.fuzz.cost.page import page
from tools.fuzz.cost.run import PAUSE_MS_MAX, Plan, measure_costs, worst_by_api
from tools.fuzz.cost.scenarios import Scenario
from tools.fuzz.run import Outcome, fuzz
from tools.fuzz.secured.run import KINDS, fuzz_secured, secured_target
from tools.processes import unwind_when_ended

COSTS_PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "COSTS.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--controllers", action="store_true", help="frames to the controllers of a cluster")
    parser.add_argument(
        "--secured",
        choices=["all", *KINDS],
        help="through TLS and SASL: an equal share of the frames for each kind, or all for one",
    )
    parser.add_argument("--cost", action="store_true", help="measure pauses of the event loop instead")
    parser.add_argument("--quick", action="store_true", help="with --cost: fewer requests")
    parser.add_argument("--api", type=int, action="append", help="with --cost: only APIs with these keys")
    names = [scenario.name.lower() for scenario in Scenario]
    parser.add_argument("--scenario", action="append", choices=names, help="with --cost: only these")
    parser.add_argument("--page", type=Path, default=COSTS_PAGE, help="where --cost writes its table")
    options = parser.parse_args()
    unwind_when_ended()
    if options.cost:
        return cost(options.page, options.quick, options.api, options.scenario)
    return fuzz_kinds(options) if options.secured else fuzz_frames(options)


def cost(page_path: Path, is_quick: bool, api_keys: list[int] | None, scenarios: list[str] | None) -> int:
    """Measure what requests cost, and write the page."""
    plan = Plan(is_quick=is_quick)
    if api_keys:
        plan = replace(plan, api_keys=frozenset(api_keys))
    if scenarios:
        plan = replace(plan, scenarios=tuple(Scenario[name.upper()] for name in scenarios))
    costs: list[Cost] = []
    try:
        with tempfile.TemporaryDirectory(prefix="runnel-cost-") as folder:
            measure_costs(Path(folder), plan, costs, lambda line: print(line, flush=True))
    finally:
        page_path.write_text(page(costs, plan), encoding="utf-8")
    over = [
        one
        for scenario in plan.scenarios
        for one in worst_by_api(costs, scenario)
        if one.cpu_ms > PAUSE_MS_MAX
    ]
    for one in over:
        print(f"FAILED {one.cpu_ms:.0f} ms: {one.scenario}: {one.case}")
    return 1 if over else 0


def fuzz_frames(options: argparse.Namespace) -> int:
    """Send mutated frames, and report the state of the broker."""
    with tempfile.TemporaryDirectory(prefix="runnel-fuzz-") as folder:
        run = fuzz_controllers if options.controllers else fuzz
        outcome = run(Path(folder), options.frames, options.seed, show)
    code = report(outcome, "mutated frames", options.seed)
    captured = dict(outcome.recordings.counts)
    print(f"started from: {dict(outcome.kinds)}; captured requests by client: {captured}")
    for reason in outcome.recordings.failures:
        print(f"NOT RECORDED {reason}")
    return code


def fuzz_kinds(options: argparse.Namespace) -> int:
    """The same through TLS and SASL, in several kinds."""
    kinds = list(KINDS) if options.secured == "all" else [options.secured]
    code = 0
    with (
        tempfile.TemporaryDirectory(prefix="runnel-fuzz-") as folder,
        secured_target(Path(folder)) as target,
    ):
        for kind in kinds:
            outcome = fuzz_secured(target, kind, options.frames // len(kinds), options.seed, show)
            code |= report(outcome, f"frames and exchanges of the kind {kind}", options.seed)
    return code


def show(line: str) -> None:
    """Print progress."""
    print(f"  {line}", flush=True)


def report(outcome: Outcome, what: str, seed: int) -> int:
    """Print what happened to the broker; the exit code."""
    sent, outcomes = outcome.outcomes.total(), dict(outcome.outcomes)
    before, largest = outcome.memory_before_bytes >> 20, outcome.memory_largest_bytes >> 20
    print(f"{sent} {what} in {outcome.seconds:.0f} s, seed {seed}: {outcomes}")
    print(f"memory {before} MB before, {largest} MB at most")
    for complaint in outcome.complaints:
        print(f"FAILED {complaint}")
    if not outcome.complaints:
        print("the broker is available and within its memory limit")
    return 1 if outcome.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
