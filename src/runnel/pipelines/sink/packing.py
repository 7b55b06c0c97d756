"""Rows gathered into record batches per partition: grown to a size, numbered, sealed. No I/O, no clock."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from runnel.batch.compression import Compression, compress
from runnel.batch.header import MAGIC, TRANSACTIONAL, BatchHeader, seal
from runnel.client.accumulator import SEQUENCE_MASK, ProducerIdentity
from runnel.model.ids import TopicPartition
from runnel.pipelines.sink.binary import Numbers
from runnel.pipelines.sink.encoding import encode_records
from runnel.pipelines.sink.partitioning import Group
from runnel.pipelines.sink.rows import Rows

Sealed = tuple[TopicPartition, bytearray]

GROWING_BYTES_MAX = 64 * 1024 * 1024
"""With very many partitions, batches go before they are full: a task's memory is worth more."""


@dataclass(slots=True)
class GrowingBatch:
    """Encoded records of one partition that will be one batch."""

    base_timestamp_ms: int
    max_timestamp_ms: int = -1
    count: int = 0
    payload: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Segment:
    """A run of rows that one batch takes in."""

    partition: TopicPartition
    start: int
    end: int
    batch: GrowingBatch
    first_delta: int


class Packer:
    """Batches per partition under one producer's identity, which counts its records in each partition."""

    def __init__(self, identity: ProducerIdentity, compression: Compression, batch_bytes: int) -> None:
        self._identity = identity
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._growing: dict[TopicPartition, GrowingBatch] = {}
        self._sequences: dict[TopicPartition, int] = {}

    def add(self, rows: Rows, groups: list[Group]) -> Iterator[Sealed]:
        """Take rows in, which stand in the order of their groups; yields the batches that are full."""
        sizes = np.cumsum(rows.sizes)
        segments = [segment for group in groups for segment in self._segments(group, rows, sizes)]
        offset_deltas = np.arange(len(rows), dtype=np.int64)
        bases = np.empty(len(rows), np.int64)
        for segment in segments:
            offset_deltas[segment.start : segment.end] += segment.first_delta - segment.start
            bases[segment.start : segment.end] = segment.batch.base_timestamp_ms
        data, starts = encode_records(rows, rows.timestamps_ms - bases, offset_deltas)
        for segment in segments:
            segment.batch.payload += data[starts[segment.start] : starts[segment.end]]
        for segment in segments:
            if self._growing.get(segment.partition) is not segment.batch:
                yield self._seal(segment.partition, segment.batch)
        if sum(len(batch.payload) for batch in self._growing.values()) > GROWING_BYTES_MAX:
            yield from self.finish()

    def finish(self) -> Iterator[Sealed]:
        """The batches that are still growing."""
        for partition, batch in self._growing.items():
            yield self._seal(partition, batch)
        self._growing.clear()

    def _segments(self, group: Group, rows: Rows, sizes: Numbers) -> Iterator[Segment]:
        """Cut a group where a batch is full; every batch takes one record at least."""
        start = group.start
        while start < group.end:
            batch = self._growing.get(group.partition)
            if batch is None:
                batch = GrowingBatch(int(rows.timestamps_ms[start]))
                self._growing[group.partition] = batch
            before = int(sizes[start - 1]) if start else 0
            room = before + self._batch_bytes - len(batch.payload)
            end = int(np.searchsorted(sizes[: group.end], room, side="right"))
            is_full = end < group.end
            end = max(end, start if batch.count else start + 1)
            if end > start:
                yield Segment(group.partition, start, end, batch, batch.count)
                newest = int(rows.timestamps_ms[start:end].max())
                batch.max_timestamp_ms = max(batch.max_timestamp_ms, newest)
                batch.count += end - start
            if is_full:
                del self._growing[group.partition]
                if end == start:
                    yield Segment(group.partition, start, end, batch, batch.count)
            start = end

    def _seal(self, partition: TopicPartition, batch: GrowingBatch) -> Sealed:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + batch.count) & SEQUENCE_MASK
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=self._compression | (TRANSACTIONAL if self._identity.is_transactional else 0),
            last_offset_delta=batch.count - 1,
            base_timestamp=batch.base_timestamp_ms,
            max_timestamp=batch.max_timestamp_ms,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
            record_count=batch.count,
        )
        return partition, seal(header, compress(batch.payload, self._compression))
