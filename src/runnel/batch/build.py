"""Building record batches."""

from collections.abc import Iterable

from runnel.batch.compression import Compression, compress
from runnel.batch.header import (
    CONTROL,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    seal,
)
from runnel.batch.records import Headers, Record
from runnel.batch.varint import encode_varint


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = Compression.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """A batch of these records in this order; offsets count up from `base_offset`."""
    payload = bytearray()
    base_timestamp = max_timestamp = NO_TIMESTAMP
    count = 0
    for record in records:
        if count == 0:
            base_timestamp = record.timestamp
        max_timestamp = max(max_timestamp, record.timestamp)
        payload += encode_record(
            record.timestamp - base_timestamp, count, record.key, record.value, record.headers
        )
        count += 1
    if count == 0:
        raise ValueError("a batch needs at least one record")
    attributes = compression | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    return seal(header, compress(payload, compression))


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """One record as encoded in an uncompressed batch, including its length prefix."""
    body = b"".join(
        (
            b"\x00",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            b"\x01" if key is None else encode_varint(len(key)),
            key or b"",
            b"\x01" if value is None else encode_varint(len(value)),
            value or b"",
            _encode_headers(headers) if headers else b"\x00",
        )
    )
    return encode_varint(len(body)) + body


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded_name = name.encode("utf-8")
        parts += (encode_varint(len(encoded_name)), encoded_name)
        parts += (b"\x01", b"") if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)
