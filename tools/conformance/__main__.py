"""`make conformance`: start a broker, let strangers judge it, write docs/CONFORMANCE.md."""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.conformance import page, suites
from tools.processes import unwind_when_ended

ROOT = Path(__file__).resolve().parent.parent.parent
SUITES = ["kafka-tools", "ecosystem", "franz-go", "twin", "librdkafka"]
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "4"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make conformance")
    parser.add_argument("--bootstrap", help="judge this broker instead of a fresh one; writes no page")
    parser.add_argument("--suite", choices=SUITES, help="run one suite; writes no page")
    parser.add_argument("--only", default="", help="a regular expression of test names; writes no page")
    parser.add_argument("--records", type=int, default=20_000, help="records per franz-go test")
    options = parser.parse_args()
    unwind_when_ended()
    kit = suites.kit_folder(ROOT)
    if kit is None:
        print(f"the scripts that fetch the suites are not here; say where: {suites.KIT_VARIABLE}=folder")
        return 2
    with tempfile.TemporaryDirectory(prefix="runnel-conformance-") as scratch:
        verdicts = list(_judge(kit, Path(scratch), options))
    reasons = page.read_reasons(Path(__file__).with_name("reasons.toml"))
    for verdict in verdicts:
        print(f"{verdict.suite}: {len(verdict.passed)} passed, {len(verdict.failed)} failed")
        for test in verdict.failed:
            print(f"  {test}: {page.reason_for(test, reasons)}")
    if not (options.bootstrap or options.suite or options.only):
        (ROOT / "docs" / "CONFORMANCE.md").write_text(page.page(verdicts, reasons))
    unexplained = [
        test
        for verdict in verdicts
        for test in verdict.failed
        if page.reason_for(test, reasons) == page.UNEXPLAINED
    ]
    return 1 if unexplained else 0


def _judge(kit: Path, scratch: Path, options: argparse.Namespace) -> Iterator[suites.Verdict]:
    """The verdict of each suite that is wanted and can be had."""

    def is_wanted(suite: str) -> bool:
        return options.suite in (None, suite)

    with ExitStack() as stack:
        bootstrap = options.bootstrap
        if bootstrap is None:
            bootstrap = stack.enter_context(BrokerProcess(scratch / "data", SETTINGS)).bootstrap
        if is_wanted("kafka-tools"):
            yield suites.kafka_tools(kit, bootstrap, options.only)
        if is_wanted("ecosystem") and not options.only:
            yield suites.ecosystem(kit, bootstrap)
        if is_wanted("franz-go"):
            yield suites.franz_go(kit, bootstrap, options.records, scratch, options.only)
    # These two start brokers of their own: they must be fresh, or have other settings.
    if is_wanted("twin") and options.bootstrap is None:
        yield suites.twin(kit, scratch, SETTINGS)
    tests = os.environ.get(suites.LIBRDKAFKA_VARIABLE)
    if is_wanted("librdkafka") and options.bootstrap is None and tests:
        yield suites.librdkafka(Path(tests), scratch, options.only)


if __name__ == "__main__":
    sys.exit(main())
