"""The conformance page explains every failure, or states that it does not."""

from pathlib import Path

from tools.conformance import page
from tools.conformance.result import SuiteResult

REASONS = [("txn-.*", "no transactions yet")]


def test_failures_carry_their_reason() -> None:
    result = SuiteResult("a suite", "tests of a third party", ["one"], ["txn-list", "odd"], ["txn-describe"])
    text = page.updated("", [result], REASONS)
    assert "a suite: 1 of 3 pass" in text
    assert "| `txn-list` | no transactions yet |" in text
    assert f"| `odd` | {page.UNEXPLAINED} |" in text
    assert "| `txn-describe` | no transactions yet |" in text
    assert "`one`" in text


def test_a_run_replaces_its_own_sections_only() -> None:
    one, three = SuiteResult("tools", "d", ["a"]), SuiteResult("tools, three nodes", "d", ["a"], ["txn-b"])
    both = page.updated(page.updated("", [one], REASONS), [three], REASONS)
    assert both.count("## tools: 1 of 1 pass") == both.count("## tools, three nodes: 1 of 2 pass") == 1
    again = page.updated(both, [SuiteResult("tools", "d", ["a", "c"])], REASONS)
    assert [line for line in again.splitlines() if line.startswith("## ")] == [
        "## tools: 2 of 2 pass",
        "## tools, three nodes: 1 of 2 pass",
    ]
    assert page.updated(again, [], REASONS) == again


def test_a_pattern_matches_whole_names() -> None:
    assert page.reason_for("txn-list", REASONS) == "no transactions yet"
    assert page.reason_for("produce-txn-list", REASONS) == page.UNEXPLAINED


def test_our_own_reasons_can_be_read() -> None:
    path = Path(page.__file__).with_name("reasons.toml")
    reasons = page.read_reasons(path)
    assert page.reason_for("acl-add", reasons) != page.UNEXPLAINED
    assert page.reason_for("topic-create", reasons) == page.UNEXPLAINED
