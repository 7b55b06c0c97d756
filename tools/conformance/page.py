"""docs/CONFORMANCE.md: the verdicts, and why each failure is one."""

import re
import tomllib
from pathlib import Path

from tools.conformance.suites import Verdict

UNEXPLAINED = "**not explained yet**"

HEAD = """# Conformance

What test suites written by others say about Runnel. Written by `make conformance`; the reasons come from
`tools/conformance/reasons.toml`, which is the place to explain a failure.

Beside these, `make test` runs our own suite (`tests/compat`) with the real confluent-kafka, kafka-python,
aiokafka, kcat and Apache Kafka's Java console tools against a broker process. The same suite passes against
Apache Kafka 4.3: `RUNNEL_COMPAT_BOOTSTRAP=host:port .venv/bin/pytest tests/compat` points it at any broker.

`make mixed` is a judgement of its own: librdkafka, Java and franz-go members share one consumer group of the
newer protocol (KIP-848) and come, leave and are killed for two minutes. It fails if a partition is ever owned
twice, stays without an owner, is read out of order, or if a committed offset goes back.

Tried by hand besides: kafka-go's own tests (all that do not need SASL, ACLs or transactions pass, except
those that fail with Kafka 4.3 too and two that expect a deleted topic not to come back when it is asked
for), sarama in the dialects of Kafka 0.11 to 4.3, KafkaJS and @platformatic/kafka (produce, groups, admin),
and Kafka 3.9's tools.
"""


def read_reasons(path: Path) -> list[tuple[str, str]]:
    """(pattern of test names, why they fail), in the order of the file."""
    entries = tomllib.loads(path.read_text())["reason"] if path.exists() else []
    return [(entry["tests"], entry["why"]) for entry in entries]


def reason_for(test: str, reasons: list[tuple[str, str]]) -> str:
    return next((why for pattern, why in reasons if re.fullmatch(pattern, test)), UNEXPLAINED)


def section(verdict: Verdict, reasons: list[tuple[str, str]]) -> str:
    """One suite: its numbers, its failures with reasons, and what passed."""
    skipped = f", {len(verdict.skipped)} skipped by the suite itself" if verdict.skipped else ""
    lines = [
        f"## {verdict.suite}: {len(verdict.passed)} of {verdict.total} pass",
        "",
        f"That is {verdict.what}. {len(verdict.passed)} passed, {len(verdict.failed)} failed{skipped}.",
        "",
    ]
    if verdict.failed:
        lines += ["| failed | because |", "|---|---|"]
        lines += [f"| `{test}` | {reason_for(test, reasons)} |" for test in verdict.failed]
        lines.append("")
    if verdict.skipped:
        lines += ["| skipped by the suite | because |", "|---|---|"]
        lines += [f"| `{test}` | {reason_for(test, reasons)} |" for test in verdict.skipped]
        lines.append("")
    lines += ["<details><summary>passed</summary>", "", _names(verdict.passed)]
    return "\n".join([*lines, "", "</details>"])


def _names(tests: list[str]) -> str:
    return " ".join(f"`{test}`" for test in tests)


def page(verdicts: list[Verdict], reasons: list[tuple[str, str]]) -> str:
    return "\n\n".join([HEAD.rstrip(), *(section(verdict, reasons) for verdict in verdicts)]) + "\n"
