"""`make conformance`: run third-party suites against a broker, write docs/CONFORMANCE.md."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.conformance import differential, ecosystem, franz_go, kafka_tools, librdkafka, page
from tools.conformance.result import SuiteResult
from tools.fetch.programs import find, missing
from tools.kafka.commands import kafka_jars
from tools.processes import unwind_when_ended

ROOT = Path(__file__).resolve().parent.parent.parent
SUITES = ["kafka-tools", "ecosystem", "franz-go", "differential", "librdkafka"]
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "4"}


def main() -> int:
    options = options_of(sys.argv[1:])
    unwind_when_ended()
    if lacking := missing_programs(options.suite):
        print(*(f"make conformance: {reason}" for reason in lacking), sep="\n", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="runnel-conformance-") as folder:
        results = list(run(Path(folder), options))
    reasons = page.read_reasons(Path(__file__).with_name("reasons.toml"))
    for result in results:
        print(f"{result.suite}: {len(result.passed)} passed, {len(result.failed)} failed")
        for test in result.failed:
            print(f"  {test}: {page.reason_for(test, reasons)}")
    if not (options.bootstrap or options.suite or options.only):
        (ROOT / "docs" / "CONFORMANCE.md").write_text(page.page(results, reasons))
    is_explained = [
        page.reason_for(test, reasons) != page.UNEXPLAINED for result in results for test in result.failed
    ]
    return 0 if all(is_explained) else 1


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make conformance")
    parser.add_argument("--bootstrap", help="test this broker instead of a new one; writes no page")
    parser.add_argument("--suite", choices=SUITES, help="run one suite; writes no page")
    parser.add_argument("--only", default="", help="a regular expression of test names; writes no page")
    parser.add_argument("--records", type=int, default=20_000, help="records per franz-go test")
    return parser.parse_args(arguments)


def missing_programs(suite: str | None) -> list[str]:
    """What the machine lacks for the suites, each with its purpose."""
    needs: list[Callable[[], object]] = []
    if suite in (None, "franz-go"):
        needs.append(lambda: find("go", franz_go.PURPOSE))
    if suite not in ("franz-go", "librdkafka"):
        needs.append(kafka_jars)
    return missing(needs)


def run(folder: Path, options: argparse.Namespace) -> Iterator[SuiteResult]:
    """The result of each suite that is selected and available."""

    def is_selected(suite: str) -> bool:
        return options.suite in (None, suite)

    with ExitStack() as stack:
        bootstrap = options.bootstrap
        if bootstrap is None:
            bootstrap = stack.enter_context(BrokerProcess(folder / "data", SETTINGS)).bootstrap
        if is_selected("kafka-tools"):
            yield kafka_tools.run(bootstrap, folder / "kafka-tools", options.only)
        if is_selected("ecosystem") and not options.only:
            yield ecosystem.run(bootstrap, folder / "ecosystem")
        if is_selected("franz-go"):
            yield franz_go.run(bootstrap, options.records, folder / "franz-go", options.only)
    # These two start brokers of their own: they must be new, or have other settings.
    if is_selected("differential") and options.bootstrap is None:
        yield differential.run(folder / "differential", SETTINGS)
    tests = os.environ.get(librdkafka.FOLDER_VARIABLE)
    if is_selected("librdkafka") and options.bootstrap is None and tests:
        yield librdkafka.run(Path(tests), folder / "librdkafka", options.only)


if __name__ == "__main__":
    sys.exit(main())
