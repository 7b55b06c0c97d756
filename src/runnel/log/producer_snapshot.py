"""Snapshots of the producer state, from which recovery replays only the last segment.

    version 2 · crc 4 (of all that follows) · count 4 · per producer, as in Apache Kafka:
        id 8 · epoch 2 · last sequence 4 · last offset 8 · offset delta 4 · last seen 8 ·
        coordinator epoch 4 · transaction start 8
    mark 4 · per producer:
        batches 1 · per batch:
            base sequence 4 · last sequence 4 · base offset 8 · last offset 8 · max timestamp 8

Kafka stores only the last batch of a producer, and ignores what follows the producers. With all cached
batches, duplicates are detected after a restart. A snapshot of Kafka ends before the mark. Earlier releases
wrote:

    version 2 · crc 4 · count 4 · per producer:
        id 8 · epoch 2 · coordinator epoch 4 · transaction start 8 · last seen 8 · batches 1 · per batch …
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

from runnel.batch.checksum import crc32c
from runnel.batch.header import SEQUENCE_MAX
from runnel.log.producers import BATCHES_REMEMBERED, NO_OFFSET, Producer, WrittenBatch

VERSION = 1
MARK = b"RNL1"

_VERSION = Struct(">hI")
_COUNT = Struct(">i")
_PRODUCER = Struct(">qhiqiqiq")
_BATCH_COUNT = Struct(">b")
_BATCH = Struct(">iiqqq")
_EARLIER_PRODUCER = Struct(">qhiqqb")
_PRODUCERS_AT = _VERSION.size + _COUNT.size


class DamagedSnapshot(Exception):
    """The producer snapshot is damaged; the state is rebuilt from the log."""


def encode_producers(producers: Iterable[Producer]) -> bytes:
    """Encode a snapshot."""
    entries: list[bytes] = []
    rest = [MARK]
    for producer in producers:
        delta = 0
        rest.append(_BATCH_COUNT.pack(len(producer.batches)))
        for batch in producer.batches:
            delta = batch.last_offset - batch.base_offset
            rest.append(
                _BATCH.pack(
                    batch.base_sequence,
                    batch.last_sequence,
                    batch.base_offset,
                    batch.last_offset,
                    batch.max_timestamp,
                )
            )
        entries.append(
            _PRODUCER.pack(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_offset,
                delta,
                # Kafka forgets producers by this time; that of the batch is chosen by its client.
                producer.last_seen_ms,
                producer.coordinator_epoch,
                producer.transaction_start_offset,
            )
        )
    body = b"".join([_COUNT.pack(len(entries)), *entries, *rest])
    return _VERSION.pack(VERSION, crc32c(body)) + body


def check_snapshot(data: bytes) -> None:
    """Verify a snapshot; DamagedSnapshot if it is incomplete or corrupt."""
    if len(data) < _PRODUCERS_AT:
        raise DamagedSnapshot("it is cut off")
    version, crc = _VERSION.unpack_from(data)
    if version != VERSION:
        raise DamagedSnapshot(f"version {version} is not known")
    if crc32c(data[_VERSION.size :]) != crc:
        raise DamagedSnapshot("it does not match its checksum")


def first_open_offset_in(data: bytes) -> int | None:
    """The first offset of the oldest open transaction; DamagedSnapshot if it is incomplete or corrupt."""
    check_snapshot(data)
    (count,) = _COUNT.unpack_from(data, _VERSION.size)
    end = _PRODUCERS_AT + count * _PRODUCER.size
    if data[end : end + len(MARK)] == MARK:
        # Without decoding all of it: a log may have very many producers.
        starts = [each[-1] for each in _PRODUCER.iter_unpack(data[_PRODUCERS_AT:end])]
    else:
        starts = [producer.transaction_start_offset for producer in decode_producers(data)]
    return min((offset for offset in starts if offset != NO_OFFSET), default=None)


def decode_producers(data: bytes) -> list[Producer]:
    """Decode a snapshot; DamagedSnapshot if it is incomplete or corrupt."""
    check_snapshot(data)
    (count,) = _COUNT.unpack_from(data, _VERSION.size)
    end = _PRODUCERS_AT + count * _PRODUCER.size
    try:
        if count >= 0 and data[end : end + len(MARK)] == MARK:
            return _decode(data, count, end + len(MARK))
        earlier = _decode_earlier(data, count)
    except StructError:
        raise DamagedSnapshot("it is cut off") from None
    if earlier is not None:
        return earlier
    if count < 0 or len(data) != end:
        raise DamagedSnapshot("its size is not that of its producers")
    return _decode(data, count, None)


def _decode(data: bytes, count: int, batches_at: int | None) -> list[Producer]:
    """Producers with their batches, or as Kafka stores them."""
    producers = []
    for index in range(count):
        producer_id, epoch, sequence, offset, delta, seen_ms, coordinator_epoch, start_offset = (
            _PRODUCER.unpack_from(data, _PRODUCERS_AT + index * _PRODUCER.size)
        )
        batches: tuple[WrittenBatch, ...] = ()
        if batches_at is not None:
            batches, batches_at = _decode_batches(data, batches_at)
        elif offset >= 0:
            base_sequence = (sequence - delta) & SEQUENCE_MAX if sequence >= 0 else sequence
            batches = (WrittenBatch(base_sequence, sequence, offset - delta, offset, seen_ms),)
        producers.append(Producer(producer_id, epoch, batches, seen_ms, coordinator_epoch, start_offset))
    return producers


def _decode_batches(data: bytes, position: int) -> tuple[tuple[WrittenBatch, ...], int]:
    (count,) = _BATCH_COUNT.unpack_from(data, position)
    position += _BATCH_COUNT.size
    end = position + count * _BATCH.size
    return tuple(WrittenBatch(*_BATCH.unpack_from(data, at)) for at in range(position, end, _BATCH.size)), end


def _decode_earlier(data: bytes, count: int) -> list[Producer] | None:
    """Producers as earlier releases of Runnel stored them; None if this is no such snapshot."""
    producers = []
    position = _PRODUCERS_AT
    for _ in range(count):
        if position + _EARLIER_PRODUCER.size > len(data):
            return None
        *head, batch_count = _EARLIER_PRODUCER.unpack_from(data, position)
        if not 0 <= batch_count <= BATCHES_REMEMBERED:
            return None
        if position + _EARLIER_PRODUCER.size + batch_count * _BATCH.size > len(data):
            return None
        producer_id, epoch, coordinator_epoch, start_offset, seen_ms = head
        batches, position = _decode_batches(data, position + _EARLIER_PRODUCER.size - _BATCH_COUNT.size)
        producers.append(Producer(producer_id, epoch, batches, seen_ms, coordinator_epoch, start_offset))
    return producers if position == len(data) else None
