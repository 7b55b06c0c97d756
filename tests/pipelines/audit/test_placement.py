"""Offsets that follow each other, and those that do not."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from runnel.pipelines.audit.placement import Hole, Misplaced, Overlap, Placement, Spoilt
from runnel.pipelines.audit.ranges import runs


def events_of(start, end, stretches):
    placement = Placement(start)
    events = [event for first, stop in stretches for event in placement.saw(first, stop)]
    return events + placement.ended(end)


def test_a_log_without_holes_has_no_events():
    assert events_of(0, 30, [(0, 10), (10, 11), (11, 30)]) == []


def test_the_first_batch_may_begin_before_the_log():
    assert events_of(5, 20, [(0, 10), (10, 20)]) == []


def test_holes_are_reported_at_the_start_in_the_middle_and_at_the_end():
    found = events_of(0, 100, [(10, 20), (30, 40), (40, 90)])
    assert found == [Hole(0, 10), Hole(20, 30), Hole(90, 100)]


def test_an_empty_log_that_should_hold_something_is_one_hole():
    assert events_of(3, 9, []) == [Hole(3, 9)]


def test_offsets_that_are_stored_twice_are_reported_once():
    assert events_of(0, 30, [(0, 10), (10, 20), (10, 20), (20, 30)]) == [Overlap(10, 20)]


def test_a_header_with_another_offset_makes_no_hole():
    assert events_of(0, 30, [(0, 10), (2**40, 2**40 + 10), (20, 30)]) == [Misplaced(10, 20, 2**40)]
    assert events_of(0, 30, [(0, 10), (3, 13), (20, 30)]) == [Misplaced(10, 20, 3)]


def test_a_damaged_batch_reaches_to_the_next():
    placement = Placement(0)
    events = placement.saw(0, 10) + placement.spoilt(10) + placement.saw(25, 30) + placement.ended(30)
    assert events == [Spoilt(10, 25)]


def test_a_damaged_batch_at_the_end_reaches_to_the_end():
    placement = Placement(0)
    assert placement.saw(0, 10) + placement.spoilt(10) + placement.ended(30) == [Spoilt(10, 30)]


def test_each_of_two_damaged_batches_is_reported():
    placement = Placement(0)
    events = placement.spoilt(0) + placement.spoilt(10) + placement.saw(20, 30) + placement.ended(30)
    assert events == [Spoilt(0, 10), Spoilt(10, 20)]


def test_what_was_removed_while_reading_is_no_hole():
    placement = Placement(0)
    assert placement.saw(0, 10) + placement.gone(50) + placement.saw(50, 60) + placement.ended(60) == []


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=30))
def test_holes_are_exactly_what_is_missing(parts):
    stretches, missing, offset = [], set[int](), 0
    for size, is_there in parts:
        if is_there:
            stretches.append((offset, offset + size))
        else:
            missing.update(range(offset, offset + size))
        offset += size
    events = events_of(0, offset, stretches)
    reported = {
        place for event in events if isinstance(event, Hole) for place in range(event.first, event.end)
    }
    # A single odd batch with an ordinary one's size behind a hole of that size could as well be misplaced.
    assert all(isinstance(event, Hole | Misplaced) for event in events)
    if not any(isinstance(event, Misplaced) for event in events):
        assert reported == missing


@given(st.sets(st.integers(0, 60)))
def test_runs_cover_exactly_the_offsets(offsets):
    found = runs(offsets)
    assert {place for first, last in found for place in range(first, last + 1)} == offsets
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
