"""Configs of the transaction coordinator."""

from dataclasses import dataclass

RETRY_MS = 1000
"""The delay before the next step of a long abort, and the longest one before a retry."""

FIRST_RETRY_MS = 25
"""The delay before failed markers and completions are retried first; it doubles with each retry."""

TRANSACTION_V2 = 2
"""The `transaction.version` in which every transaction bumps the producer epoch (KIP-890)."""


@dataclass(slots=True)
class TransactionSettings:
    """The broker configs of the transaction coordinator, and the feature level of the cluster."""

    timeout_max_ms: int = 15 * 60 * 1000
    expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    abort_interval_ms: int = 10 * 1000
    expire_interval_ms: int = 60 * 60 * 1000
    transaction_version: int = 2
    """The finalized level of `transaction.version`; applies to transactions that the coordinator aborts."""
