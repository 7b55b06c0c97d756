"""The judge of the chain can tell every way in which a transaction can go wrong."""

from pathlib import Path

import pytest

from tools.crash.chain.book import Attempt, Book, Journal, Log, read_journals, transformed, value_of

IN, OUT = ("in", 0), ("out", 0)
A, B, C = (value_of("k", number) for number in (1, 2, 3))


def book() -> Book:
    attempts = {
        b"w.1": Attempt(2, is_commit_asked=True, is_committed=True),
        b"w.2": Attempt(1),
        b"w.3": Attempt(1, is_commit_asked=True, is_aborted=True),
        b"w.4": Attempt(1, is_commit_asked=True),
    }
    return Book(attempts)


def log(*values: bytes) -> Log:
    return {OUT: list(enumerate(values))}


GOOD = log(transformed(A, "w.1"), transformed(B, "w.1"), transformed(C, "w.4"))


def judged(outputs: Log, seen: Log | None = None) -> list[str]:
    judge = book()
    judge.judge_transactions(outputs, "the output")
    judge.judge_commits(outputs, b"w")
    judge.judge_copies({IN: [(0, A), (1, B), (2, C)]}, outputs)
    judge.judge_seen(outputs if seen is None else seen, outputs)
    return judge.violations


def test_a_whole_chain_is_no_violation() -> None:
    assert judged(GOOD) == []


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [
        (log(transformed(A, "w.1"), transformed(C, "w.4")), "torn"),
        (log(transformed(C, "w.4")), "lost commit"),
        (log(transformed(C, "w.4")), "lost [1, 2]"),
        (log(*(value for _, value in GOOD[OUT]), transformed(C, "w.2")), "aborted read"),
        (log(*(value for _, value in GOOD[OUT]), transformed(C, "w.3")), "aborted read"),
        (log(*(value for _, value in GOOD[OUT]), transformed(C, "w.4")), "doubled [3]"),
        (log(*(value for _, value in GOOD[OUT]), transformed(C, "w.9")), "nobody tried"),
        (log(transformed(B, "w.1"), transformed(A, "w.1"), transformed(C, "w.4")), "order broken"),
        (log(*(value for _, value in GOOD[OUT]), transformed(value_of("k", 7), "w.4")), "invented [7]"),
    ],
)
def test_every_anomaly_is_found(outputs: Log, complaint: str) -> None:
    violations = judged(outputs)
    assert any(complaint in violation for violation in violations), violations


@pytest.mark.parametrize(
    ("seen", "complaint"),
    [
        ([GOOD[OUT][0], (1, b"k:2:->w.2"), GOOD[OUT][2]], "was read as"),
        ([GOOD[OUT][0], (7, b"k:2:->w.2"), *GOOD[OUT][1:]], "was read as"),
        ([GOOD[OUT][1], GOOD[OUT][0], GOOD[OUT][2]], "was given offset 0 after 1"),
        (GOOD[OUT][:2], "skipped"),
    ],
)
def test_a_reader_is_shown_what_stays(seen: list[tuple[int, bytes]], complaint: str) -> None:
    violations = judged(GOOD, {OUT: seen})
    assert any(complaint in violation for violation in violations), violations


def test_what_was_acknowledged_without_a_transaction_is_missed() -> None:
    judge = book()
    judge.judge_acknowledged([("k", 1), ("k", 4)], {IN: [(0, A)]})
    assert judge.violations == ["lost: k:4 was acknowledged and is not in the input"]


def test_journals_tell_how_far_an_attempt_came(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w.journal")
    journal.note("try", "w.1", 5)
    journal.note("commit", "w.1")
    journal.note("committed", "w.1")
    journal.note("try", "w.2", 3)
    (tmp_path / "killed.journal").write_bytes(b"try k.1 2\ncommit k")
    assert read_journals(tmp_path) == {
        b"w.1": Attempt(5, is_commit_asked=True, is_committed=True),
        b"w.2": Attempt(3),
        b"k.1": Attempt(2),
    }
