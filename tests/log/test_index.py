"""Sparse indexes against the list of their batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.log.index import DamagedIndex, OffsetIndex, TimeIndex

BASE = 1000

batches = st.lists(
    st.tuples(st.integers(1, 50), st.integers(61, 9000), st.booleans()), min_size=1, max_size=60
)  # (records, bytes, is it in the index)


def placed(shapes: list[tuple[int, int, bool]]) -> list[tuple[int, int, int, bool]]:
    """(base offset, last offset, position, is it in the index) of batches that follow each other."""
    found = []
    offset, position = BASE, 0
    for count, size, is_indexed in shapes:
        found.append((offset, offset + count - 1, position, is_indexed))
        offset += count
        position += size
    return found


def offset_index(shapes: list[tuple[int, int, bool]]) -> OffsetIndex:
    index = OffsetIndex(BASE)
    for _, last_offset, position, is_indexed in placed(shapes):
        if is_indexed:
            index.append(last_offset, position)
    return index


@given(batches, st.integers(0, 3500))
def test_walking_from_the_indexed_place_meets_the_batch(shapes, offset: int) -> None:
    target = BASE + offset
    start = offset_index(shapes).position_before(target)
    starts = {position: base for base, _, position, _ in placed(shapes)}
    holders = [position for base, last, position, _ in placed(shapes) if last >= target]
    assert start in starts
    assert not holders or start <= holders[0]


@given(batches, st.integers(0, 600_000))
def test_the_last_indexed_batch_that_begins_in_time(shapes, position: int) -> None:
    indexed = [p for _, _, p, is_indexed in placed(shapes) if is_indexed and p <= position]
    assert offset_index(shapes).position_at_most(position) == (indexed[-1] if indexed else 0)


@given(batches, st.integers(BASE, BASE + 3500))
def test_a_cut_index_is_the_index_of_what_is_left(shapes, end_offset: int) -> None:
    index = offset_index(shapes)
    index.truncate(end_offset)
    twin = OffsetIndex(BASE)
    for _, last_offset, position, is_indexed in placed(shapes):
        if is_indexed and last_offset < end_offset:
            twin.append(last_offset, position)
    assert index.encode() == twin.encode()
    assert len(index) == len(twin)
    assert index.last == twin.last


@given(batches)
def test_the_offset_index_survives_its_file(shapes) -> None:
    index = offset_index(shapes)
    read = OffsetIndex.decode(index.encode(), BASE, 10**9)
    assert read.encode() == index.encode()
    assert [read.position_before(offset) for offset in range(BASE, BASE + 300)] == [
        index.position_before(offset) for offset in range(BASE, BASE + 300)
    ]


def test_an_entry_is_eight_bytes_as_kafka_writes_them() -> None:
    index = OffsetIndex(BASE)
    index.append(BASE + 5, 0x01020304)
    assert index.encode() == bytes([0, 0, 0, 5, 1, 2, 3, 4])


@pytest.mark.parametrize(
    "data",
    [
        bytes(7),
        bytes(16),  # as a power cut leaves a file whose bytes did not arrive
        bytes([0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 10]),
        bytes([0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 6, 0, 0, 0, 8]),
        bytes([0, 0, 0, 5, 0, 0, 1, 0]),
    ],
)
def test_a_damaged_offset_index_is_detected(data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        OffsetIndex.decode(data, BASE, 256)


timed = st.lists(st.tuples(st.integers(0, 1000), st.booleans()), min_size=1, max_size=60)


def time_index(shapes: list[tuple[int, bool]]) -> tuple[TimeIndex, list[int]]:
    """Batches of one record each, and the index with the largest timestamp so far at some of them."""
    index = TimeIndex(BASE)
    timestamps = [timestamp for timestamp, _ in shapes]
    latest, latest_at = -1, 0
    for number, (timestamp, is_indexed) in enumerate(shapes):
        if timestamp > latest:
            latest, latest_at = timestamp, number
        if is_indexed:
            index.append(latest, BASE + latest_at)
    return index, timestamps


@given(timed, st.integers(0, 1000))
def test_no_record_before_the_indexed_offset_is_late_enough(shapes, wanted: int) -> None:
    index, timestamps = time_index(shapes)
    start = index.offset_before(wanted)
    assert all(timestamp < wanted for timestamp in timestamps[: start - BASE])


@given(timed)
def test_the_time_index_survives_its_file(shapes) -> None:
    index, _ = time_index(shapes)
    read = TimeIndex.decode(index.encode(), BASE)
    assert read.encode() == index.encode()
    assert read.last == index.last
    assert len(read) == len(index)


@given(timed, st.integers(BASE, BASE + 70))
def test_a_cut_time_index_tells_of_nothing_behind_the_cut(shapes, end_offset: int) -> None:
    index, _ = time_index(shapes)
    before = len(index)
    index.truncate(end_offset)
    assert index.last is None or index.last[1] < end_offset
    full, _ = time_index(shapes)
    assert full.encode()[: 12 * len(index)] == index.encode()
    assert len(index) == before or full.offset_before(2000) >= end_offset


def test_a_time_entry_is_twelve_bytes_as_kafka_writes_them() -> None:
    index = TimeIndex(BASE)
    index.append(0x0102030405060708, BASE + 9)
    assert index.encode() == bytes([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9])


@pytest.mark.parametrize("data", [bytes(11), bytes(24), bytes(8) + b"\xff" * 4])
def test_a_damaged_time_index_is_detected(data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        TimeIndex.decode(data, BASE)
