"""Snapshots of the producer state, from which recovery replays only the last segment.

    version 2 · crc 4 (of all that follows) · count 4 · per producer:
        id 8 · epoch 2 · coordinator epoch 4 · transaction start 8 · last seen 8 · batches 1 · per batch:
            base sequence 4 · last sequence 4 · base offset 8 · last offset 8 · max timestamp 8

Unlike Kafka's snapshot it contains all cached batches, so that duplicates are detected after a restart.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

from runnel.batch.checksum import crc32c
from runnel.log.producers import NO_OFFSET, Producer, WrittenBatch

VERSION = 1

_VERSION = Struct(">hI")
_COUNT = Struct(">i")
_PRODUCER = Struct(">qhiqqb")
_BATCH = Struct(">iiqqq")


class DamagedSnapshot(Exception):
    """The producer snapshot is damaged; the state is rebuilt from the log."""


def encode_producers(producers: Iterable[Producer]) -> bytes:
    """Encode a snapshot."""
    parts: list[bytes] = []
    count = 0
    for producer in producers:
        count += 1
        parts.append(
            _PRODUCER.pack(
                producer.producer_id,
                producer.epoch,
                producer.coordinator_epoch,
                producer.transaction_start_offset,
                producer.last_seen_ms,
                len(producer.batches),
            )
        )
        for batch in producer.batches:
            parts.append(
                _BATCH.pack(
                    batch.base_sequence,
                    batch.last_sequence,
                    batch.base_offset,
                    batch.last_offset,
                    batch.max_timestamp,
                )
            )
    body = b"".join([_COUNT.pack(count), *parts])
    return _VERSION.pack(VERSION, crc32c(body)) + body


def check_snapshot(data: bytes) -> None:
    """Verify a snapshot; DamagedSnapshot if it is incomplete or corrupt."""
    if len(data) < _VERSION.size + _COUNT.size:
        raise DamagedSnapshot("it is cut off")
    version, crc = _VERSION.unpack_from(data)
    if version != VERSION:
        raise DamagedSnapshot(f"version {version} is not known")
    if crc32c(data[_VERSION.size :]) != crc:
        raise DamagedSnapshot("it does not match its checksum")


def first_open_offset_in(data: bytes) -> int | None:
    """The first offset of the oldest open transaction of a valid snapshot, without decoding all of it."""
    (count,) = _COUNT.unpack_from(data, _VERSION.size)
    position = _VERSION.size + _COUNT.size
    first: int | None = None
    for _ in range(count):
        _, _, _, start_offset, _, batch_count = _PRODUCER.unpack_from(data, position)
        position += _PRODUCER.size + batch_count * _BATCH.size
        if start_offset != NO_OFFSET and (first is None or start_offset < first):
            first = start_offset
    return first


def decode_producers(data: bytes) -> list[Producer]:
    """Decode a snapshot; DamagedSnapshot if it is incomplete or corrupt."""
    check_snapshot(data)
    try:
        (count,) = _COUNT.unpack_from(data, _VERSION.size)
        position = _VERSION.size + _COUNT.size
        producers: list[Producer] = []
        for _ in range(count):
            producer_id, epoch, coordinator_epoch, start_offset, seen_ms, batch_count = _PRODUCER.unpack_from(
                data, position
            )
            position += _PRODUCER.size
            batches = tuple(
                WrittenBatch(*_BATCH.unpack_from(data, position + index * _BATCH.size))
                for index in range(batch_count)
            )
            position += batch_count * _BATCH.size
            producers.append(Producer(producer_id, epoch, batches, seen_ms, coordinator_epoch, start_offset))
    except StructError:
        raise DamagedSnapshot("it is cut off") from None
    return producers
