"""The transaction index and its lookups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.log.aborted import (
    ENTRY_BYTES,
    AbortedTransaction,
    DamagedAborted,
    collect_aborted,
    decode_aborted,
    encode_aborted,
)

BASE = 10


@st.composite
def histories(draw) -> list[AbortedTransaction]:
    """Transactions that begin and end one event at a time, some of them aborted."""
    open_at: dict[int, int] = {}
    entries = []
    for offset, (producer_id, is_end, is_abort) in enumerate(
        draw(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=60)), start=BASE
    ):
        if not is_end:
            open_at.setdefault(producer_id, offset)
        elif producer_id in open_at:
            first_offset = open_at.pop(producer_id)
            stable_offset = min(open_at.values(), default=offset + 1)
            if is_abort:
                entries.append(AbortedTransaction(producer_id, first_offset, offset, stable_offset))
    return entries


@given(histories())
def test_what_is_written_is_read(entries) -> None:
    data = encode_aborted(entries)
    assert len(data) == ENTRY_BYTES * len(entries)
    assert decode_aborted(data, BASE, BASE + 60) == entries


def test_the_layout_is_kafkas() -> None:
    data = encode_aborted([AbortedTransaction(1, 2, 3, 4)])
    assert data.hex() == "0000" + "".join(f"{number:016x}" for number in (1, 2, 3, 4))


@given(histories(), st.integers(0, 60), st.integers(0, 60))
def test_readers_are_told_all_that_they_meet(entries, start, length) -> None:
    """The twin looks at all entries."""
    first_offset, end_offset = BASE + start, BASE + start + length
    found: list[AbortedTransaction] = []
    collect_aborted(entries, first_offset, end_offset, found)
    twin = [one for one in entries if one.last_offset >= first_offset and one.first_offset < end_offset]
    assert found == twin


@given(histories(), st.integers(0, 40), st.integers(0, 60), st.integers(0, 60))
def test_segment_by_segment_says_the_same(entries, split, start, length) -> None:
    first_offset, end_offset = BASE + start, BASE + start + length
    whole: list[AbortedTransaction] = []
    collect_aborted(entries, first_offset, end_offset, whole)
    found: list[AbortedTransaction] = []
    if not collect_aborted(entries[:split], first_offset, end_offset, found):
        collect_aborted(entries[split:], first_offset, end_offset, found)
    assert found == whole


SOUND = AbortedTransaction(7, 11, 12, 13)


@pytest.mark.parametrize(
    "data",
    [
        encode_aborted([SOUND])[:-1],
        b"\x00\x01" + encode_aborted([SOUND])[2:],
        encode_aborted([SOUND, SOUND]),
        encode_aborted([AbortedTransaction(7, 12, 12, 13)]),
        encode_aborted([AbortedTransaction(7, 1, BASE - 1, 13)]),
        encode_aborted([AbortedTransaction(7, 11, 20, 21)]),
    ],
    ids=["cut off", "version", "twice", "ends where it begins", "before the segment", "behind its end"],
)
def test_what_cannot_be_is_damage(data) -> None:
    with pytest.raises(DamagedAborted):
        decode_aborted(data, BASE, 20)
