"""The records of a batch: as spans of the decompressed bytes, or as values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runnel.batch.compression import decompress
from runnel.batch.errors import BatchInflatesTooFar, CorruptBatch
from runnel.batch.header import HEADER_BYTES, BatchHeader, Buffer, read_header
from runnel.batch.varint import read_varint
from runnel.model.limits import DECOMPRESSED_BATCH_BYTES_MAX

Headers = Sequence[tuple[str, bytes | None]]

IDEMPOTENCY_KEY_HEADER = "runnel-idempotency-key"
"""The header of a record with the key by which it is known if it is sent again."""

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and a header count take a byte each."""


@dataclass(slots=True)
class Record:
    """One record as delivered to consumers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


RecordSpan = tuple[int, int, int, int, int, int, int, int]
"""(start, end, timestamp delta, offset delta, key start, key length, value start, value length);
positions refer to the decompressed records, a length of -1 is null, and headers follow the value."""


def unpack_records(
    batch: Buffer, header: BatchHeader, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> bytes:
    """The batch's records, decompressed, as one byte string."""
    payload = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    return bytes(decompress(payload, header.compression, max_bytes))


def walk_records(raw: bytes, record_count: int) -> Iterator[RecordSpan]:
    """The span of each record; CorruptBatch unless the bytes are exactly `record_count` records."""
    end = len(raw)
    if record_count < 0 or record_count * RECORD_BYTES_MIN > end:
        raise CorruptBatch(f"{end} bytes cannot hold {record_count} records")
    position = 0
    for _ in range(record_count):
        start = position
        length, position = read_varint(raw, position)
        record_end = position + length
        if length < RECORD_BYTES_MIN - 1 or record_end > end:
            raise CorruptBatch(f"invalid record length {length} at position {start}")
        timestamp_delta, position = read_varint(raw, position + 1)
        offset_delta, position = read_varint(raw, position)
        key_length, key_start = read_varint(raw, position)
        key_end = key_start + key_length if key_length > 0 else key_start
        if key_length < -1 or key_end > record_end:
            raise CorruptBatch(f"invalid key length {key_length} in the record at position {start}")
        value_length, value_start = read_varint(raw, key_end)
        value_end = value_start + value_length if value_length > 0 else value_start
        # At least the header count must follow the value.
        if value_length < -1 or value_end >= record_end:
            raise CorruptBatch(f"invalid value length {value_length} in the record at position {start}")
        yield (
            start,
            record_end,
            timestamp_delta,
            offset_delta,
            key_start,
            key_length,
            value_start,
            value_length,
        )
        position = record_end
    if position != end:
        raise CorruptBatch(f"{end - position} trailing bytes after {record_count} records")


def read_pairs(raw: bytes, record_count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """The offset delta, key and value of each record, at half the cost of a Record; CorruptBatch as above."""
    pairs: list[tuple[int, bytes | None, bytes | None]] = []
    end, position = len(raw), 0
    try:
        for _ in range(record_count):
            length, position = read_varint(raw, position)
            record_end = position + length
            # Most numbers are small, and take one byte.
            position += 1
            while raw[position] > 127:
                position += 1
            delta, position = raw[position + 1] >> 1, position + 2
            if raw[position - 1] > 127:
                delta, position = read_varint(raw, position - 1)
            key, position = _read_bytes(raw, position)
            value, position = _read_bytes(raw, position)
            if not position < record_end <= end:
                raise CorruptBatch(f"a record does not match its length, {length}")
            pairs.append((delta, key, value))
            position = record_end
    except IndexError:
        raise CorruptBatch("the records are truncated") from None
    if position != end:
        raise CorruptBatch(f"{end - position} trailing bytes after {record_count} records")
    return pairs


def _read_bytes(raw: bytes, position: int) -> tuple[bytes | None, int]:
    length = raw[position]
    if length < 128 and not length & 1:
        start = position + 1
        end = start + (length >> 1)
        return raw[start:end], end
    length, start = read_varint(raw, position)
    if length < 0:
        return None, start
    return raw[start : start + length], start + length


def iterate_records(batch: Buffer, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> Iterator[Record]:
    """The records of one complete batch; CorruptBatch if they are malformed. The checksum is not verified."""
    header = read_header(batch)
    if header.size_bytes > len(batch):
        raise CorruptBatch(f"the batch is truncated: {len(batch)} of {header.size_bytes} bytes")
    raw = unpack_records(batch, header, max_bytes)
    append_time = header.max_timestamp if header.uses_log_append_time else None
    for (
        _,
        end,
        timestamp_delta,
        offset_delta,
        key_start,
        key_length,
        value_start,
        value_length,
    ) in walk_records(raw, header.record_count):
        value_end = value_start + max(value_length, 0)
        yield Record(
            header.base_offset + offset_delta,
            header.base_timestamp + timestamp_delta if append_time is None else append_time,
            raw[key_start : key_start + key_length] if key_length >= 0 else None,
            raw[value_start:value_end] if value_length >= 0 else None,
            read_headers(raw, value_end, end),
        )


def read_headers(raw: bytes, position: int, end: int, headers_max: int | None = None) -> Headers:
    """The headers of a record, which follow its value. CorruptBatch; BatchInflatesTooFar for too many."""
    if raw[position] == 0 and position + 1 == end:
        return ()
    count, position = read_varint(raw, position)
    if count < 0 or count * 2 > end - position:
        raise CorruptBatch(f"invalid header count {count} in {end - position} bytes")
    if headers_max is not None and count > headers_max:
        raise BatchInflatesTooFar(f"a record has {count} headers, more than {headers_max}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_varint(raw, position)
        if length < 0 or position + length > end:
            raise CorruptBatch(f"invalid header key length {length}")
        name = raw[position : position + length].decode("utf-8", "replace")
        length, position = read_varint(raw, position + length)
        if length < -1 or position + max(length, 0) > end:
            raise CorruptBatch(f"invalid header value length {length}")
        headers.append((name, raw[position : position + length] if length >= 0 else None))
        position += max(length, 0)
    if position != end:
        raise CorruptBatch("a record does not match its length")
    return headers
