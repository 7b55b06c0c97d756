"""Leader epochs against a list of the epoch of each offset."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.log.epochs import Epochs

runs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=12)
"""Leaders in order: (how much the epoch grows, how many offsets they write)."""


def written(shapes: list[tuple[int, int]]) -> tuple[Epochs, list[int]]:
    epochs = Epochs()
    by_offset: list[int] = []
    epoch = 0
    for growth, count in shapes:
        epoch += growth
        epochs.assign(epoch, len(by_offset))
        by_offset += [epoch] * count
    return epochs, by_offset


@given(runs)
def test_the_epoch_of_each_offset(shapes) -> None:
    epochs, by_offset = written(shapes)
    assert [epochs.epoch_of(offset) for offset in range(len(by_offset))] == by_offset


@given(runs)
def test_offsets_and_epochs_ascend(shapes) -> None:
    entries = written(shapes)[0].entries
    assert [epoch for epoch, _ in entries] == sorted({epoch for epoch, _ in entries})
    assert [start for _, start in entries] == sorted({start for _, start in entries})


@given(runs, st.integers(0, 20))
def test_the_end_of_an_epoch_is_where_a_later_one_begins(shapes, asked: int) -> None:
    epochs, by_offset = written(shapes)
    epoch, end_offset = epochs.end_of(asked, len(by_offset))
    if not epochs.entries or asked > epochs.latest:
        assert (epoch, end_offset) == (-1, -1)
        return
    assert end_offset == sum(1 for one in by_offset if one <= asked)
    assert epoch <= asked


@given(runs, st.integers(0, 30))
def test_truncation_removes_epochs(shapes, end_offset: int) -> None:
    epochs, by_offset = written(shapes)
    epochs.truncate_to(end_offset)
    assert all(start < end_offset for _, start in epochs.entries)
    left = by_offset[:end_offset]
    assert [epochs.epoch_of(offset) for offset in range(len(left))] == left


@given(runs, st.integers(0, 30))
def test_a_log_that_begins_later_keeps_what_is_left(shapes, start_offset: int) -> None:
    epochs, by_offset = written(shapes)
    before = epochs.entries
    changed = epochs.start_at(start_offset)
    assert changed == (epochs.entries != before)
    assert [epochs.epoch_of(offset) for offset in range(start_offset, len(by_offset))] == by_offset[
        start_offset:
    ]
    assert sum(1 for _, start in epochs.entries if start < start_offset) == 0 or not changed


def test_an_older_epoch_changes_nothing() -> None:
    epochs = Epochs()
    assert epochs.assign(5, 0)
    assert not epochs.assign(4, 10)
    assert not epochs.assign(5, 10)
    assert epochs.entries == ((5, 0),)


def test_an_epoch_without_records_is_replaced() -> None:
    epochs = Epochs()
    epochs.assign(1, 0)
    epochs.assign(2, 10)
    assert epochs.assign(3, 10)
    assert epochs.entries == ((1, 0), (3, 10))
