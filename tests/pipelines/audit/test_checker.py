"""The checker on synthetic logs: each fault is reported with its offsets, and a valid log passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.header import LOG_APPEND_TIME, SEQUENCE_MAX, patch_offset_and_epoch, read_header, seal
from runnel.pipelines.audit.batch_summary import Tail
from runnel.pipelines.audit.findings import Level
from tests.pipelines.audit.logs import batch, check, reported, summaries

VALID = [batch(0), batch(10, 5), batch(15, 20), batch(35, 1), batch(36, 14)]


def marker(offset, committed, producer_id=7, epoch=0):
    data = build_end_marker(
        EndMarker(committed, 0), producer_id=producer_id, producer_epoch=epoch, timestamp_ms=1_000_000
    )
    patch_offset_and_epoch(data, 0, offset, 0)
    return bytes(data)


def test_a_valid_log_passes():
    result = check(b"".join(VALID), end=50)
    assert result.findings == []
    assert (result.counts.batches, result.counts.records, result.counts.committed) == (5, 50, 50)


def test_a_lost_batch_is_a_lost_range():
    result = check(b"".join(VALID[:2] + VALID[3:]), end=50)
    assert reported(result) == [("lost range", 15, 34)]
    assert result.counts.lost == 20


def test_a_lost_end_is_a_lost_range():
    assert reported(check(b"".join(VALID[:4]), end=50)) == [("lost range", 36, 49)]


@given(st.integers(0, len(b"".join(VALID)) - 1), st.integers(1, 255))
def test_any_changed_byte_is_reported_near_its_offset(position, change):
    data = bytearray(b"".join(VALID))
    data[position] ^= change
    result = check(bytes(data), end=50)
    # Only the leader epoch is covered neither by the checksum nor by the offset checks.
    within = position
    for entry in VALID:
        if within < len(entry):
            break
        within -= len(entry)
    header = read_header(entry)
    if 12 <= within < 16:
        assert reported(result) == []
    else:
        faults = reported(result)
        assert faults, f"byte {within} of the batch at {header.base_offset}"
        assert min(first for _, first, _ in faults) <= header.last_offset
        assert max(last for _, _, last in faults) >= header.base_offset


def test_a_broken_length_hides_no_later_batch():
    data = bytearray(b"".join(VALID))
    data[len(VALID[0]) + 8] = 0x7F
    result = check(bytes(data), end=50)
    assert reported(result) == [("damaged batch", 10, 14)]
    assert result.counts.records == 45


def test_an_incomplete_batch_at_the_end_of_a_response_is_left_to_the_next_fetch():
    data = b"".join(VALID)
    assert [summary.base_offset for summary in summaries(data[:-3], Tail.CONTINUES)] == [0, 10, 15, 35]
    assert summaries(data[:-3], Tail.ENDS)[-1].problem == "torn"
    assert summaries(data[:-3], Tail.CLOSED)[-1].problem == "unreadable"


def test_a_torn_end_is_a_notice_unless_the_log_should_be_longer():
    data = b"".join(VALID)[:-3]
    assert reported(check(data)) == []
    assert reported(check(data), Level.NOTICE) == [("torn end", 36, 36)]
    assert reported(check(data, end=50)) == [("lost range", 36, 49)]


def test_a_batch_written_twice_is_a_duplicate():
    options = {"producer_id": 7, "producer_epoch": 2}
    log = [batch(0, 10, base_sequence=0, **options), batch(10, 5, base_sequence=10, **options)]
    result = check(b"".join([*log, batch(15, 5, base_sequence=10, **options)]))
    assert reported(result) == [("duplicate", 15, 19)]
    assert "at offset 10" in result.findings[0].text
    assert result.counts.duplicates == 5


def test_missing_sequences_are_reported_unless_a_lost_range_explains_them():
    options = {"producer_id": 7, "producer_epoch": 0}
    first, third = batch(0, 10, base_sequence=0, **options), batch(20, 10, base_sequence=20, **options)
    result = check(first + third)
    assert [(str(finding.kind), finding.first_offset) for finding in result.findings] == [("lost range", 10)]
    closer = batch(10, 10, base_sequence=20, **options)
    assert reported(check(first + closer), Level.NOTICE) == [("sequence gap", 10, 19)]


def test_wrapped_sequences_and_restarted_producers_are_not_reported():
    log = [
        batch(0, 10, producer_id=7, producer_epoch=0, base_sequence=SEQUENCE_MAX - 4),
        batch(10, 10, producer_id=7, producer_epoch=0, base_sequence=5),
        batch(20, 10, producer_id=7, producer_epoch=1, base_sequence=0),
        batch(30, 10, producer_id=8, producer_epoch=0, base_sequence=0),
        batch(40, 10),
        batch(50, 10),
    ]
    assert check(b"".join(log)).findings == []


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_markers_leave_no_gap(committed):
    options = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    log = [batch(0, 10, base_sequence=0, **options), marker(10, committed), batch(11, 3)]
    result = check(b"".join(log), end=14)
    assert result.findings == []
    assert (result.counts.committed, result.counts.aborted) == ((13, 0) if committed else (3, 10))
    assert result.counts.control == 1


def test_an_open_transaction_is_a_notice():
    result = check(batch(0, 10, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    assert reported(result, Level.NOTICE) == [("open transaction", 0, 0)]
    assert (result.counts.open, result.counts.committed) == (10, 0)


def test_gaps_are_explained_by_compaction_within_the_cleaned_range():
    log = b"".join([VALID[0], VALID[2], VALID[4]])
    result = check(log, end=50, is_compacted=True)
    assert reported(result) == []
    assert reported(result, Level.EXPLAINED) == [("compacted", 10, 14), ("compacted", 35, 35)]
    assert reported(check(log, end=50, is_compacted=True, cleaned_to=20)) == [("lost range", 35, 35)]


def test_a_batch_with_fewer_records_than_offsets_is_a_fault_unless_compacted():
    header = read_header(VALID[0])
    header.last_offset_delta = 14
    thinned = bytes(seal(header, VALID[0][61:]))
    assert reported(check(thinned, end=15)) == [("records missing in batch", 0, 14)]
    assert reported(check(thinned, end=15, is_compacted=True)) == []


def test_a_thinned_batch_shows_that_a_log_is_compacted():
    header = read_header(VALID[4])
    header.last_offset_delta += 5
    thinned = bytes(seal(header, VALID[4][61:]))
    log = VALID[0] + VALID[2] + thinned
    assert reported(check(log, end=55, may_be_compacted=True, cleaned_to=50)) == []
    # Gaps after the cleaned range are not explained by compaction.
    found = reported(check(log, end=55, may_be_compacted=True, cleaned_to=36))
    assert ("lost range", 10, 14) in found and ("records missing in batch", 36, 54) in found
    assert reported(check(VALID[0] + VALID[2], end=35, may_be_compacted=True)) == [("lost range", 10, 14)]


def test_decreasing_timestamps_are_a_notice_or_a_fault_in_strict_mode():
    log = batch(0, 10, timestamp=5000) + batch(10, 10, timestamp=2000) + batch(20, 10, timestamp=5000)
    assert reported(check(log), Level.NOTICE) == [("time goes back", 10, 10)]
    assert reported(check(log, time_is_strict=True)) == [("time goes back", 10, 10)]


def test_log_append_time_may_decrease_within_the_tolerance():
    def stamped(offset, timestamp):
        data = batch(offset, 10, timestamp=timestamp)
        header = read_header(data)
        header.attributes |= LOG_APPEND_TIME
        return bytes(seal(header, data[61:]))

    assert reported(check(stamped(0, 5000) + stamped(10, 4500))) == []
    assert reported(check(stamped(0, 5000) + stamped(10, 3000))) == [("time goes back", 10, 10)]


def test_a_log_start_offset_above_zero_is_not_a_fault():
    result = check(b"".join(VALID), start=12, end=50)
    assert reported(result) == []
    assert check(b"".join(VALID[1:]), start=12, end=50).findings == []


def test_findings_beyond_the_limit_are_counted():
    log = b"".join(batch(offset, 1) for offset in range(0, 1000, 2))
    result = check(log)
    assert len(result.findings) == 200
    assert result.left_out == {"lost range": 299}
    assert result.counts.lost == 499
