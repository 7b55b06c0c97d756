"""A producer of the crash tests that ends early is a violation, not a lighter load."""

import pytest

from tools.crash.ledger import Ledger
from tools.crash.load import Sender

PARTITION = ("t", 0)


class Failing(Sender):
    def send_all(self) -> None:
        raise SystemError("poll failed")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(idempotent=frozenset({0}))


def test_a_sender_that_ends_with_an_exception(ledger: Ledger) -> None:
    sender = Failing(0, "127.0.0.1:1", [PARTITION], ledger, {})
    sender.start()
    sender.end()
    assert ledger.violations == ["sender 0 has ended: SystemError('poll failed')"]


def test_a_delivery_report_that_is_not_understood(ledger: Ledger) -> None:
    class WithoutValue:
        def topic(self) -> str:
            return "t"

        def partition(self) -> int:
            return 0

        def offset(self) -> int:
            return 0

        def value(self) -> None:
            return None

        def __str__(self) -> str:
            return "the message"

    sender = Sender(0, "127.0.0.1:1", [PARTITION], ledger, {})
    sender._reported(None, WithoutValue())
    (violation,) = ledger.violations
    assert violation.startswith("sender 0: TypeError") and violation.endswith("of the message")
