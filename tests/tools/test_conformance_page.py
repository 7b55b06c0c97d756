"""The conformance page explains every failure, or says that it does not."""

from pathlib import Path

from tools.conformance import page
from tools.conformance.suites import Verdict, print_and_judge

REASONS = [("txn-.*", "no transactions yet")]


def test_failures_carry_their_reason() -> None:
    verdict = Verdict("a suite", "tests of somebody", ["one"], ["txn-list", "odd"], ["txn-describe"])
    text = page.page([verdict], REASONS)
    assert "a suite: 1 of 3 pass" in text
    assert "| `txn-list` | no transactions yet |" in text
    assert f"| `odd` | {page.UNEXPLAINED} |" in text
    assert "| `txn-describe` | no transactions yet |" in text
    assert "`one`" in text


def test_a_pattern_matches_whole_names() -> None:
    assert page.reason_for("txn-list", REASONS) == "no transactions yet"
    assert page.reason_for("produce-txn-list", REASONS) == page.UNEXPLAINED


def test_our_own_reasons_can_be_read() -> None:
    path = Path(page.__file__).with_name("reasons.toml")
    reasons = page.read_reasons(path)
    assert page.reason_for("acl-add", reasons) != page.UNEXPLAINED
    assert page.reason_for("topic-create", reasons) == page.UNEXPLAINED


def test_a_script_is_read_line_by_line() -> None:
    verdict = Verdict("a suite", "tests of somebody")
    script = "echo '== heading'; echo 'PASS one of them'; echo 'FAIL another'; echo '1 passed, 1 failed'"
    print_and_judge(["sh", "-c", script], {}, r"(PASS|FAIL) (.+)", verdict)
    assert (verdict.passed, verdict.failed) == (["one of them"], ["another"])
