"""Accumulates rows into record batches per partition: filled, sequenced, sealed. No I/O, no clock."""

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

OPEN_BYTES_MAX = 64 * 1024 * 1024
"""With many partitions, batches are sealed before they are full, to bound the memory of a task."""


@dataclass(slots=True)
class OpenBatch:
    """Encoded records of one partition that are not sealed yet."""

    base_timestamp_ms: int
    max_timestamp_ms: int = -1
    count: int = 0
    payload: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class RowSlice:
    """Consecutive rows that are added to one batch."""

    partition: TopicPartition
    start: int
    end: int
    batch: OpenBatch
    first_delta: int


class Packer:
    """Builds the batches of one producer, with sequence numbers per partition."""

    def __init__(self, identity: ProducerIdentity, compression: Compression, batch_bytes: int) -> None:
        self._identity = identity
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._sequences: dict[TopicPartition, int] = {}

    def add(self, rows: Rows, groups: list[Group]) -> Iterator[Sealed]:
        """Add rows, sorted by group; yields the batches that are full."""
        sizes = np.cumsum(rows.sizes)
        row_slices = [row_slice for group in groups for row_slice in self._row_slices(group, rows, sizes)]
        offset_deltas = np.arange(len(rows), dtype=np.int64)
        bases = np.empty(len(rows), np.int64)
        for row_slice in row_slices:
            offset_deltas[row_slice.start : row_slice.end] += row_slice.first_delta - row_slice.start
            bases[row_slice.start : row_slice.end] = row_slice.batch.base_timestamp_ms
        data, starts = encode_records(rows, rows.timestamps_ms - bases, offset_deltas)
        for row_slice in row_slices:
            row_slice.batch.payload += data[starts[row_slice.start] : starts[row_slice.end]]
        for row_slice in row_slices:
            if self._open.get(row_slice.partition) is not row_slice.batch:
                yield self._seal(row_slice.partition, row_slice.batch)
        if sum(len(batch.payload) for batch in self._open.values()) > OPEN_BYTES_MAX:
            yield from self.finish()

    def finish(self) -> Iterator[Sealed]:
        """Seal the batches that are not full."""
        for partition, batch in self._open.items():
            yield self._seal(partition, batch)
        self._open.clear()

    def _row_slices(self, group: Group, rows: Rows, sizes: Numbers) -> Iterator[RowSlice]:
        """Split a group where a batch is full; every batch takes at least one record."""
        start = group.start
        while start < group.end:
            batch = self._open.get(group.partition)
            if batch is None:
                batch = OpenBatch(int(rows.timestamps_ms[start]))
                self._open[group.partition] = batch
            before = int(sizes[start - 1]) if start else 0
            room = before + self._batch_bytes - len(batch.payload)
            end = int(np.searchsorted(sizes[: group.end], room, side="right"))
            is_full = end < group.end
            end = max(end, start if batch.count else start + 1)
            if end > start:
                yield RowSlice(group.partition, start, end, batch, batch.count)
                newest = int(rows.timestamps_ms[start:end].max())
                batch.max_timestamp_ms = max(batch.max_timestamp_ms, newest)
                batch.count += end - start
            if is_full:
                del self._open[group.partition]
                if end == start:
                    yield RowSlice(group.partition, start, end, batch, batch.count)
            start = end

    def _seal(self, partition: TopicPartition, batch: OpenBatch) -> Sealed:
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
