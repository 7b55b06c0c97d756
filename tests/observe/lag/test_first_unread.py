"""The first record that a consumer receives, against a walk over all records."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.header import BatchHeader, read_header, restamp, seal
from runnel.batch.records import Record, unpack_records, walk_records
from runnel.observe.lag.first_unread import FirstUnread, first_unread


def batch_at(offset: int, count: int, kept: list[int], timestamp_ms: int, **fields) -> bytearray:
    """A batch of `count` offsets of which compaction has kept some."""
    records = [Record(0, timestamp_ms, b"k", b"v") for _ in range(count)]
    whole = build_batch(records, base_offset=offset, **fields)
    header = read_header(whole)
    raw = unpack_records(whole, header)
    spans = list(walk_records(raw, count))
    payload = b"".join(raw[spans[index][0] : spans[index][1]] for index in kept)
    changed = BatchHeader(*(getattr(header, name) for name in BatchHeader.__slots__))
    changed.record_count = len(kept)
    return seal(changed, payload)


@given(st.lists(st.sampled_from(["plain", "commit", "abort", "gap"]), max_size=12), st.data())
def test_it_is_the_first_that_a_walk_over_all_records_finds(kinds, data):
    batches: list[bytearray] = []
    aborted: list[tuple[int, int]] = []
    visible: list[tuple[int, int]] = []
    offset = 0
    for number, kind in enumerate(kinds):
        if kind == "gap":
            offset += data.draw(st.integers(1, 5))
            continue
        count = data.draw(st.integers(1, 4))
        kept = sorted(data.draw(st.sets(st.integers(0, count - 1))))
        is_transaction = kind != "plain"
        fields = {"transactional": True, "producer_id": number, "producer_epoch": 0} if is_transaction else {}
        timestamp_ms = 1000 + number
        batches.append(batch_at(offset, count, kept, timestamp_ms, **fields))
        if kind == "abort":
            aborted.append((number, offset))
        else:
            visible.extend((offset + index, timestamp_ms) for index in kept)
        offset += count
        if is_transaction:
            marker = EndMarker(kind == "commit", 0)
            built = build_end_marker(marker, producer_id=number, producer_epoch=0, timestamp_ms=timestamp_ms)
            batches.append(batch_of(built, offset))
            offset += 1
    start = data.draw(st.integers(0, offset))
    found = first_unread(
        [memoryview(each) for each in batches if read_header(each).next_offset > start], start, aborted
    )
    expected = next(((at, stamp) for at, stamp in visible if at >= start), None)
    if expected is None:
        assert found.timestamp_ms is None
        assert all(at < found.offset for at, _ in visible) or not visible
        assert found.offset >= start
    else:
        assert (found.offset, found.timestamp_ms) == expected


def batch_of(batch: bytearray, offset: int) -> bytearray:
    batch[:8] = offset.to_bytes(8, "big")
    return batch


def test_the_time_is_the_largest_of_the_batch():
    records = [Record(0, stamp, None, b"v") for stamp in (500, 900, 700)]
    batch = build_batch(records, base_offset=10)
    assert first_unread([memoryview(batch)], 11) == FirstUnread(11, 900, False)
    restamp(batch, 0, read_header(batch), 4000)
    assert first_unread([memoryview(batch)], 11) == FirstUnread(11, 4000, True)
    assert first_unread([], 5) == FirstUnread(5, None)
