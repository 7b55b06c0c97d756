"""Idempotency keys in batches: which records are the same, and which batches may have a key."""

from typing import Any

import pytest

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import read_header, restamp
from runnel.batch.records import IDEMPOTENCY_KEY_HEADER, Headers, Record
from runnel.log.idempotency import KeyedRecord, keyed_record, stored_keys
from runnel.model.errors import ApiError, ErrorCode, RecordValidationError

KEY = (IDEMPOTENCY_KEY_HEADER, b"k")


def record(
    value: bytes | None = b"v", key: bytes | None = None, headers: Headers = (KEY,), timestamp_ms: int = 1
) -> Record:
    return Record(0, timestamp_ms, key, value, headers)


def read(*records: Record, **options: Any) -> KeyedRecord | None:
    return keyed_record(memoryview(build_batch(records, **options)))


def test_records_without_a_key_are_not_concerned() -> None:
    assert read(record(headers=())) is None
    assert read(record(b"about " + IDEMPOTENCY_KEY_HEADER.encode(), headers=(("other", b"k"),))) is None
    assert (
        read(record(headers=()), record(headers=()), producer_id=7, producer_epoch=0, base_sequence=0) is None
    )


@pytest.mark.parametrize(
    "other",
    [
        record(timestamp_ms=99),
        record(headers=[KEY, ("traceparent", b"00-1-2-3")]),
        record(headers=[("tracestate", b"x"), KEY]),
    ],
)
def test_timestamps_and_traces_do_not_count(other: Record) -> None:
    assert read(other) == read(record()) is not None


@pytest.mark.parametrize("compression", list(Compression))
def test_compression_does_not_count(compression: Compression) -> None:
    big = record(b"x" * 5000)
    assert read(big, compression=compression) == read(big)


@pytest.mark.parametrize(
    "other",
    [
        record(b"w"),
        record(None),
        record(b""),
        record(key=b""),
        record(b"", key=b"v"),
        record(headers=[KEY, ("a", None)]),
        record(headers=[KEY, ("a", b"")]),
        record(headers=[KEY, ("", b"a")]),
        record(headers=[KEY, ("a", b""), ("b", b"")]),
        record(headers=[KEY, ("b", b""), ("a", b"")]),
    ],
    ids=repr,
)
def test_everything_else_counts(other: Record) -> None:
    first, second = read(record()), read(other)
    assert first is not None and second is not None
    assert first.key == second.key and first.fingerprint != second.fingerprint


def test_keys_differ() -> None:
    one, other = read(record()), read(record(headers=[(IDEMPOTENCY_KEY_HEADER, b"l")]))
    assert one is not None and other is not None
    assert one.key != other.key and one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    "records, options, complaint, indexes",
    [
        ([record(headers=()), record()], {}, "must be alone in its batch", [1]),
        ([record(), record()], {}, "must be alone in its batch", [0, 1]),
        (
            [record()],
            {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0},
            "neither idempotent nor transactional",
            [0],
        ),
        ([record(headers=[KEY, KEY])], {}, "is repeated", [0]),
        ([record(headers=[(IDEMPOTENCY_KEY_HEADER, None)])], {}, "1 to 255 bytes", [0]),
        ([record(headers=[(IDEMPOTENCY_KEY_HEADER, b"")])], {}, "1 to 255 bytes", [0]),
        ([record(headers=[(IDEMPOTENCY_KEY_HEADER, b"x" * 256)])], {}, "1 to 255 bytes", [0]),
    ],
)
def test_batches_that_may_not_have_a_key(records, options, complaint, indexes) -> None:
    with pytest.raises(RecordValidationError, match=complaint) as refused:
        read(*records, **options)
    assert refused.value.error is ErrorCode.INVALID_RECORD
    assert refused.value.batch_indexes == indexes


def test_a_batch_with_too_many_headers_is_not_parsed() -> None:
    with pytest.raises(ApiError) as refused:
        read(record(headers=[KEY, *[("", b"")] * 25_000]))
    assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE


def test_what_is_not_sound_is_left_to_validation() -> None:
    whole = build_batch([record()])
    assert keyed_record(memoryview(whole)) is not None
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        found = keyed_record(memoryview(damaged))
        # The base offset and the epoch are not part of the checksum.
        assert found is None or position < 8 or 12 <= position < 16
    assert keyed_record(memoryview(whole)[:-1]) is None
    assert keyed_record(memoryview(b"")) is None


def stored(at: int, *records: Record, append_time_ms: int | None = 50) -> memoryview:
    """A batch as a log has it."""
    batch = build_batch(records, base_offset=at)
    if append_time_ms is not None:
        restamp(batch, 0, read_header(batch), append_time_ms)
    return memoryview(batch)


def test_keys_are_read_from_a_log() -> None:
    batches = [
        stored(3, record()),
        stored(4, record(headers=())),
        stored(5, record(b"w"), append_time_ms=60),
        stored(6, record(), append_time_ms=None),
        stored(7, record(), record()),
        stored(9, record(headers=[KEY, KEY])),
    ]
    found = stored_keys(batches)
    assert found.next_offset == 10
    assert [(key.offset, key.append_time_ms) for key in found.keys] == [(3, 50), (5, 60)]
    assert found.keys[0].record == read(record())


def test_a_damaged_record_is_not_taken_for_one_without_a_key() -> None:
    damaged = stored(3, record())
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        stored_keys([damaged])
