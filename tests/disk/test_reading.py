"""Reads of a log, compared with the list of its batches."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.header import HEADER_BYTES, read_header, seal, walk_headers
from runnel.batch.records import iterate_records
from runnel.disk import reading
from runnel.disk.disk_log import DiskLog
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import SENDFILE_BYTES_MIN
from runnel.model.log_config import LogConfig, TimestampType
from runnel.ports.disk import FileSlice, Origin
from tests.disk.world import EVERYTHING, START_MS, Place, append, batch, read_all, run_now, slice_bytes
from tests.stored import stored_batches


def filled(seed: int, count: int = 40, *, config: LogConfig | None = None) -> tuple[DiskLog, list[bytes]]:
    """A log of several segments, and its batches."""
    random = Random(seed)
    _, log = Place(open_files_max=random.choice([1, 3, 100])).open_log(
        config or LogConfig(segment_bytes=4000, index_interval_bytes=random.choice([0, 300, 4096]))
    )
    for _ in range(count):
        values = [bytes(random.randint(0, 200)) for _ in range(random.randint(1, 5))]
        append(
            log,
            batch(
                *values,
                timestamp_ms=START_MS + random.randint(-500, 500),
                compression=random.choice([0, 1, 4]),
            ),
            leader_epoch=log.end_offset // 30,
        )
    return log, read_all(log)


@given(st.integers(0, 10**6), st.data())
def test_a_read_is_the_longest_run_of_whole_batches_that_fits(seed: int, data) -> None:
    log, batches = filled(seed % 20)
    offset = data.draw(st.integers(0, log.end_offset))
    end_offset = data.draw(
        st.sampled_from([read_header(one).base_offset for one in batches] + [log.end_offset])
    )
    max_bytes = data.draw(st.integers(0, 6000))
    at_least_one = data.draw(st.booleans())
    found = slice_bytes(log.read(offset, max_bytes, end_offset, at_least_one=at_least_one))

    wanted = [one for one in batches if read_header(one).next_offset > offset]
    wanted = (
        [one for one in wanted if read_header(one).next_offset <= end_offset] if offset < end_offset else []
    )
    assert b"".join(wanted).startswith(found)
    got = [header for _, header in walk_headers(found)]
    assert sum(header.size_bytes for header in got) == len(found)
    assert len(found) <= max_bytes or (at_least_one and len(got) == 1)
    rest = wanted[len(got) :]
    if rest and not (got and read_header(rest[0]).base_offset in bases(log)):
        assert len(found) + len(rest[0]) > max_bytes
        assert got or not at_least_one


def bases(log: DiskLog) -> set[int]:
    """Where segments begin: one read stays within one segment."""
    return {segment.base_offset for segment in log.segments.segments}


@given(st.integers(0, 10**6), st.integers(1, 3000))
def test_reading_on_from_where_the_last_read_ended_meets_every_batch(seed: int, max_bytes: int) -> None:
    log, batches = filled(seed % 20)
    assert read_all(log, max_bytes) == batches
    assert read_all(log, max_bytes) == batches


@given(st.integers(0, 10**6), st.integers(-700, 700))
def test_the_first_record_not_older_than_a_moment(seed: int, delta_ms: int) -> None:
    log, batches = filled(seed % 20)
    records = [record for one in batches for record in iterate_records(one)]
    wanted = [record for record in records if record.timestamp >= START_MS + delta_ms]
    found = run_now(log.find_timestamp(START_MS + delta_ms, EVERYTHING))
    if not wanted:
        assert found is None
        return
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (wanted[0].offset, wanted[0].timestamp)
    assert found.leader_epoch == log.epoch_of(found.offset)
    assert run_now(log.find_timestamp(START_MS + delta_ms, found.offset)) is None


@given(st.integers(0, 10**6), st.data())
def test_the_youngest_record(seed: int, data) -> None:
    log, batches = filled(seed % 20)
    ends = [read_header(one).next_offset for one in batches]
    end_offset = data.draw(st.sampled_from(ends))
    start_offset = data.draw(st.integers(0, end_offset))
    log.delete_records_before(start_offset)
    records = [record for one in batches for record in iterate_records(one)]
    records = [record for record in records if start_offset <= record.offset < end_offset]
    found = run_now(log.find_max_timestamp(end_offset))
    if not records:
        assert found is None
        return
    youngest = max(records, key=lambda record: record.timestamp)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (youngest.offset, youngest.timestamp)


def test_the_brokers_clock_is_found_too() -> None:
    _, log = Place().open_log(LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    for number in range(5):
        append(log, batch(b"a", b"b", timestamp_ms=START_MS - 5000), now_ms=START_MS + number * 10)
    found = run_now(log.find_timestamp(START_MS + 15, EVERYTHING))
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (4, START_MS + 20)


def test_a_lookup_among_batches_with_false_timestamps_looks_at_so_many_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients can state a timestamp for a batch that none of its records has: a lookup read the whole log."""
    monkeypatch.setattr(reading, "LOOKUP_RECORDS_MAX", 50)
    _, log = Place().open_log()
    for _ in range(20):
        honest = batch(*[b"value"] * 10)
        header = read_header(honest)
        header.max_timestamp = START_MS + 10_000
        append(log, seal(header, honest[HEADER_BYTES:]))
    found = run_now(log.find_timestamp(START_MS + 5000, EVERYTHING))
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (50, START_MS + 10_000), "the first batch beyond the limit"


def test_a_lookup_does_not_decompress_more_than_is_reasonable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOOKUP_BATCH_BYTES_MAX", 1000)
    _, log = Place().open_log()
    append(log, batch(b"a", b"b"))
    append(log, batch(*[bytes(1000)] * 100, timestamp_ms=START_MS + 100, compression=1))
    found = run_now(log.find_timestamp(START_MS + 150, EVERYTHING))
    assert found is not None
    assert found.offset == 2, "the beginning of the batch"


def test_offsets_that_are_not_ours_are_refused() -> None:
    _, log = Place().open_log()
    append(log, batch(b"a", b"b"))
    log.delete_records_before(1)
    for offset in (0, 3):
        with pytest.raises(ApiError) as refused:
            log.read(offset, 100, EVERYTHING, at_least_one=True)
        assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(ApiError):
            stored_batches(log, offset, EVERYTHING)
    assert log.read(2, 100, EVERYTHING, at_least_one=True).size_bytes == 0


def test_what_is_staged_cannot_be_read_yet() -> None:
    _, log = Place().open_log()
    log.stage(memoryview(batch(b"a")), 0, START_MS, Origin.CLIENT)
    with pytest.raises(ApiError):
        log.read(1, 100, EVERYTHING, at_least_one=True)
    assert log.read(0, 100, EVERYTHING, at_least_one=True).size_bytes == 0
    log.write_staged()
    assert log.read(0, 100, EVERYTHING, at_least_one=True).size_bytes > 0


def test_large_reads_go_by_file_and_small_ones_by_bytes() -> None:
    _, log = Place().open_log()
    for _ in range(3):
        append(log, batch(bytes(SENDFILE_BYTES_MIN // 2)))
    found = log.read(0, 10**6, EVERYTHING, at_least_one=True)
    (large,) = found.parts
    (small,) = log.read(0, SENDFILE_BYTES_MIN - 1, EVERYTHING, at_least_one=True).parts
    assert isinstance(large, FileSlice)
    assert isinstance(small, bytes)
    assert slice_bytes(found).startswith(small)
