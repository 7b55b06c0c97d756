"""One transactional id: its producer, and the state of its transaction.

    Empty ──add──▶ Ongoing ──end──▶ PrepareCommit ──all markers written──▶ CompleteCommit ──add──▶ Ongoing …
                      │   ╲──end──▶ PrepareAbort ───all markers written──▶ CompleteAbort ───add──▶ Ongoing …
                      ╰─ timeout, or a new producer ─▶ PrepareAbort with the next epoch

InitProducerId leads from Empty and the Complete states to Empty. Once a Prepare record is committed, the
result of the transaction is final, and only its markers remain to be written.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from runnel.model.ids import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
CLIENT_EPOCH_MAX = EPOCH_MAX - 1
"""The last epoch that clients receive; one more is reserved for fencing."""


class TransactionState(IntEnum):
    """The state of a transaction, numbered as in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def display_name(self) -> str:
        """Kafka's name of the state."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


@dataclass(slots=True)
class Transaction:
    """A transactional id as described by its last record; replaced, never modified."""

    id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    partitions: frozenset[TopicPartition] = field(default_factory=frozenset)
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last one, which retries may still use after the epochs were exhausted."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the markers are written, if the epochs are exhausted."""
    client_version: int = 0
    """The `transaction.version` with which the transaction was ended."""
    last_epoch: int = NO_EPOCH
    """The previous epoch, accepted in retries whose response was lost. Not stored."""

    @property
    def is_exhausted(self) -> bool:
        """Whether no higher epoch is available for clients."""
        return self.epoch >= CLIENT_EPOCH_MAX

    @property
    def is_committing(self) -> bool:
        return self.state is TransactionState.PREPARE_COMMIT
