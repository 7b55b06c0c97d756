"""The records of `__transaction_state`: one per transactional id."""

from __future__ import annotations

from runnel.schemas.coordinator import record_types
from runnel.wire import Data, Struct, field, int8, int16, int32, int64, string


class TransactionLogKey(Data, api=0, versions="0"):
    """A transactional id."""

    transactional_id: string = ""


class PartitionsSchema(Struct):
    """Partitions of one topic in a transaction."""

    topic: string = ""
    partition_ids: list[int32] = field()


class TransactionLogValue(Data, api=0, versions="0-1", flexible="1+"):
    """The state of a transaction.

    v1 is flexible and adds what survives a change of producer id (KIP-890)
    """

    producer_id: int64 = 0
    previous_producer_id: int64 = field("1+", default=-1, tag=0)
    next_producer_id: int64 = field("1+", default=-1, tag=1)
    producer_epoch: int16 = 0
    next_producer_epoch: int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = (
        0  # 0 empty, 1 ongoing, 2 and 3 prepare commit or abort, 4 and 5 complete, 6 dead
    )
    transaction_partitions: list[PartitionsSchema] | None = field()  # null if no transaction is open
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0
    client_transaction_version: int16 = field("1+", tag=2)  # the `transaction.version` of the client


TRANSACTION_RECORDS = record_types((TransactionLogKey, TransactionLogValue))
"""For `runnel.schemas.coordinator.read_record`."""
