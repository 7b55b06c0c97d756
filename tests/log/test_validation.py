"""Validation of batches: error codes and conversions."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression, compress
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import HEADER_BYTES, crc_is_valid, pack_header, read_header, seal
from runnel.batch.records import Record, iterate_records
from runnel.log.validation import (
    RECORD_ERRORS_MAX,
    ValidBatch,
    plain_batch,
    takes_plain_batches,
    validate,
    validate_copies,
)
from runnel.model.errors import ApiError, ErrorCode, RecordValidationError
from runnel.model.limits import INSPECTED_BATCH_BYTES_MAX, INSPECTED_RECORDS_MAX, NAMED_RECORDS_MAX
from runnel.model.log_config import HOUR_MS, LogConfig, TimestampType
from tests.batch.strategies import compressions, record_lists

NOW_MS = 1_700_000_000_000
PLAIN = LogConfig()
COMPACTED = LogConfig(cleanup_compact=True, cleanup_delete=False)


def records(count: int = 3, timestamp: int = NOW_MS) -> list[Record]:
    return [Record(i, timestamp + i, b"key", b"value") for i in range(count)]


def check(batch: bytes | bytearray, config: LogConfig = PLAIN, from_client: bool = True) -> ValidBatch:
    return validate(memoryview(batch), config, NOW_MS, from_client=from_client)


def error_of(batch: bytes | bytearray, config: LogConfig = PLAIN, from_client: bool = True) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        check(batch, config, from_client)
    return caught.value.error


def resealed(batch: bytearray, **changes: int) -> bytearray:
    """The batch with other header fields and a checksum that fits them."""
    header = read_header(batch)
    for name, value in changes.items():
        setattr(header, name, value)
    return seal(header, batch[61:])


def test_an_ordinary_batch_stays_in_its_own_memory():
    batch = build_batch(records(), compression=Compression.LZ4)
    valid = check(batch)
    valid.data[0:8] = (42).to_bytes(8, "big")
    assert read_header(batch).base_offset == 42
    assert valid.log_append_time_ms == -1


def test_a_batch_in_read_only_memory_is_copied_not_refused():
    valid = check(bytes(build_batch(records())))
    valid.data[0] = 1


def test_the_ordinary_batch_is_not_unpacked():
    header = read_header(build_batch(records(), compression=Compression.ZSTD))
    check(seal(header, b"this is no zstd frame"))


@pytest.mark.parametrize("cut", [1, 30, 60, 70])
def test_a_cut_off_batch_is_refused_for_good(cut):
    assert error_of(build_batch(records())[:-cut]) is ErrorCode.INVALID_RECORD


def test_damage_is_corrupt():
    batch = build_batch(records())
    batch[-1] ^= 1
    assert error_of(batch) is ErrorCode.CORRUPT_MESSAGE


def test_unknown_formats_are_corrupt_and_old_ones_invalid():
    for magic, error in [(0, "INVALID_RECORD"), (1, "INVALID_RECORD"), (3, "CORRUPT_MESSAGE")]:
        batch = build_batch(records())
        batch[16] = magic
        assert error_of(batch) is ErrorCode[error]


def test_exactly_one_batch_is_taken():
    assert error_of(b"") is ErrorCode.INVALID_RECORD
    assert error_of(build_batch(records()) + build_batch(records())) is ErrorCode.INVALID_RECORD


def test_sizes_are_bounded_by_message_and_segment():
    batch = build_batch(records())
    exact = LogConfig(max_message_bytes=len(batch), segment_bytes=len(batch))
    check(batch, exact)
    assert error_of(batch, LogConfig(max_message_bytes=len(batch) - 1)) is ErrorCode.MESSAGE_TOO_LARGE
    assert error_of(batch, LogConfig(segment_bytes=len(batch) - 1)) is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"record_count": 0}, "INVALID_RECORD"),
        ({"record_count": -1}, "INVALID_RECORD"),
        ({"record_count": 2}, "INVALID_RECORD"),
        ({"last_offset_delta": 7}, "INVALID_RECORD"),
        ({"last_offset_delta": -1}, "INVALID_RECORD"),
        ({"attributes": 5}, "UNSUPPORTED_COMPRESSION_TYPE"),
        ({"attributes": 0x20}, "INVALID_RECORD"),
        ({"attributes": 0x40}, "INVALID_RECORD"),
        ({"attributes": 0x08}, "INVALID_TIMESTAMP"),
        ({"base_offset": 1}, "INVALID_RECORD"),
        ({"producer_id": 9}, "INVALID_RECORD"),
        ({"producer_id": 9, "base_sequence": 0}, "INVALID_RECORD"),
        ({"max_timestamp": NOW_MS + HOUR_MS + 1}, "INVALID_TIMESTAMP"),
    ],
)
def test_header_fields_that_clients_may_not_set(changes, error):
    assert error_of(resealed(build_batch(records()), **changes)) is ErrorCode[error]


def test_timestamps_may_lie_ahead_as_far_as_allowed():
    check(build_batch([Record(0, NOW_MS + HOUR_MS, None, b"")]))


def test_a_coordinator_may_write_control_records_and_old_timestamps():
    batch = build_batch([Record(0, 5, b"\0\0\0\1", b"\0\0\0\0\0\1")], control=True)
    config = LogConfig(message_timestamp_before_max_ms=1, cleanup_compact=True)
    assert check(batch, config, from_client=False).header.is_control


@pytest.mark.parametrize("compression", Compression)
def test_a_compacted_topic_needs_keys(compression):
    whole = [Record(0, NOW_MS, b"", b"v"), Record(1, NOW_MS, b"k", None)]
    check(build_batch(whole, compression=compression), COMPACTED)
    lacking = [*whole, Record(2, NOW_MS, None, b"v")]
    assert error_of(build_batch(lacking, compression=compression), COMPACTED) is ErrorCode.INVALID_RECORD


def batch_indexes(batch: bytearray, config: LogConfig = PLAIN) -> list[int]:
    with pytest.raises(RecordValidationError) as caught:
        check(batch, config)
    return caught.value.batch_indexes


@pytest.mark.parametrize("compression", Compression)
def test_the_records_to_blame_are_named_by_their_place(compression):
    keys = [b"k", None, b"", None]
    sent = [Record(i, NOW_MS, key, b"v") for i, key in enumerate(keys)]
    assert batch_indexes(build_batch(sent, compression=compression), COMPACTED) == [1, 3]
    ahead = [Record(i, NOW_MS + i * HOUR_MS, None, b"v") for i in range(4)]
    assert batch_indexes(build_batch(ahead, compression=compression)) == [2, 3]
    behind = [Record(i, NOW_MS - i * HOUR_MS, None, b"v") for i in range(4)]
    config = LogConfig(message_timestamp_before_max_ms=HOUR_MS)
    assert batch_indexes(build_batch(behind, compression=compression), config) == [2, 3]


def test_a_refusal_does_not_grow_with_its_batch():
    sent = [Record(i, NOW_MS, None, b"v") for i in range(2 * RECORD_ERRORS_MAX)]
    assert batch_indexes(build_batch(sent), COMPACTED) == list(range(RECORD_ERRORS_MAX))


@pytest.mark.parametrize("compression", Compression)
def test_few_records_are_looked_at_to_name_those_that_are_ahead(compression):
    """A batch of a few kilobytes may hold millions of records, none as late as its maximum timestamp."""
    late = NOW_MS + 2 * HOUR_MS
    sent = [Record(i, NOW_MS, None, b"") for i in range(NAMED_RECORDS_MAX)]
    sent += [Record(i, late, None, b"") for i in range(NAMED_RECORDS_MAX)]
    assert batch_indexes(build_batch(sent, compression=compression)) == []
    bomb = [Record(0, late, None, bytes(INSPECTED_BATCH_BYTES_MAX))]
    if compression:
        assert batch_indexes(build_batch(bomb, compression=compression)) == []


BEFORE = LogConfig(message_timestamp_before_max_ms=HOUR_MS)


@pytest.mark.parametrize("config", [COMPACTED, BEFORE], ids=["compacted", "timestamps"])
def test_a_batch_with_more_records_than_can_be_looked_at_is_refused(config):
    one = build_batch([Record(0, NOW_MS, b"", b"")])
    header = read_header(one)
    for count in (INSPECTED_RECORDS_MAX, INSPECTED_RECORDS_MAX + 1):
        header.record_count, header.last_offset_delta = count, count - 1
        batch = seal(header, one[61:] * count)
        if count > INSPECTED_RECORDS_MAX:
            assert error_of(batch, config) is ErrorCode.MESSAGE_TOO_LARGE
        else:
            check(batch, config)


@pytest.mark.parametrize("config", [COMPACTED, BEFORE, LogConfig(compression_type="lz4")])
def test_a_batch_that_decompresses_to_more_than_can_be_looked_at_is_refused(config):
    value = bytes(INSPECTED_BATCH_BYTES_MAX)
    batch = build_batch([Record(0, NOW_MS, b"key", value)], compression=Compression.ZSTD)
    assert error_of(batch, config) is ErrorCode.MESSAGE_TOO_LARGE
    check(batch)


def test_malformed_records_for_a_compacted_topic_are_corrupt():
    batch = build_batch(records(), compression=Compression.GZIP)
    assert error_of(seal(read_header(batch), b"no gzip"), COMPACTED) is ErrorCode.CORRUPT_MESSAGE


def test_the_oldest_record_is_held_to_the_bound_on_old_timestamps():
    config = LogConfig(message_timestamp_before_max_ms=1000)
    check(build_batch([Record(0, NOW_MS, None, b""), Record(1, NOW_MS - 1000, None, b"")]), config)
    old = build_batch([Record(0, NOW_MS, None, b""), Record(1, NOW_MS - 1001, None, b"")])
    assert error_of(old, config) is ErrorCode.INVALID_TIMESTAMP
    check(build_batch([Record(0, -1, None, b"")]), config)


def test_log_append_time_replaces_the_producers_and_forgives_them():
    config = LogConfig(
        message_timestamp_type=TimestampType.LOG_APPEND_TIME, message_timestamp_before_max_ms=1
    )
    valid = check(build_batch(records(timestamp=5)), config)
    assert valid.log_append_time_ms == NOW_MS
    assert crc_is_valid(valid.data, 0, valid.header)
    assert {record.timestamp for record in iterate_records(valid.data)} == {NOW_MS}


@given(record_lists(), compressions, compressions)
def test_a_topics_compression_repacks_and_changes_nothing_else(sent, given_, wanted):
    name = "uncompressed" if wanted is Compression.NONE else wanted.name.lower()
    batch = build_batch(sent, compression=given_, producer_id=3, producer_epoch=1, base_sequence=8)
    before = read_header(batch)
    valid = validate(memoryview(batch), LogConfig(compression_type=name), 2**46, from_client=True)
    assert crc_is_valid(valid.data, 0, valid.header)
    assert valid.header == read_header(valid.data)
    assert valid.header.compression == wanted
    assert list(iterate_records(valid.data)) == list(iterate_records(build_batch(sent)))
    for field in ("producer_id", "producer_epoch", "base_sequence", "record_count", "max_timestamp"):
        assert getattr(valid.header, field) == getattr(before, field)


@pytest.mark.parametrize(
    ("name", "size_bytes", "level"),
    [
        ("gzip", 100_000, 9),
        ("gzip", 500_000, 6),
        ("gzip", 3_000_000, 2),
        ("gzip", 10_000_000, 1),
        ("lz4", 100_000, 17),
        ("lz4", 1_000_000, 8),
        ("lz4", 3_000_000, 1),
        ("zstd", 100_000, 22),
        ("zstd", 250_000, 15),
        ("zstd", 1_500_000, 9),
        ("zstd", 4_000_000, 3),
        ("zstd", 10_000_000, 1),
    ],
)
def test_large_batches_are_repacked_with_a_lower_level(name, size_bytes, level):
    """One megabyte took the slowest compressor half a second, during which no client was served."""
    config = LogConfig(
        compression_type=name,
        compression_gzip_level=9,
        compression_lz4_level=17,
        compression_zstd_level=22,
        max_message_bytes=2**30,
    )
    # Words that repeat unevenly, so that levels differ.
    text = b" ".join(Random(1).choices([b"north", b"south", b"east", b"west"], k=20_000))
    value = (text * (size_bytes // len(text) + 1))[: size_bytes - 100]
    batch = build_batch([Record(0, 5, None, value)])
    stored = validate(memoryview(batch), config, 2**46, from_client=True).data
    expected = compress(bytes(batch[HEADER_BYTES:]), Compression.from_name(name), level)
    assert bytes(stored[HEADER_BYTES:]) == bytes(expected)


def test_a_batch_that_grows_beyond_the_limit_by_repacking_is_too_large():
    batch = build_batch([Record(0, NOW_MS, None, bytes(10_000))], compression=Compression.ZSTD)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=5_000)
    assert error_of(batch, config) is ErrorCode.MESSAGE_TOO_LARGE


@given(
    record_lists(max_size=3), compressions, st.sampled_from(["producer", "gzip", "uncompressed"]), st.data()
)
def test_any_bytes_are_accepted_or_rejected(sent, compression, wanted, data):
    batch = bytearray(build_batch(sent, compression=compression))
    for _ in range(data.draw(st.integers(0, 5))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and batch[16] == 2:
        batch = seal(read_header(build_batch(sent)), batch[61:])
    config = LogConfig(cleanup_compact=data.draw(st.booleans()), compression_type=wanted)
    try:
        valid = check(batch, config)
    except ApiError:
        return
    assert crc_is_valid(valid.data, 0, valid.header)


def test_copies_keep_their_offsets_and_a_cut_off_last_one_waits():
    first, second = (build_batch(records(), base_offset=offset, leader_epoch=4) for offset in (10, 20))
    batches = validate_copies(memoryview(first + second + first[:40]), 10, 4, 4)
    assert [(batch.header.base_offset, batch.header.leader_epoch) for batch in batches] == [(10, 4), (20, 4)]
    assert [bytes(batch.data) for batch in batches] == [bytes(first), bytes(second)]


def test_copies_that_are_damaged_or_go_back_are_corrupt():
    first, second = (build_batch(records(), base_offset=offset) for offset in (10, 12))
    with pytest.raises(CorruptBatch):
        validate_copies(memoryview(first + second), 10, -1, 9)
    with pytest.raises(CorruptBatch):
        validate_copies(memoryview(first), 11, -1, 9)
    first[-1] ^= 1
    with pytest.raises(CorruptBatch):
        validate_copies(memoryview(first), 10, -1, 9)


def test_copies_continue_the_epochs_of_the_log_up_to_the_one_in_which_they_were_fetched():
    def offsets(epochs: list[int], epoch: int, epoch_max: int) -> list[int]:
        data = bytearray()
        for number, leader_epoch in enumerate(epochs):
            data += build_batch(records(), base_offset=10 * number, leader_epoch=leader_epoch)
        return [batch.base_offset for batch in validate_copies(memoryview(data), 0, epoch, epoch_max)]

    assert offsets([3, 4, 5], 3, 4) == [0, 10], "KAFKA-18723"
    assert offsets([5], 3, 4) == []
    assert offsets([-1, 4], 3, 4) == [0, 10], "batches of old releases have no epoch"
    for epochs in ([2], [3, 4, 3]):
        with pytest.raises(CorruptBatch):
            offsets(epochs, 3, 4)


HEADER_VALUES = {
    "base_offset": [-1, 0, 1],
    "batch_length": [-1, 0, 48, 49, 1_000, 2**31 - 1],
    "magic": [-128, -1, 0, 1, 2, 3, 127],
    "attributes": [-(2**15), -1, 0, 1, 4, 5, 7, 8, 16, 32, 64, 128, 2**15 - 1],
    "last_offset_delta": [-(2**31), -1, 0, 1, 2, 3, 2**31 - 1],
    "record_count": [-(2**31), -1, 0, 1, 2, 3, 4, 2**31 - 1],
    "max_timestamp": [-1, 0, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, 2**63 - 1],
    "producer_id": [-2, -1, 0, 1],
    "producer_epoch": [-1, 0],
    "base_sequence": [-1, 0],
    "crc": [0, 1, 2**32 - 1],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in HEADER_VALUES.items() for value in values]
)
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_plain_batch_is_one_that_validation_accepts_as_it_is(field, value, is_sealed):
    batch = build_batch(records())
    header = read_header(batch)
    setattr(header, field, value)
    data = seal(header, batch[61:]) if is_sealed else bytearray(pack_header(header) + batch[61:])
    config = LogConfig(message_timestamp_after_max_ms=HOUR_MS)
    found = plain_batch(memoryview(data), 1_000_000, NOW_MS + HOUR_MS)
    if found is not None:
        valid = check(bytearray(data), config)
        assert valid.data == data and valid.log_append_time_ms == -1
        assert found == (valid.header.last_offset_delta, valid.header.max_timestamp)
        assert valid.header.producer_id == -1


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup_compact": True},
        {"compression_type": "lz4"},
        {"message_timestamp_type": TimestampType.LOG_APPEND_TIME},
        {"message_timestamp_before_max_ms": HOUR_MS},
    ],
)
def test_topics_whose_settings_concern_records_take_no_plain_batches(settings):
    assert takes_plain_batches(LogConfig())
    assert not takes_plain_batches(LogConfig(**settings))


def test_plain_batches_are_bounded_and_writable():
    batch = build_batch(records())
    size = len(batch)
    assert plain_batch(memoryview(batch), size, NOW_MS + 10)
    assert plain_batch(memoryview(batch), size - 1, NOW_MS + 10) is None
    assert plain_batch(memoryview(bytes(batch)), size, NOW_MS + 10) is None
    assert plain_batch(memoryview(batch)[:-1], size, NOW_MS + 10) is None
    assert plain_batch(memoryview(batch)[:60], size, NOW_MS + 10) is None
