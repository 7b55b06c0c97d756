"""The ledger of the crash tests recognises every kind of violation."""

import pytest

from tools.crash.ledger import CorruptRecord, Ledger, Stamp, payload, stamp_of

PARTITION = ("t", 0)


def ledger_of(*acknowledged: tuple[int, Stamp]) -> Ledger:
    ledger = Ledger(idempotent=frozenset([1]))
    for offset, stamp in acknowledged:
        ledger.acknowledge(PARTITION, offset, stamp)
    return ledger


A, B, C = Stamp(1, 0), Stamp(1, 1), Stamp(1, 2)
LOOSE = Stamp(2, 0)


def test_a_complete_log_is_no_violation() -> None:
    ledger = ledger_of((0, A), (1, B), (-1, C))
    ledger.record_read(PARTITION, 0, A)
    ledger.verify(PARTITION, [(0, A), (1, B), (2, C), (3, LOOSE), (4, LOOSE)])
    assert ledger.violations == []


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        ([(0, A)], "lost"),
        ([(0, A), (1, C)], "changed"),
        ([(0, A), (1, B), (2, B)], "duplicate"),
        ([(0, A), (1, B), (2, A)], "reordered"),
        ([(0, A), (1, B), (3, C)], "gap"),
    ],
)
def test_every_violation_is_found(log: list[tuple[int, Stamp]], complaint: str) -> None:
    ledger = ledger_of((0, A), (1, B))
    ledger.verify(PARTITION, log)
    assert any(complaint in violation for violation in ledger.violations), ledger.violations


def test_what_was_read_must_not_be_lost_either() -> None:
    ledger = ledger_of((0, A))
    ledger.record_read(PARTITION, 1, B)
    ledger.verify(PARTITION, [(0, A)])
    assert "was read and is missing" in ledger.violations[0]


def test_one_offset_is_never_two_records() -> None:
    ledger = ledger_of((0, A), (0, B))
    ledger.record_read(PARTITION, 3, A)
    ledger.record_read(PARTITION, 3, B)
    assert len(ledger.violations) == 2


def test_a_changed_byte_is_noticed() -> None:
    value = bytearray(payload(Stamp(3, 4), 100))
    assert stamp_of(bytes(value)) == Stamp(3, 4)
    value[50] ^= 1
    with pytest.raises(CorruptRecord):
        stamp_of(bytes(value))
    with pytest.raises(CorruptRecord):
        stamp_of(b"short")
