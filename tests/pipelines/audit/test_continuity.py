"""Contiguous offsets, gaps and overlaps."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from runnel.pipelines.audit.continuity import DamagedRange, Gap, OffsetContinuity, Overlap, WrongOffset
from runnel.pipelines.audit.ranges import runs


def events_of(start, end, ranges):
    continuity = OffsetContinuity(start)
    events = [event for first, stop in ranges for event in continuity.add(first, stop)]
    return events + continuity.finish(end)


def test_a_contiguous_log_has_no_events():
    assert events_of(0, 30, [(0, 10), (10, 11), (11, 30)]) == []


def test_the_first_batch_may_begin_before_the_log():
    assert events_of(5, 20, [(0, 10), (10, 20)]) == []


def test_gaps_are_reported_at_the_start_in_the_middle_and_at_the_end():
    found = events_of(0, 100, [(10, 20), (30, 40), (40, 90)])
    assert found == [Gap(0, 10), Gap(20, 30), Gap(90, 100)]


def test_an_empty_log_with_an_end_offset_is_one_gap():
    assert events_of(3, 9, []) == [Gap(3, 9)]


def test_offsets_that_are_stored_twice_are_reported_once():
    assert events_of(0, 30, [(0, 10), (10, 20), (10, 20), (20, 30)]) == [Overlap(10, 20)]


def test_a_wrong_base_offset_is_not_a_gap():
    assert events_of(0, 30, [(0, 10), (2**40, 2**40 + 10), (20, 30)]) == [WrongOffset(10, 20, 2**40)]
    assert events_of(0, 30, [(0, 10), (3, 13), (20, 30)]) == [WrongOffset(10, 20, 3)]


def test_a_damaged_batch_reaches_to_the_next():
    continuity = OffsetContinuity(0)
    events = (
        continuity.add(0, 10) + continuity.add_damaged(10) + continuity.add(25, 30) + continuity.finish(30)
    )
    assert events == [DamagedRange(10, 25)]


def test_a_damaged_batch_at_the_end_reaches_to_the_end():
    continuity = OffsetContinuity(0)
    assert continuity.add(0, 10) + continuity.add_damaged(10) + continuity.finish(30) == [
        DamagedRange(10, 30)
    ]


def test_each_of_two_damaged_batches_is_reported():
    continuity = OffsetContinuity(0)
    events = (
        continuity.add_damaged(0)
        + continuity.add_damaged(10)
        + continuity.add(20, 30)
        + continuity.finish(30)
    )
    assert events == [DamagedRange(0, 10), DamagedRange(10, 20)]


def test_offsets_removed_during_the_audit_are_not_a_gap():
    continuity = OffsetContinuity(0)
    assert (
        continuity.add(0, 10) + continuity.skip_removed(50) + continuity.add(50, 60) + continuity.finish(60)
        == []
    )


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=30))
def test_gaps_are_exactly_the_missing_offsets(parts):
    ranges, missing, offset = [], set[int](), 0
    for size, is_there in parts:
        if is_there:
            ranges.append((offset, offset + size))
        else:
            missing.update(range(offset, offset + size))
        offset += size
    events = events_of(0, offset, ranges)
    reported = {
        offset for event in events if isinstance(event, Gap) for offset in range(event.first, event.end)
    }
    # A batch after a gap of its own size is indistinguishable from one with a wrong offset.
    assert all(isinstance(event, Gap | WrongOffset) for event in events)
    if not any(isinstance(event, WrongOffset) for event in events):
        assert reported == missing


@given(st.sets(st.integers(0, 60)))
def test_runs_cover_exactly_the_offsets(offsets):
    found = runs(offsets)
    assert {offset for first, last in found for offset in range(first, last + 1)} == offsets
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
