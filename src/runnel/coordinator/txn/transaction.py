"""One transactional id: who holds it, and where its transaction stands.

    Empty ──add──▶ Ongoing ──end──▶ PrepareCommit ──all markers written──▶ CompleteCommit ──add──▶ Ongoing …
                      │   ╲──end──▶ PrepareAbort ───all markers written──▶ CompleteAbort ───add──▶ Ongoing …
                      ╰─ timeout, or somebody else takes the id ─▶ PrepareAbort with the next epoch

InitProducerId leads from Empty and the Complete states to Empty. From a Prepare state there is one way on:
once it is committed, the transaction has ended, and all that is left is to tell the partitions.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from runnel.model.ids import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
CLIENT_EPOCH_MAX = EPOCH_MAX - 1
"""The last epoch that a client is given, so that there is always one left to fence it with."""


class TransactionState(IntEnum):
    """Where a transaction stands, as the log numbers it."""

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
        """Kafka's name for it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


@dataclass(slots=True)
class Transaction:
    """A transactional id as its last record describes it; never changed, only replaced."""

    id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    partitions: frozenset[TopicPartition] = field(default_factory=frozenset)
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    """Whom a retry may still name when epochs ran out and the id was replaced."""
    next_producer_id: int = NO_PRODUCER_ID
    """Takes over once the markers are written, as epochs ran out."""
    client_version: int = 0
    """The `transaction.version` by which the transaction was ended."""
    last_epoch: int = NO_EPOCH
    """The epoch before this one, if its holder may have missed the answer with the new one. Not stored."""

    @property
    def is_exhausted(self) -> bool:
        """No client can be given a higher epoch."""
        return self.epoch >= CLIENT_EPOCH_MAX

    @property
    def is_committing(self) -> bool:
        return self.state is TransactionState.PREPARE_COMMIT
