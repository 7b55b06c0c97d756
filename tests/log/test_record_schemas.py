"""The ids that records of a batch have, and which records are refused."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.errors import BatchInflatesTooFar, CorruptBatch
from runnel.batch.records import Record
from runnel.log import record_schemas
from runnel.log.record_schemas import refusal, schema_ids
from runnel.log.validation import RECORD_ERRORS_MAX
from runnel.model.errors import ApiError, ErrorCode, RecordValidationError
from runnel.model.log_config import LogConfig
from runnel.registry.framing import NotFramed, framed, unframed

BOTH = LogConfig(runnel_key_schema_validation=True, runnel_value_schema_validation=True)
VALUES = LogConfig(runnel_value_schema_validation=True)

data = st.none() | st.binary(max_size=8) | st.builds(framed, st.integers(1, 9), st.binary(max_size=9))
pairs = st.lists(st.tuples(data, data), min_size=1, max_size=20)


def batch(records: Sequence[tuple[bytes | None, bytes | None]], compression: int = 0) -> memoryview:
    built = build_batch(
        [Record(index, 1000, key, value) for index, (key, value) in enumerate(records)],
        compression=compression,
    )
    return memoryview(built)


def id_of(framed_data: bytes) -> int:
    try:
        return unframed(framed_data)[0]
    except NotFramed:
        return 0


@given(pairs, st.sampled_from(list(Compression)), st.booleans())
def test_ids_are_found_in_every_record(records, compression, has_keys):
    config = BOTH if has_keys else VALUES
    expected = {"value": {id_of(value) for _, value in records if value is not None}}
    if has_keys:
        expected["key"] = {id_of(key) for key, _ in records if key is not None}
    if not any(0 in ids for ids in expected.values()):
        assert schema_ids(batch(records, compression), config) == expected
        return

    with pytest.raises(RecordValidationError) as refused:
        schema_ids(batch(records, compression), config)
    unframed_records = [
        index
        for index, (key, value) in enumerate(records)
        if (value is not None and not id_of(value)) or (has_keys and key is not None and not id_of(key))
    ]
    assert refused.value.error is ErrorCode.INVALID_RECORD
    assert refused.value.batch_indexes == unframed_records
    assert len(refused.value.messages) == len(unframed_records)
    assert str(refused.value).startswith(f"record {unframed_records[0]} of the batch is refused: the ")


def test_a_refusal_names_records_parts_ids_and_subjects():
    records = [(framed(1, b""), framed(2, b"")), (framed(1, b""), None), (framed(3, b""), framed(4, b""))]
    subjects = {"key": "t-key", "value": "t-value"}
    error = refusal(batch(records), BOTH, {"key": {3}, "value": {2, 4}}, subjects)
    assert error.batch_indexes == [0, 2]
    assert error.messages == [
        "the value has schema 2, which is not registered under t-value",
        "the key has schema 3, which is not registered under t-key; "
        "the value has schema 4, which is not registered under t-value",
    ]


def test_limits(monkeypatch):
    many = [(None, framed(index + 1, b"")) for index in range(20)]
    monkeypatch.setattr(record_schemas, "VALIDATED_IDS_MAX", 19)
    with pytest.raises(ApiError, match="more than 19 schemas"):
        schema_ids(batch(many), VALUES)
    monkeypatch.setattr(record_schemas, "VALIDATED_RECORDS_MAX", 19)
    with pytest.raises(ApiError, match="a batch of 20 records") as refused:
        schema_ids(batch(many), VALUES)
    assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE


def test_not_all_of_very_many_records_are_named():
    with pytest.raises(RecordValidationError) as refused:
        schema_ids(batch([(None, b"x")] * (RECORD_ERRORS_MAX + 5)), VALUES)
    assert refused.value.batch_indexes == list(range(RECORD_ERRORS_MAX))


@pytest.mark.parametrize(
    "compression", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
)
def test_a_batch_that_is_too_large_unpacked_is_not_unpacked(compression):
    large = batch([(None, framed(1, bytes(100_000)))], compression)
    assert schema_ids(large, VALUES) == {"value": {1}}
    with pytest.raises(BatchInflatesTooFar):
        schema_ids(large, VALUES, 65_536)


def test_a_batch_with_a_wrong_checksum_is_corrupt_and_not_invalid():
    records = batch([(None, b"x")])
    records[-3] ^= 1
    with pytest.raises(CorruptBatch):
        schema_ids(records, VALUES)
