"""docs/CONFORMANCE.md: the result of each suite, and the reason of each failure."""

import re
import tomllib
from pathlib import Path

from tools.conformance.result import SuiteResult

ORDER = [
    "Apache Kafka's tools",
    "The ecosystem",
    "franz-go",
    "Responses equal to Apache Kafka's",
    "Denials equal to Apache Kafka's",
]
UNEXPLAINED = "**not explained yet**"

HEAD = """# Conformance

Results of third-party test suites. This page is written by `make conformance`; the sections for a cluster by
`make conformance NODES=3`, those for a broker with TLS, SASL and ACLs by `make conformance SECURED=1`. These
targets fetch the suites: Apache Kafka with Maven, franz-go with Go. The reasons of failures come from
`tools/conformance/reasons.toml`.

In addition, `make test` runs our own suite (`tests/compat`) with confluent-kafka, kafka-python, aiokafka,
kcat and some of Apache Kafka's Java tools against a broker process, and `make java` with more of these tools.
The same suite passes against Apache Kafka 4.3:
`RUNNEL_COMPAT_BOOTSTRAP=host:port .venv/bin/pytest tests/compat` tests any broker.

`make mixed` runs librdkafka, Java and franz-go members in one consumer group of the newer protocol (KIP-848),
which join, leave and are killed for two minutes. It fails if a partition ever has two owners or stays without
an owner, if it is read out of order, or if a committed offset decreases.

Tested manually: kafka-go's own tests (all that do not need SASL, ACLs or transactions pass, except those that
also fail with Kafka 4.3, and two that expect that a metadata request does not recreate a deleted topic),
sarama with the protocol versions of Kafka 0.11 to 4.3, KafkaJS and @platformatic/kafka (produce, groups,
admin), and the tools of Kafka 3.9.
"""


def read_reasons(path: Path) -> list[tuple[str, str]]:
    """(pattern of test names, why they fail), in the order of the file."""
    entries = tomllib.loads(path.read_text())["reason"] if path.exists() else []
    return [(entry["tests"], entry["why"]) for entry in entries]


def reason_for(test: str, reasons: list[tuple[str, str]]) -> str:
    return next((why for pattern, why in reasons if re.fullmatch(pattern, test)), UNEXPLAINED)


def section(result: SuiteResult, reasons: list[tuple[str, str]]) -> str:
    """One suite: its numbers, its failures with reasons, and what passed."""
    skipped = f", {len(result.skipped)} skipped by the suite itself" if result.skipped else ""
    lines = [
        f"## {result.suite}: {len(result.passed)} of {result.total} pass",
        "",
        f"{_sentence(result.description)} {len(result.passed)} passed, {len(result.failed)} failed{skipped}.",
        "",
    ]
    for title, tests in (("failed", result.failed), ("skipped by the suite", result.skipped)):
        if tests:
            lines += [f"| {title} | because |", "|---|---|"]
            lines += [f"| `{test}` | {reason_for(test, reasons)} |" for test in tests]
            lines.append("")
    lines += ["<details><summary>passed</summary>", "", _names(result.passed)]
    return "\n".join([*lines, "", "</details>"])


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _names(tests: list[str]) -> str:
    return " ".join(f"`{test}`" for test in tests)


def updated(before: str, results: list[SuiteResult], reasons: list[tuple[str, str]]) -> str:
    """The page with the sections of these suites replaced or added; the others are kept."""
    sections = {_suite_of(text): f"## {text.strip()}" for text in before.split("\n## ")[1:]}
    sections |= {result.suite: section(result, reasons) for result in results}
    ordered = [sections[suite] for suite in sorted(sections, key=_place)]
    return "\n\n".join([HEAD.rstrip(), *ordered]) + "\n"


def _place(suite: str) -> tuple[str, int]:
    """One node first, then clusters; the suites of each in the order of `ORDER`, others behind."""
    name, _, nodes = suite.partition(", ")
    return nodes, ORDER.index(name) if name in ORDER else len(ORDER)


def _suite_of(text: str) -> str:
    heading = text.partition("\n")[0]
    return heading.rpartition(": ")[0]
