"""Fetched batches of one partition, and their messages. No I/O."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from runnel.batch.control import read_end_marker
from runnel.batch.errors import BatchInflatesTooFar, CorruptBatch
from runnel.batch.header import BatchHeader, crc_is_valid, walk_headers
from runnel.batch.records import Headers, read_headers, unpack_records, walk_records
from runnel.client.errors import BrokerError, ClientError
from runnel.model.ids import TopicPartition
from runnel.model.limits import DECOMPRESSED_BATCH_BYTES_MAX


@dataclass(slots=True)
class Message:
    """One record with its partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class NoRoom(ClientError):
    """A batch does not fit beside those that are read at the same time."""


@dataclass(slots=True)
class Room:
    """The memory of batches that are decompressed at the same time: a few bytes may become any number."""

    bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX
    batch_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX
    """The bytes of one of them."""
    headers_max: int | None = None
    """Headers of one record."""
    held_bytes: int = 0

    @contextmanager
    def unpacked(self, batch: memoryview, header: BatchHeader) -> Iterator[bytes]:
        """The records of a batch until the end of the block. NoRoom; CorruptBatch if it can never fit."""
        left_bytes = max(self.bytes_max - self.held_bytes, 0)
        try:
            raw = unpack_records(batch, header, min(left_bytes, self.batch_bytes_max))
        except BatchInflatesTooFar:
            if self.held_bytes and left_bytes < self.batch_bytes_max:
                raise NoRoom("too many batches are decompressed at the same time") from None
            raise
        self.held_bytes += len(raw)
        try:
            yield raw
        finally:
            self.held_bytes -= len(raw)


@dataclass(slots=True)
class Chunk:
    """Complete batches of one partition as fetched; the first may begin before `from_offset`."""

    partition: TopicPartition
    records: memoryview
    from_offset: int
    high_watermark: int
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of aborted transactions, which read_committed skips."""
    _next_offset: int = -1

    @property
    def next_offset(self) -> int:
        """The offset of the next fetch, also past control and aborted records."""
        if self._next_offset < 0:
            # Only if it is asked for: a reader of a few messages does not need all headers.
            self._next_offset = end_of(self.partition, self.records, self.from_offset)
        return self._next_offset

    def messages(self, room: Room | None = None) -> Iterator[Message]:
        """The messages from `from_offset` on, without control and aborted records. Raises NoRoom."""
        topic, number = self.partition
        room = room or Room()
        with _as_broker_error(self.partition):
            for position, header in visible_batches(self):
                batch = self.records[position : position + header.size_bytes]
                append_time = header.max_timestamp if header.uses_log_append_time else None
                with room.unpacked(batch, header) as raw:
                    for _, end, later_ms, delta, key, key_length, start, length in walk_records(
                        raw, header.record_count
                    ):
                        offset = header.base_offset + delta
                        if offset < self.from_offset:
                            continue
                        value_end = start + length if length > 0 else start
                        yield Message(
                            topic,
                            number,
                            offset,
                            header.base_timestamp + later_ms if append_time is None else append_time,
                            raw[key : key + key_length] if key_length >= 0 else None,
                            raw[start:value_end] if length >= 0 else None,
                            read_headers(raw, value_end, end, room.headers_max),
                        )


def visible_batches(chunk: Chunk) -> Iterator[tuple[int, BatchHeader]]:
    """The batches with visible messages; verifies their checksums."""
    aborted = sorted(chunk.aborted, key=lambda transaction: transaction[1])
    aborted_producers: set[int] = set()
    for position, header in walk_headers(chunk.records):
        if not crc_is_valid(chunk.records, position, header):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match")
        while aborted and aborted[0][1] <= header.last_offset:
            aborted_producers.add(aborted.pop(0)[0])
        if header.is_control:
            batch = chunk.records[position : position + header.size_bytes]
            if header.producer_id in aborted_producers and read_end_marker(batch) is not None:
                aborted_producers.discard(header.producer_id)
            continue
        is_aborted = header.is_transactional and header.producer_id in aborted_producers
        if not is_aborted and header.next_offset > chunk.from_offset:
            yield position, header


def end_of(partition: TopicPartition, records: memoryview, offset: int) -> int:
    """The offset after the last complete batch in `records`, or `offset` if there is none."""
    with _as_broker_error(partition):
        for _, header in walk_headers(records):
            offset = max(offset, header.next_offset)
    return offset


@contextmanager
def _as_broker_error(partition: TopicPartition) -> Iterator[None]:
    """Raise BrokerError for corrupt batches."""
    try:
        yield
    except CorruptBatch as error:
        raise BrokerError(error.error, f"reading {partition}", str(error)) from error
