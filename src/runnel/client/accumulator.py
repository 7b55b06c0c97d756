"""Records that wait to be sent, gathered into batches per partition. No I/O, no clock.

At most one batch of a partition is on its way at a time. That keeps the order of records through every retry,
and lets the next batch grow meanwhile: the busier the broker, the larger the batches.
"""

from asyncio import Future
from collections import deque
from dataclasses import dataclass, field

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.model.ids import TopicPartition

RECORD_OVERHEAD_BYTES = 32
"""Lengths, deltas and room for growth: what a record takes beside its key and value, roughly."""
SEQUENCE_MASK = 0x7FFFFFFF


@dataclass(slots=True)
class Delivery:
    """Where a record ended up; the offset is -1 when the broker was not asked to tell (acks=0)."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class ProducerIdentity:
    """How a broker recognises an idempotent producer."""

    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False


@dataclass(slots=True)
class PendingBatch:
    """Records of one partition that travel together, and those who wait for them."""

    partition: TopicPartition
    deadline_s: float
    records: list[Record] = field(default_factory=list)
    waiters: "list[Future[Delivery]]" = field(default_factory=list)
    size_bytes: int = 0
    attempts: int = 0
    not_before_s: float = 0.0
    encoded: bytearray | None = None

    def delivered(self, base_offset: int, log_append_time_ms: int) -> None:
        """The broker has the records, the first of them at `base_offset`."""
        for index, (record, waiter) in enumerate(zip(self.records, self.waiters, strict=True)):
            if not waiter.done():
                offset = base_offset + index if base_offset >= 0 else -1
                timestamp_ms = record.timestamp if log_append_time_ms < 0 else log_append_time_ms
                waiter.set_result(Delivery(self.partition, offset, timestamp_ms))

    def failed(self, error: Exception) -> None:
        """The records will not be delivered."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class Accumulator:
    """Batches per partition in the order of sending, and the sequence numbers of an idempotent producer."""

    def __init__(self, batch_bytes: int, compression: int) -> None:
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._queues: dict[TopicPartition, deque[PendingBatch]] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self.in_flight: set[TopicPartition] = set()
        self.size_bytes = 0
        """Bytes of all records that are not yet delivered."""

    def add(
        self, partition: TopicPartition, record: Record, waiter: "Future[Delivery]", deadline_s: float
    ) -> None:
        """Line a record up behind the others of its partition."""
        size_bytes = record_size_bytes(record)
        queue = self._queues.setdefault(partition, deque())
        if not queue or not self._has_room(queue[-1], size_bytes):
            queue.append(PendingBatch(partition, deadline_s))
        batch = queue[-1]
        batch.records.append(record)
        batch.waiters.append(waiter)
        batch.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def has_room_for(self, partition: TopicPartition, record: Record) -> bool:
        """Is a batch of this partition growing that the record still fits in?"""
        queue = self._queues.get(partition)
        return queue is not None and len(queue) > 0 and self._has_room(queue[-1], record_size_bytes(record))

    def _has_room(self, batch: PendingBatch, size_bytes: int) -> bool:
        # A batch that was encoded has been on the wire, perhaps successfully: it must not change any more.
        return batch.encoded is None and batch.size_bytes + size_bytes <= self._batch_bytes

    def ready(self, now_s: float) -> list[TopicPartition]:
        """Partitions whose first batch may go now."""
        return [
            partition
            for partition, queue in self._queues.items()
            if queue and partition not in self.in_flight and queue[0].not_before_s <= now_s
        ]

    def next_retry_s(self, now_s: float) -> float | None:
        """When the earliest batch that is held back may go."""
        timestamps = [
            queue[0].not_before_s
            for partition, queue in self._queues.items()
            if queue and partition not in self.in_flight and queue[0].not_before_s > now_s
        ]
        return min(timestamps, default=None)

    def has_full_batch(self) -> bool:
        """Is there a batch that will not grow any more?"""
        return any(
            len(queue) > 1 or (queue and queue[0].size_bytes >= self._batch_bytes)
            for queue in self._queues.values()
        )

    def take(self, partition: TopicPartition, identity: ProducerIdentity) -> PendingBatch:
        """The first batch of a ready partition, encoded; it is in flight until `settle` or `put_back`."""
        batch = self._queues[partition].popleft()
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
            if sequence >= 0:
                self._sequences[partition] = (sequence + len(batch.records)) & SEQUENCE_MASK
        batch.attempts += 1
        return batch

    def requeue(self, batch: PendingBatch, not_before_s: float) -> None:
        """Try the batch again later, before anything else of its partition."""
        self.in_flight.discard(batch.partition)
        batch.not_before_s = not_before_s
        self._queues.setdefault(batch.partition, deque()).appendleft(batch)

    def complete(self, batch: PendingBatch) -> None:
        """The batch is done, well or not."""
        self.in_flight.discard(batch.partition)
        self.size_bytes -= batch.size_bytes

    def reset_sequences(self) -> None:
        """A new identity counts from zero."""
        self._sequences.clear()

    def clear(self) -> list[PendingBatch]:
        """Take out everything that waits."""
        batches = [batch for queue in self._queues.values() for batch in queue]
        self._queues.clear()
        self.size_bytes -= sum(batch.size_bytes for batch in batches)
        return batches

    @property
    def is_empty(self) -> bool:
        return not self.in_flight and not any(self._queues.values())


def record_size_bytes(record: Record) -> int:
    """What a record will take in a batch, at most, before compression."""
    size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size_bytes += 4 * len(name) + len(value or b"") + 10
    return size_bytes
