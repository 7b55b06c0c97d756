"""The verifier of the chain recognises every transaction anomaly."""

from pathlib import Path

import pytest

from tools.crash.chain.verification import (
    Attempt,
    Journal,
    Log,
    Verifier,
    read_journals,
    transformed,
    value_of,
)

IN, OUT = ("in", 0), ("out", 0)
A, B, C = (value_of("k", number) for number in (1, 2, 3))


def new_verifier() -> Verifier:
    attempts = {
        b"w.1": Attempt(2, is_commit_requested=True, is_committed=True),
        b"w.2": Attempt(1),
        b"w.3": Attempt(1, is_commit_requested=True, is_aborted=True),
        b"w.4": Attempt(1, is_commit_requested=True),
    }
    return Verifier(attempts)


def log(*values: bytes) -> Log:
    return {OUT: list(enumerate(values))}


GOOD = log(transformed(A, "w.1"), transformed(B, "w.1"), transformed(C, "w.4"))


def violations_of(outputs: Log, seen: Log | None = None) -> list[str]:
    verifier = new_verifier()
    verifier.check_transactions(outputs, "the output")
    verifier.check_commits(outputs, b"w")
    verifier.check_copies({IN: [(0, A), (1, B), (2, C)]}, outputs)
    verifier.check_seen(outputs if seen is None else seen, outputs)
    return verifier.violations


def test_a_whole_chain_is_no_violation() -> None:
    assert violations_of(GOOD) == []


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [
        (log(transformed(A, "w.1"), transformed(C, "w.4")), "torn"),
        (log(transformed(C, "w.4")), "lost commit"),
        (log(transformed(C, "w.4")), "lost [1, 2]"),
        (log(*(value for _, value in GOOD[OUT]), transformed(C, "w.2")), "aborted read"),
        (log(*(value for _, value in GOOD[OUT]), transformed(C, "w.3")), "aborted read"),
        (log(*(value for _, value in GOOD[OUT]), transformed(C, "w.4")), "duplicated [3]"),
        (log(*(value for _, value in GOOD[OUT]), transformed(C, "w.9")), "unknown transaction"),
        (log(transformed(B, "w.1"), transformed(A, "w.1"), transformed(C, "w.4")), "order broken"),
        (log(*(value for _, value in GOOD[OUT]), transformed(value_of("k", 7), "w.4")), "invented [7]"),
    ],
)
def test_every_anomaly_is_found(outputs: Log, complaint: str) -> None:
    violations = violations_of(outputs)
    assert any(complaint in violation for violation in violations), violations


@pytest.mark.parametrize(
    ("seen", "complaint"),
    [
        ([GOOD[OUT][0], (1, b"k:2:->w.2"), GOOD[OUT][2]], "was read as"),
        ([GOOD[OUT][0], (7, b"k:2:->w.2"), *GOOD[OUT][1:]], "was read as"),
        ([GOOD[OUT][1], GOOD[OUT][0], GOOD[OUT][2]], "received offset 0 after 1"),
        (GOOD[OUT][:2], "skipped"),
    ],
)
def test_a_reader_receives_what_is_stored(seen: list[tuple[int, bytes]], complaint: str) -> None:
    violations = violations_of(GOOD, {OUT: seen})
    assert any(complaint in violation for violation in violations), violations


def test_a_lost_record_outside_of_transactions_is_reported() -> None:
    verifier = new_verifier()
    verifier.check_acknowledged([("k", 1), ("k", 4)], {IN: [(0, A)]})
    assert verifier.violations == ["lost: k:4 was acknowledged and is not in the input"]


def test_journals_tell_how_far_an_attempt_came(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w.journal")
    journal.write("try", "w.1", 5)
    journal.write("commit", "w.1")
    journal.write("committed", "w.1")
    journal.write("try", "w.2", 3)
    (tmp_path / "killed.journal").write_bytes(b"try k.1 2\ncommit k")
    assert read_journals(tmp_path) == {
        b"w.1": Attempt(5, is_commit_requested=True, is_committed=True),
        b"w.2": Attempt(3),
        b"k.1": Attempt(2),
    }
