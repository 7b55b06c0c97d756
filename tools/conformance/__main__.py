"""`make conformance`: run third-party suites against a broker or a cluster, write docs/CONFORMANCE.md."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tools.conformance import authorization, differential, ecosystem, franz_go, kafka_tools, librdkafka, page
from tools.conformance.result import SuiteResult
from tools.conformance.target import Target, started
from tools.fetch.programs import find, missing
from tools.kafka.commands import kafka_jars
from tools.processes import unwind_when_ended

ROOT = Path(__file__).resolve().parent.parent.parent
SUITES = ["kafka-tools", "ecosystem", "franz-go", "differential", "authorization", "librdkafka"]
CLUSTER_SUITES = SUITES[:3]
"""Those that are run against a cluster and a secured broker as well; the others start their own brokers."""
PAGE = ROOT / "docs" / "CONFORMANCE.md"
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
    if not (options.bootstrap or options.only):
        PAGE.write_text(page.updated(PAGE.read_text() if PAGE.exists() else "", results, reasons))
    is_explained = [
        page.reason_for(test, reasons) != page.UNEXPLAINED for result in results for test in result.failed
    ]
    return 0 if all(is_explained) else 1


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make conformance")
    parser.add_argument("--bootstrap", help="test this broker instead of a new one; writes no page")
    parser.add_argument("--nodes", type=int, default=1, help="nodes of the cluster, with ids from 1 on")
    parser.add_argument("--secured", action="store_true", help="test a broker with TLS, SASL and ACLs")
    parser.add_argument("--suite", choices=SUITES, help="run one suite, update its section of the page")
    parser.add_argument("--only", default="", help="a regular expression of test names; writes no page")
    parser.add_argument("--records", type=int, default=20_000, help="records per franz-go test")
    options = parser.parse_args(arguments)
    if (options.nodes > 1 or options.secured) and options.suite not in (None, *CLUSTER_SUITES):
        parser.error(f"--suite {options.suite} is for one node without security")
    if options.secured and (options.nodes > 1 or options.bootstrap):
        parser.error("--secured is for one new node")
    return options


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

    if any(map(is_selected, CLUSTER_SUITES)):
        with ExitStack() as stack:
            if options.bootstrap is None:
                target = stack.enter_context(
                    started(folder / "data", SETTINGS, options.nodes, is_secured=options.secured)
                )
            else:
                target = Target(options.bootstrap, tuple(range(1, options.nodes + 1)))
            if is_selected("kafka-tools"):
                yield target.label(kafka_tools.run(target, folder / "kafka-tools", options.only))
            if is_selected("ecosystem"):
                yield target.label(ecosystem.run(target, folder / "ecosystem", options.only))
            if is_selected("franz-go"):
                yield target.label(franz_go.run(target, options.records, folder / "franz-go", options.only))
    if options.bootstrap is not None or options.nodes > 1 or options.secured:
        return
    # These start brokers of their own: they must be new, or have other settings.
    alone = {"differential": differential.run, "authorization": authorization.run}
    yield from (alone[suite](folder / suite, SETTINGS) for suite in filter(is_selected, alone))
    tests = os.environ.get(librdkafka.FOLDER_VARIABLE)
    if is_selected("librdkafka") and tests:
        yield librdkafka.run(Path(tests), folder / "librdkafka", options.only)


if __name__ == "__main__":
    sys.exit(main())
