"""The judge over logs made by hand: each fault alone is named with its offsets, and a sound log passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.header import LOG_APPEND_TIME, SEQUENCE_MAX, patch_offset_and_epoch, read_header, seal
from runnel.pipelines.audit.facts import Tail
from runnel.pipelines.audit.findings import Level
from tests.pipelines.audit.logs import batch, facts, judge, reported

SOUND = [batch(0), batch(10, 5), batch(15, 20), batch(35, 1), batch(36, 14)]


def marker(offset, committed, producer_id=7, epoch=0):
    data = build_end_marker(
        EndMarker(committed, 0), producer_id=producer_id, producer_epoch=epoch, timestamp_ms=1_000_000
    )
    patch_offset_and_epoch(data, 0, offset, 0)
    return bytes(data)


def test_a_sound_log_passes():
    verdict = judge(b"".join(SOUND), end=50)
    assert verdict.findings == []
    assert (verdict.counts.batches, verdict.counts.records, verdict.counts.committed) == (5, 50, 50)


def test_a_lost_batch_is_a_lost_range():
    verdict = judge(b"".join(SOUND[:2] + SOUND[3:]), end=50)
    assert reported(verdict) == [("lost range", 15, 34)]
    assert verdict.counts.lost == 20


def test_a_lost_end_is_a_lost_range():
    assert reported(judge(b"".join(SOUND[:4]), end=50)) == [("lost range", 36, 49)]


@given(st.integers(0, len(b"".join(SOUND)) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found_near_where_it_is(position, change):
    data = bytearray(b"".join(SOUND))
    data[position] ^= change
    verdict = judge(bytes(data), end=50)
    # Only a leader epoch is neither summed up nor part of an offset.
    within = position
    for entry in SOUND:
        if within < len(entry):
            break
        within -= len(entry)
    header = read_header(entry)
    if 12 <= within < 16:
        assert reported(verdict) == []
    else:
        faults = reported(verdict)
        assert faults, f"byte {within} of the batch at {header.base_offset}"
        assert min(first for _, first, _ in faults) <= header.last_offset
        assert max(last for _, _, last in faults) >= header.base_offset


def test_a_broken_length_hides_no_later_batch():
    data = bytearray(b"".join(SOUND))
    data[len(SOUND[0]) + 8] = 0x7F
    verdict = judge(bytes(data), end=50)
    assert reported(verdict) == [("damaged batch", 10, 14)]
    assert verdict.counts.records == 45


def test_a_batch_that_an_answer_cuts_off_is_left_for_the_next():
    data = b"".join(SOUND)
    assert [fact.base_offset for fact in facts(data[:-3], Tail.GOES_ON)] == [0, 10, 15, 35]
    assert facts(data[:-3], Tail.ENDS)[-1].problem == "torn"
    assert facts(data[:-3], Tail.CLOSED)[-1].problem == "unreadable"


def test_a_torn_end_is_no_fault_unless_the_log_should_be_longer():
    data = b"".join(SOUND)[:-3]
    assert reported(judge(data)) == []
    assert reported(judge(data), Level.NOTICE) == [("torn end", 36, 36)]
    assert reported(judge(data, end=50)) == [("lost range", 36, 49)]


def test_a_batch_written_twice_is_a_duplicate():
    options = {"producer_id": 7, "producer_epoch": 2}
    log = [batch(0, 10, base_sequence=0, **options), batch(10, 5, base_sequence=10, **options)]
    verdict = judge(b"".join([*log, batch(15, 5, base_sequence=10, **options)]))
    assert reported(verdict) == [("duplicate", 15, 19)]
    assert "at offset 10" in verdict.findings[0].text
    assert verdict.counts.duplicates == 5


def test_missing_sequences_are_reported_unless_a_lost_range_explains_them():
    options = {"producer_id": 7, "producer_epoch": 0}
    first, third = batch(0, 10, base_sequence=0, **options), batch(20, 10, base_sequence=20, **options)
    verdict = judge(first + third)
    assert [(str(finding.kind), finding.first_offset) for finding in verdict.findings] == [("lost range", 10)]
    closer = batch(10, 10, base_sequence=20, **options)
    assert reported(judge(first + closer), Level.NOTICE) == [("sequence gap", 10, 19)]


def test_producers_that_wrap_restart_and_come_back_raise_no_alarm():
    log = [
        batch(0, 10, producer_id=7, producer_epoch=0, base_sequence=SEQUENCE_MAX - 4),
        batch(10, 10, producer_id=7, producer_epoch=0, base_sequence=5),
        batch(20, 10, producer_id=7, producer_epoch=1, base_sequence=0),
        batch(30, 10, producer_id=8, producer_epoch=0, base_sequence=0),
        batch(40, 10),
        batch(50, 10),
    ]
    assert judge(b"".join(log)).findings == []


@pytest.mark.parametrize("committed", [True, False])
def test_transactions_end_without_a_hole(committed):
    options = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    log = [batch(0, 10, base_sequence=0, **options), marker(10, committed), batch(11, 3)]
    verdict = judge(b"".join(log), end=14)
    assert verdict.findings == []
    assert (verdict.counts.committed, verdict.counts.aborted) == ((13, 0) if committed else (3, 10))
    assert verdict.counts.control == 1


def test_a_transaction_that_has_not_ended_is_worth_knowing():
    verdict = judge(batch(0, 10, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    assert reported(verdict, Level.NOTICE) == [("open transaction", 0, 0)]
    assert (verdict.counts.open, verdict.counts.committed) == (10, 0)


def test_holes_of_compaction_are_explained_up_to_where_it_came():
    log = b"".join([SOUND[0], SOUND[2], SOUND[4]])
    verdict = judge(log, end=50, is_compacted=True)
    assert reported(verdict) == []
    assert reported(verdict, Level.EXPLAINED) == [("compacted", 10, 14), ("compacted", 35, 35)]
    assert reported(judge(log, end=50, is_compacted=True, cleaned_to=20)) == [("lost range", 35, 35)]


def test_a_batch_with_fewer_records_than_offsets_is_a_fault_unless_compacted():
    header = read_header(SOUND[0])
    header.last_offset_delta = 14
    thinned = bytes(seal(header, SOUND[0][61:]))
    assert reported(judge(thinned, end=15)) == [("records missing in batch", 0, 14)]
    assert reported(judge(thinned, end=15, is_compacted=True)) == []


def test_a_thinned_batch_shows_that_a_log_is_compacted():
    header = read_header(SOUND[4])
    header.last_offset_delta += 5
    thinned = bytes(seal(header, SOUND[4][61:]))
    log = SOUND[0] + SOUND[2] + thinned
    assert reported(judge(log, end=55, may_be_compacted=True, cleaned_to=50)) == []
    # Where compaction cannot have been, it explains nothing.
    found = reported(judge(log, end=55, may_be_compacted=True, cleaned_to=36))
    assert ("lost range", 10, 14) in found and ("records missing in batch", 36, 54) in found
    assert reported(judge(SOUND[0] + SOUND[2], end=35, may_be_compacted=True)) == [("lost range", 10, 14)]


def test_time_that_goes_back_is_worth_knowing_and_a_fault_if_asked():
    log = batch(0, 10, timestamp=5000) + batch(10, 10, timestamp=2000) + batch(20, 10, timestamp=5000)
    assert reported(judge(log), Level.NOTICE) == [("time goes back", 10, 10)]
    assert reported(judge(log, time_is_strict=True)) == [("time goes back", 10, 10)]


def test_the_brokers_own_clock_may_go_back_a_little():
    def stamped(offset, timestamp):
        data = batch(offset, 10, timestamp=timestamp)
        header = read_header(data)
        header.attributes |= LOG_APPEND_TIME
        return bytes(seal(header, data[61:]))

    assert reported(judge(stamped(0, 5000) + stamped(10, 4500))) == []
    assert reported(judge(stamped(0, 5000) + stamped(10, 3000))) == [("time goes back", 10, 10)]


def test_a_log_cut_by_retention_begins_where_it_begins():
    verdict = judge(b"".join(SOUND), start=12, end=50)
    assert reported(verdict) == []
    assert judge(b"".join(SOUND[1:]), start=12, end=50).findings == []


def test_many_findings_are_counted_not_kept():
    log = b"".join(batch(offset, 1) for offset in range(0, 1000, 2))
    verdict = judge(log)
    assert len(verdict.findings) == 200
    assert verdict.left_out == {"lost range": 299}
    assert verdict.counts.lost == 499
