"""What the crash suites record, and the violations that they find in a log."""

import pytest

from tools.crash.ledger import Ledger, Stamp

PARTITION = ("orders", 0)
FIRST, SECOND = Stamp(1, 0), Stamp(1, 1)


@pytest.mark.parametrize("unknown", [None, -1])
def test_an_acknowledged_record_is_expected_even_if_its_offset_is_unknown(unknown: int | None) -> None:
    ledger = Ledger(frozenset())
    ledger.acknowledge(PARTITION, 0, FIRST)
    ledger.acknowledge(PARTITION, unknown, SECOND)
    ledger.verify(PARTITION, [(0, FIRST), (1, SECOND)])
    assert ledger.violations == []
    ledger.verify(PARTITION, [(0, FIRST)])
    (violation,) = ledger.violations
    assert "lost" in violation


def test_a_record_at_another_offset_is_found() -> None:
    ledger = Ledger(frozenset())
    ledger.acknowledge(PARTITION, 0, FIRST)
    ledger.verify(PARTITION, [(0, SECOND)])
    assert any("changed" in violation for violation in ledger.violations)
