"""Reads internal topics of a stopped broker: committed offsets and transaction states.

The format is Kafka's: keys start with the record type, values with a version.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct as Layout
from struct import error as LayoutError

from runnel.batch.errors import CorruptBatch
from runnel.batch.records import iterate_records
from runnel.model.ids import TopicPartition
from runnel.pipelines.restore.segments import Scan, valid_batches
from runnel.schemas.txn import TransactionLogValue
from runnel.wire import MalformedMessage, decode

GROUP_OFFSETS = "__consumer_offsets"
TRANSACTION_STATES = "__transaction_state"

ONGOING = 1
PREPARE_COMMIT = 2
PREPARE_ABORT = 3
EPOCH_BUMP_VERSION = 2
"""From this transaction version on (KIP-890), the end of a transaction bumps the epoch."""

_SHORT = Layout(">h")
_PARTITION = Layout(">i")
_OFFSET_VALUE = Layout(">hq")
_COMMITS = (0, 1)
_TRANSACTIONS = 0


@dataclass(slots=True)
class TransactionState:
    """The latest state of a transactional id in the coordinator's log."""

    transactional_id: str
    status: int
    epoch: int
    version: int
    partitions: frozenset[TopicPartition]

    def completes(self, partition: TopicPartition, epoch: int) -> bool:
        """Would the coordinator, on restart, complete the transaction of this epoch in the partition?"""
        if self.status not in (PREPARE_COMMIT, PREPARE_ABORT) or partition not in self.partitions:
            return False
        return self.epoch > epoch if self.version >= EPOCH_BUMP_VERSION else self.epoch >= epoch

    @property
    def is_commit(self) -> bool:
        return self.status == PREPARE_COMMIT


def transactions_in(scans: Iterable[Scan]) -> dict[int, TransactionState]:
    """The transaction states in __transaction_state, by producer id."""
    newest: dict[str, TransactionLogValue] = {}
    for found in scans:
        for key, value in _key_values(found):
            try:
                _add_transaction(newest, key, value)
            except (LayoutError, MalformedMessage) as error:
                found.damages.append(f"{found.topic_partition}: unreadable transaction state: {error}")
    return {
        value.producer_id: TransactionState(
            transactional_id,
            value.transaction_status,
            value.producer_epoch,
            value.client_transaction_version,
            frozenset(
                TopicPartition(topic.topic, number)
                for topic in value.transaction_partitions or ()
                for number in topic.partition_ids
            ),
        )
        for transactional_id, value in newest.items()
    }


def commits_in(scans: Iterable[Scan]) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of each group."""
    committed: dict[str, dict[TopicPartition, int]] = {}
    for found in scans:
        for key, value in _key_values(found):
            try:
                _add_commit(committed, key, value)
            except LayoutError as error:
                found.damages.append(f"{found.topic_partition}: unreadable offset commit: {error}")
    return committed


def _key_values(found: Scan) -> Iterator[tuple[bytes, bytes | None]]:
    for range_ in found.ranges:
        with open(range_.path, "rb", buffering=0) as file:
            for _, header, batch in valid_batches(file.fileno(), range_.start, range_.end):
                if header.base_offset < range_.offset_min or not found.is_visible(header):
                    continue
                try:
                    yield from ((record.key or b"", record.value) for record in iterate_records(batch))
                except CorruptBatch as error:
                    found.damages.append(
                        f"{found.topic_partition}: batch at offset {header.base_offset}: {error}"
                    )


def _add_transaction(newest: dict[str, TransactionLogValue], key: bytes, value: bytes | None) -> None:
    if _SHORT.unpack_from(key)[0] != _TRANSACTIONS:
        return
    transactional_id, _ = _text(key, 2)
    # If the value is unreadable, do not fall back to an older one.
    newest.pop(transactional_id, None)
    if value is not None:
        newest[transactional_id] = decode(TransactionLogValue, _SHORT.unpack_from(value)[0], value, 2)


def _add_commit(committed: dict[str, dict[TopicPartition, int]], key: bytes, value: bytes | None) -> None:
    if _SHORT.unpack_from(key)[0] not in _COMMITS:
        return
    group, position = _text(key, 2)
    topic, position = _text(key, position)
    partition = TopicPartition(topic, _PARTITION.unpack_from(key, position)[0])
    if value is None:
        committed.get(group, {}).pop(partition, None)
    else:
        # Every version of the value starts with the offset.
        committed.setdefault(group, {})[partition] = _OFFSET_VALUE.unpack_from(value)[1]


def _text(data: bytes, position: int) -> tuple[str, int]:
    end = position + 2 + _SHORT.unpack_from(data, position)[0]
    return data[position + 2 : end].decode("utf-8", "replace"), end
