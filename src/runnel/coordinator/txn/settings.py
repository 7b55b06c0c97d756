"""What an operator can set about transactions, under Kafka's names."""

from dataclasses import dataclass

RETRY_MS = 1000
"""When the log would not take the end of a transaction, it is offered again after this pause."""

TRANSACTION_V2 = 2
"""The `transaction.version` since which every transaction has an epoch of its own (KIP-890)."""


@dataclass(slots=True)
class TransactionSettings:
    """The broker settings that transactions obey, and the level that the cluster works at."""

    timeout_max_ms: int = 15 * 60 * 1000
    expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    abort_interval_ms: int = 10 * 1000
    expire_interval_ms: int = 60 * 60 * 1000
    transaction_version: int = 2
    """The finalised level of `transaction.version`: how transactions are ended that no client ends."""
