"""Idempotency keys of records, as they are in batches: the header `runnel-idempotency-key`.

A record with a key is alone in its batch, which has no producer id. Otherwise a duplicate would have to be
cut out of a batch, which changes the offsets of the others; its sequence number would never be stored, so
that the producer's next batch would follow a gap; and the transaction of the first one may be aborted, or not
be decided yet. Producers of such records need no sequences: the key itself identifies the record.

Two records with a key are the same if their keys, values and other headers are. Trace headers do not count,
because a retry may be part of another trace; nor do timestamps, which clients take when they send.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from runnel.batch.checksum import crc32c
from runnel.batch.compression import Compression
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER,
    BatchHeader,
    read_header,
)
from runnel.batch.records import IDEMPOTENCY_KEY_HEADER as KEY_HEADER
from runnel.batch.records import Headers, RecordSpan, read_headers, unpack_records, walk_records
from runnel.batch.varint import read_varint
from runnel.log.validation import RECORD_ERRORS_MAX, inspected
from runnel.model.errors import ApiError, ErrorCode, RecordValidationError
from runnel.model.limits import (
    IDEMPOTENCY_KEY_BYTES_MAX,
    INSPECTED_BATCH_BYTES_MAX,
    INSPECTED_RECORDS_MAX,
)

UNCOMPARED_HEADERS = (KEY_HEADER, "traceparent", "tracestate")

_KEY_HEADER_BYTES = KEY_HEADER.encode()
_DIGEST_BYTES = 16
_length = Struct(">q").pack


class KeyedRecord(NamedTuple):
    """A record with an idempotency key."""

    key: bytes
    """A digest of the key."""
    fingerprint: bytes
    """A digest of everything else."""


class StoredKey(NamedTuple):
    """A record with an idempotency key that is in the log."""

    record: KeyedRecord
    offset: int
    append_time_ms: int
    """By the clock of the leader that appended it."""


@dataclass(slots=True)
class FoundKeys:
    """The keys of some batches."""

    next_offset: int
    """The offset after the last of these batches."""
    keys: list[StoredKey]


def keyed_record(batch: memoryview) -> KeyedRecord | None:
    """The record of a client's batch, if it has a key. ApiError if it may not have one.

    None also if the batch is not sound, with which reason validation refuses it.
    """
    if len(batch) < HEADER_BYTES or batch[MAGIC_POSITION] != MAGIC:
        return None
    header = read_header(batch)
    if header.size_bytes != len(batch) or crc32c(batch[CRC_START:]) != header.crc:
        return None
    if header.compression > Compression.ZSTD or header.record_count <= 0:
        return None
    raw = inspected(batch, header)
    if _KEY_HEADER_BYTES not in raw:
        return None
    spans = list(walk_records(raw, header.record_count))
    keyed = [index for index, headers in enumerate(_all_headers(raw, spans)) if _keys(headers)]
    if not keyed:
        return None
    if header.record_count > 1:
        raise _refused(f"a record with the header {KEY_HEADER} must be alone in its batch", keyed)
    if header.producer_id != NO_PRODUCER:
        why = "must be sent by a producer that is neither idempotent nor transactional"
        raise _refused(f"a record with the header {KEY_HEADER} {why}", keyed)
    return _only_record(raw)


def stored_keys(batches: Iterable[memoryview]) -> FoundKeys:
    """The keys in these batches of a log, of which there is at least one. CorruptBatch if one is damaged."""
    found = FoundKeys(-1, [])
    for batch in batches:
        header = read_header(batch)
        found.next_offset = header.next_offset
        if not _may_have_key(header):
            continue
        if crc32c(batch[CRC_START:]) != header.crc:
            raise CorruptBatch(f"the batch at offset {header.base_offset} does not match its checksum")
        try:
            raw = unpack_records(batch, header, INSPECTED_BATCH_BYTES_MAX)
            if _KEY_HEADER_BYTES not in raw:
                continue
            record = _only_record(raw)
        except ApiError:
            # Written while the topic did not look for keys.
            continue
        if record is not None:
            found.keys.append(StoredKey(record, header.last_offset, header.max_timestamp))
    return found


def _may_have_key(header: BatchHeader) -> bool:
    """Batches with a key have one record, no producer, and the time of their append."""
    is_single = header.record_count == 1 and header.last_offset_delta == 0
    return is_single and header.producer_id == NO_PRODUCER and header.uses_log_append_time


def _only_record(raw: bytes) -> KeyedRecord | None:
    """The record, if it has a key. ApiError if that is not valid."""
    (span,) = walk_records(raw, 1)
    (headers,) = _all_headers(raw, [span])
    keys = _keys(headers)
    if not keys:
        return None
    (key, *more) = keys
    if more:
        raise _refused(f"the header {KEY_HEADER} is repeated", [0])
    if not key or len(key) > IDEMPOTENCY_KEY_BYTES_MAX:
        raise _refused(f"the header {KEY_HEADER} must have 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes", [0])
    return KeyedRecord(blake2b(key, digest_size=_DIGEST_BYTES).digest(), _fingerprint(raw, span, headers))


def _all_headers(raw: bytes, spans: Sequence[RecordSpan]) -> Iterator[Headers]:
    """The headers of records. MESSAGE_TOO_LARGE if there are so many that parsing them takes too long."""
    left = INSPECTED_RECORDS_MAX
    for span in spans:
        start = span[6] + max(span[7], 0)
        left -= read_varint(raw, start)[0]
        if left < 0:
            why = f"a batch with the header {KEY_HEADER} has more than {INSPECTED_RECORDS_MAX} headers"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, why)
        yield read_headers(raw, start, span[1])


def _keys(headers: Headers) -> list[bytes | None]:
    """The values of the header, of which there should be one."""
    return [value for name, value in headers if name == KEY_HEADER]


def _fingerprint(raw: bytes, span: RecordSpan, headers: Headers) -> bytes:
    _, _, _, _, key_start, key_length, value_start, value_length = span
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for start, length in ((key_start, key_length), (value_start, value_length)):
        digest.update(_length(length))
        digest.update(raw[start : start + max(length, 0)])
    for name, value in headers:
        if name not in UNCOMPARED_HEADERS:
            for part in (name.encode(), value):
                digest.update(_length(-1 if part is None else len(part)))
                digest.update(part or b"")
    return digest.digest()


def _refused(reason: str, batch_indexes: list[int]) -> RecordValidationError:
    return RecordValidationError(ErrorCode.INVALID_RECORD, reason, batch_indexes[:RECORD_ERRORS_MAX])
