"""Batching of records by partition. No I/O, no clock.

At most one batch per partition is in flight. This preserves the order of records across retries, and lets the
next batch grow in the meantime: the slower the broker, the larger the batches.
"""

from collections import deque
from dataclasses import dataclass, field

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.client.deliveries import Waiter
from runnel.model.ids import TopicPartition

RECORD_OVERHEAD_BYTES = 32
"""An upper estimate of the size of a record without key, value and headers."""
SEQUENCE_MASK = 0x7FFFFFFF


@dataclass(slots=True)
class Delivery:
    """The partition and offset of a delivered record; the offset is -1 with acks=0."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class ProducerIdentity:
    """The id and epoch of an idempotent producer."""

    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False


@dataclass(slots=True)
class PendingBatch:
    """The records of one batch, with the futures of their deliveries."""

    partition: TopicPartition
    deadline_s: float
    records: list[Record] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)
    size_bytes: int = 0
    attempts: int = 0
    not_before_s: float = 0.0
    encoded: bytearray | None = None
    base_sequence: int = -1
    is_closed: bool = False
    """It takes no more records."""
    is_in_doubt: bool = False
    """A request with it was sent, and whether it was written is unknown."""

    def delivered(self, base_offset: int, log_append_time_ms: int) -> None:
        """The batch was written at `base_offset`."""
        for index, (record, waiter) in enumerate(zip(self.records, self.waiters, strict=True)):
            if not waiter.done():
                offset = base_offset + index if base_offset >= 0 else -1
                timestamp_ms = record.timestamp if log_append_time_ms < 0 else log_append_time_ms
                waiter.set_result(Delivery(self.partition, offset, timestamp_ms))

    def failed(self, error: Exception) -> None:
        """The batch will not be delivered."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class Accumulator:
    """Queues of batches by partition, and the sequence numbers of an idempotent producer."""

    def __init__(self, batch_bytes: int, compression: int) -> None:
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._queues: dict[TopicPartition, deque[PendingBatch]] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self.in_flight: set[TopicPartition] = set()
        self.size_bytes = 0
        """The size of all undelivered records."""

    def add(self, partition: TopicPartition, record: Record, waiter: Waiter, deadline_s: float) -> None:
        """Append a record to the queue of its partition."""
        size_bytes = record_size_bytes(record)
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = deque()
        if not queue or not self._has_room(queue[-1], size_bytes):
            queue.append(PendingBatch(partition, deadline_s))
        self._append(queue[-1], record, waiter, size_bytes)

    def add_to_open(self, partition: TopicPartition, record: Record, waiter: Waiter) -> bool:
        """Append a record to the open batch of the partition, if there is one with room for it."""
        queue = self._queues.get(partition)
        size_bytes = record_size_bytes(record)
        if not queue or not self._has_room(queue[-1], size_bytes):
            return False
        self._append(queue[-1], record, waiter, size_bytes)
        return True

    def has_room_for(self, partition: TopicPartition, record: Record) -> bool:
        """Whether the record fits into the open batch of the partition."""
        queue = self._queues.get(partition)
        return queue is not None and len(queue) > 0 and self._has_room(queue[-1], record_size_bytes(record))

    def _append(self, batch: PendingBatch, record: Record, waiter: Waiter, size_bytes: int) -> None:
        batch.records.append(record)
        batch.waiters.append(waiter)
        batch.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def _has_room(self, batch: PendingBatch, size_bytes: int) -> bool:
        # An encoded batch may have been written already, so it must not change.
        is_open = batch.encoded is None and not batch.is_closed
        return is_open and batch.size_bytes + size_bytes <= self._batch_bytes

    def ready(self, now_s: float) -> list[TopicPartition]:
        """Partitions whose first batch can be sent now."""
        return [
            partition
            for partition, queue in self._queues.items()
            if queue and partition not in self.in_flight and queue[0].not_before_s <= now_s
        ]

    def next_retry_s(self, now_s: float) -> float | None:
        """When the earliest batch that is backing off can be sent."""
        timestamps = [
            queue[0].not_before_s
            for partition, queue in self._queues.items()
            if queue and partition not in self.in_flight and queue[0].not_before_s > now_s
        ]
        return min(timestamps, default=None)

    def has_full_batch(self) -> bool:
        """Whether there is a full batch."""
        return any(
            len(queue) > 1 or (queue and queue[0].size_bytes >= self._batch_bytes)
            for queue in self._queues.values()
        )

    def take(self, partition: TopicPartition, identity: ProducerIdentity) -> PendingBatch:
        """The first batch of a ready partition, encoded; it is in flight until `settle` or `put_back`."""
        queue = self._queues[partition]
        batch = queue.popleft()
        if not queue:
            # Of partitions that are written no more, there would be more and more to look through.
            del self._queues[partition]
        self.in_flight.add(partition)
        if batch.encoded is None:
            sequence = self._sequences.get(partition, 0) if identity.producer_id >= 0 else -1
            batch.encoded = build_batch(
                batch.records,
                compression=self._compression,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=sequence,
                transactional=identity.is_transactional,
            )
            batch.base_sequence = sequence
            if sequence >= 0:
                self._sequences[partition] = (sequence + len(batch.records)) & SEQUENCE_MASK
        batch.attempts += 1
        return batch

    def requeue(self, batch: PendingBatch, not_before_s: float) -> None:
        """Retry the batch later, before the other batches of its partition."""
        self.in_flight.discard(batch.partition)
        batch.not_before_s = not_before_s
        self._queues.setdefault(batch.partition, deque()).appendleft(batch)

    def rewind(self, batch: PendingBatch) -> None:
        """The batch in flight was rejected, so that its sequence numbers are used by the next one."""
        after = (batch.base_sequence + len(batch.records)) & SEQUENCE_MASK
        # Not after `reset_sequences`: the next batch has another producer id.
        if batch.base_sequence >= 0 and self._sequences.get(batch.partition) == after:
            self._sequences[batch.partition] = batch.base_sequence

    def split(self, batch: PendingBatch) -> None:
        """Send a rejected batch in halves: the reason may be one of its records, or its size."""
        self.rewind(batch)
        self.in_flight.discard(batch.partition)
        queue = self._queues.setdefault(batch.partition, deque())
        middle = len(batch.records) // 2
        for part in (slice(middle, None), slice(middle)):
            records = batch.records[part]
            size_bytes = sum(map(record_size_bytes, records))
            queue.appendleft(
                PendingBatch(
                    batch.partition,
                    batch.deadline_s,
                    records,
                    batch.waiters[part],
                    size_bytes,
                    is_closed=True,
                )
            )

    def complete(self, batch: PendingBatch) -> None:
        """The batch was delivered or has failed."""
        self.in_flight.discard(batch.partition)
        self.size_bytes -= batch.size_bytes

    def reset_sequences(self) -> None:
        """Restart sequence numbers at zero, for a new producer id or epoch."""
        self._sequences.clear()

    def clear(self) -> list[PendingBatch]:
        """Remove and return all queued batches."""
        batches = [batch for queue in self._queues.values() for batch in queue]
        self._queues.clear()
        self.size_bytes -= sum(batch.size_bytes for batch in batches)
        return batches

    @property
    def is_empty(self) -> bool:
        return not self.in_flight and not any(self._queues.values())


def record_size_bytes(record: Record) -> int:
    """The maximum size of a record in a batch, before compression."""
    size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size_bytes += 4 * len(name) + len(value or b"") + 10
    return size_bytes
