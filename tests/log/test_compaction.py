"""Compaction against a model: a dict of last values."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.header import (
    DELETE_HORIZON,
    crc_is_valid,
    patch_offset_and_epoch,
    read_header,
    restamp,
    walk_headers,
)
from runnel.batch.records import Record, iterate_records
from runnel.log.aborted import AbortedTransaction
from runnel.log.compaction import KeyMap, SegmentFacts, group_segments, plan_compaction
from runnel.log.compaction_filter import BatchFilter, TransactionWalk, map_keys
from runnel.log.producers import Producer, WrittenBatch
from runnel.model.log_config import DEDUP_CLOCK_TOLERANCE_MS, LogConfig
from tests.batch.other_clients import AiokafkaBatch
from tests.batch.strategies import compressions

NOW_MS = 1_000_000
DELETE_RETENTION_MS = 1000


def run(steps):
    """Drive a generator of steps to its end, and give back what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def clean(log: bytes, keys: KeyMap, now_ms: int = NOW_MS, producers=(), aborted=()) -> bytes:
    batch_filter = BatchFilter(
        keys, {p.producer_id: p for p in producers}, now_ms, DELETE_RETENTION_MS, TransactionWalk(aborted)
    )
    kept = []
    for position, header in walk_headers(log):
        batch = run(batch_filter.kept(log[position : position + header.size_bytes], header))
        if batch is not None:
            kept.append(bytes(batch))
    return b"".join(kept)


def note(log: bytes, first_dirty: int = 0, memory_bytes: int = 10**6, aborted=()) -> KeyMap:
    keys = KeyMap(memory_bytes)
    transactions = TransactionWalk(aborted)
    for position, header in walk_headers(log):
        if header.next_offset <= first_dirty:
            continue
        if keys.is_full:
            break
        run(map_keys(keys, log[position : position + header.size_bytes], header, transactions))
    return keys


def records_of(log: bytes) -> list[Record]:
    return [
        record
        for position, header in walk_headers(log)
        if not header.is_control
        for record in iterate_records(log[position : position + header.size_bytes])
    ]


def table(log: bytes) -> dict[bytes | None, bytes]:
    """What a reader of the whole log ends up with."""
    state: dict[bytes | None, bytes] = {}
    for record in records_of(log):
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def row(record: Record):
    return record.offset, record.timestamp, record.key, record.value, list(record.headers)


@dataclass
class Writer:
    """Batches one after the other, as a log holds them."""

    log: bytes = b""
    end_offset: int = 0

    def write(self, *pairs, at: int = 500, **settings) -> bytearray:
        records = [Record(0, at + i, key, value, (("h", key),)) for i, (key, value) in enumerate(pairs)]
        return self.add(build_batch(records, **settings))

    def add(self, batch: bytearray) -> bytearray:
        patch_offset_and_epoch(batch, 0, self.end_offset, 3)
        self.end_offset = read_header(batch).next_offset
        self.log += batch
        return batch


short_and_long_keys = st.sampled_from([b"", b"a", b"b", b"c", b"k" * 19, b"k" * 20, b"K" * 50])
pairs = st.tuples(short_and_long_keys, st.none() | st.binary(max_size=20))
batches = st.tuples(st.lists(pairs, min_size=1, max_size=8), compressions, st.booleans())


def written(drawn) -> Writer:
    writer = Writer()
    for number, (rows, compression, is_stamped) in enumerate(drawn):
        records = [
            Record(0, 10 * number + 3 - i, key, value, [("h", key)]) for i, (key, value) in enumerate(rows)
        ]
        batch = build_batch(records, compression=compression)
        if is_stamped:
            restamp(batch, 0, read_header(batch), 700 + number)
        writer.add(batch)
    return writer


@given(st.lists(batches, max_size=12))
def test_one_pass_keeps_exactly_the_last_record_of_each_key(drawn):
    writer = written(drawn)
    cleaned = clean(writer.log, note(writer.log))
    last: dict[bytes | None, Record] = {record.key: record for record in records_of(writer.log)}
    expected = sorted(last.values(), key=lambda record: record.offset)
    assert [row(record) for record in records_of(cleaned)] == [row(record) for record in expected]
    for position, header in walk_headers(cleaned):
        assert crc_is_valid(cleaned, position, header)
        if not header.uses_log_append_time:
            batch = cleaned[position : position + header.size_bytes]
            assert header.max_timestamp == max(record.timestamp for record in iterate_records(batch))


@given(st.lists(batches, max_size=12), st.integers(1, 3), st.lists(st.integers(0, 3000), max_size=6))
def test_many_small_passes_lose_no_key_and_end_like_one(drawn, keys_that_fit, waits):
    """With any memory and any split into passes, a reader ends up with the same table."""
    writer = written(drawn)
    expected = table(writer.log)
    log, first_dirty, now_ms = writer.log, 0, NOW_MS
    for wait_ms in waits:
        now_ms += wait_ms
        keys = note(log, first_dirty, memory_bytes=200 * keys_that_fit)
        log = clean(log, keys, now_ms)
        first_dirty = max(first_dirty, keys.end_offset)
        assert table(log) == expected
        offsets = [record.offset for record in records_of(log)]
        assert offsets == sorted(set(offsets))
        settled = [record.key for record in records_of(log) if record.offset < first_dirty]
        assert len(settled) == len(set(settled))


@given(st.lists(batches, min_size=1, max_size=6))
def test_a_tombstone_is_removed_after_its_retention(drawn):
    writer = written(drawn)
    tombstones = {r.key for r in records_of(clean(writer.log, note(writer.log))) if r.value is None}
    first = clean(writer.log, note(writer.log), NOW_MS)
    keys = note(first)
    early = clean(first, keys, NOW_MS + DELETE_RETENTION_MS - 1)
    assert {r.key for r in records_of(early) if r.value is None} == tombstones
    assert early == first, "a horizon is set once"
    late = clean(first, keys, NOW_MS + DELETE_RETENTION_MS)
    assert all(record.value is not None for record in records_of(late))
    assert table(late) == table(writer.log)


def test_the_horizon_takes_the_base_timestamps_place_and_times_stay():
    writer = Writer()
    writer.write((b"a", b"1"), (b"b", None), (b"c", b"3"), compression=Compression.LZ4)
    cleaned = clean(writer.log, note(writer.log))
    header = read_header(cleaned)
    assert header.attributes & DELETE_HORIZON
    assert header.delete_horizon_ms == NOW_MS + DELETE_RETENTION_MS
    assert [row(record) for record in iterate_records(cleaned)] == [
        row(r) for r in iterate_records(writer.log)
    ]
    # A reader that knows nothing of horizons sees the same times.
    assert [record.timestamp for record in AiokafkaBatch(cleaned)] == [500, 501, 502]


def test_offsets_epoch_and_sequences_of_what_is_kept_do_not_move():
    writer = Writer()
    writer.write((b"x", b"0"))
    writer.write((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), producer_id=5, producer_epoch=1, base_sequence=7)
    cleaned = clean(writer.log, note(writer.log))
    headers = [header for _, header in walk_headers(cleaned)]
    kept = headers[1]
    assert (kept.base_offset, kept.last_offset, kept.leader_epoch) == (1, 3, 3)
    assert (kept.base_sequence, kept.last_sequence, kept.record_count) == (7, 9, 2)


def test_an_untouched_batch_is_copied_byte_by_byte():
    writer = Writer()
    writer.write((b"a", b"1"), (b"b", b"2"), compression=Compression.ZSTD)
    assert clean(writer.log, note(writer.log)) == writer.log


def test_what_was_not_noted_is_not_touched():
    writer = Writer()
    writer.write((b"a", b"1"))
    keys = note(writer.log)
    writer.write((b"a", b"2"), (b"a", b"3"))
    cleaned = clean(writer.log, keys)
    assert [record.value for record in records_of(cleaned)] == [b"1", b"2", b"3"]


def test_a_batch_larger_than_the_key_memory_is_still_cleaned():
    writer = Writer()
    writer.write(*[(b"%d" % (i % 50), b"v") for i in range(100)])
    writer.write((b"0", b"later"))
    keys = note(writer.log, memory_bytes=1)
    assert keys.end_offset == 100
    assert len(records_of(clean(writer.log, keys))) == 51


def test_records_without_a_key_go():
    writer = Writer()
    writer.write((b"a", b"1"))
    writer.add(build_batch([Record(0, 0, None, b"v")]))
    assert [record.key for record in records_of(clean(writer.log, note(writer.log)))] == [b"a"]


def producer(batch: bytearray) -> Producer:
    header = read_header(batch)
    last = WrittenBatch(header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, 0)
    return Producer(header.producer_id, header.producer_epoch, (last,), 0)


def test_a_living_producers_last_batch_stays_without_records():
    writer = Writer()
    sequenced = {"producer_id": 5, "producer_epoch": 2, "compression": Compression.GZIP}
    writer.write((b"a", b"1"), base_sequence=0, **sequenced)
    last = writer.write((b"a", b"2"), (b"a", b"3"), base_sequence=1, **sequenced)
    writer.write((b"a", b"4"))
    cleaned = clean(writer.log, note(writer.log), producers=[producer(last)])
    bare, other = (header for _, header in walk_headers(cleaned))
    assert (bare.record_count, bare.base_offset, bare.last_offset, bare.last_sequence) == (0, 1, 2, 2)
    assert crc_is_valid(cleaned, 0, bare)
    assert list(iterate_records(cleaned)) == []
    assert other.base_offset == 3
    # It stays while the producer lives, and goes with it.
    assert clean(cleaned, note(cleaned), producers=[producer(last)]) == cleaned
    assert [header.base_offset for _, header in walk_headers(clean(cleaned, note(cleaned)))] == [3]


def transaction(writer: Writer, key: bytes, value: bytes, committed: bool) -> AbortedTransaction:
    first_offset = writer.end_offset
    writer.write(
        (key, value), producer_id=9, producer_epoch=0, base_sequence=first_offset, transactional=True
    )
    writer.add(build_end_marker(EndMarker(committed, 1), producer_id=9, producer_epoch=0, timestamp_ms=5))
    return AbortedTransaction(9, first_offset, writer.end_offset - 1, writer.end_offset)


def test_aborted_records_neither_stay_nor_replace_what_was_before():
    writer = Writer()
    writer.write((b"a", b"good"))
    aborted = transaction(writer, b"a", b"bad", committed=False)
    transaction(writer, b"b", b"fine", committed=True)
    keys = note(writer.log, aborted=[aborted])
    cleaned = clean(writer.log, keys, aborted=[aborted])
    assert table(cleaned) == {b"a": b"good", b"b": b"fine"}


def test_an_end_marker_is_removed_after_its_records_and_its_retention():
    writer = Writer()
    aborted = transaction(writer, b"a", b"bad", committed=False)
    writer.write((b"b", b"1"))

    def markers(log):
        return [header.delete_horizon_ms for _, header in walk_headers(log) if header.is_control]

    log = clean(writer.log, note(writer.log, aborted=[aborted]), NOW_MS, aborted=[aborted])
    assert markers(log) == [None], "it was still needed when its records were there"
    log = clean(log, note(log), NOW_MS)
    assert markers(log) == [NOW_MS + DELETE_RETENTION_MS]
    assert markers(clean(log, note(log), NOW_MS + DELETE_RETENTION_MS - 1)) == markers(log)
    assert markers(clean(log, note(log), NOW_MS + DELETE_RETENTION_MS)) == []


def test_an_abort_without_its_marker_does_not_affect_later_records():
    writer = Writer()
    late = AbortedTransaction(9, 0, 1, 2)
    writer.end_offset = 2
    transaction(writer, b"a", b"fine", committed=True)
    cleaned = clean(writer.log, note(writer.log, aborted=[late]), aborted=[late])
    assert table(cleaned) == {b"a": b"fine"}


def test_a_marker_stays_bare_for_a_producer_of_which_nothing_else_is_known():
    writer = Writer()
    writer.add(build_end_marker(EndMarker(True, 1), producer_id=9, producer_epoch=4, timestamp_ms=5))
    writer.write((b"b", b"1"))
    log = clean(writer.log, note(writer.log), NOW_MS)
    for epoch, count in [(4, 2), (5, 1)]:
        known = [Producer(9, epoch, (), 0)]
        late = clean(log, note(log), NOW_MS + DELETE_RETENTION_MS, producers=known)
        headers = [header for _, header in walk_headers(late)]
        assert len(headers) == count and headers[0].record_count == count % 2


def test_control_records_of_other_kinds_stay():
    writer = Writer()
    writer.add(build_batch([Record(0, 0, b"\0\0\0\2", b"\0\0")], control=True))
    assert clean(writer.log, note(writer.log)) == writer.log


def segments(*sizes: int, each: int = 10, timestamps: tuple[int, ...] = ()) -> list[SegmentFacts]:
    return [
        SegmentFacts(i * each, (i + 1) * each, size, *([timestamps[i]] * 2 if timestamps else [0, 0]))
        for i, size in enumerate(sizes)
    ]


COMPACT = LogConfig(cleanup_compact=True)


@pytest.mark.parametrize(
    ("first_dirty", "ratio", "expected"),
    [
        (0, 0.5, (0, 40)),
        (20, 0.49, (20, 40)),
        (20, 0.5, None),
        (30, 0.3, None),
        (40, 0.0, None),
        (35, 0.2, (35, 40)),
    ],
)
def test_a_log_is_due_when_dirty_enough(first_dirty, ratio, expected):
    config = LogConfig(cleanup_compact=True, min_cleanable_dirty_ratio=ratio)
    plan = plan_compaction(segments(1, 1, 1, 1), first_dirty, 40, config, NOW_MS)
    assert (plan and (plan.first_dirty_offset, plan.end_offset)) == expected


def test_only_compacted_logs_with_closed_segments_are_due():
    assert plan_compaction(segments(5), 0, 10, LogConfig(), NOW_MS) is None
    assert plan_compaction([], 0, 10, COMPACT, NOW_MS) is None


def test_unsettled_and_young_segments_wait():
    facts = segments(1, 1, 1, timestamps=(100, 200, 300))
    config = LogConfig(cleanup_compact=True, min_compaction_lag_ms=1000)
    assert plan_compaction(facts, 0, 30, config, 1099) is None
    plan = plan_compaction(facts, 0, 30, config, 1200)
    assert plan is not None and plan.end_offset == 20
    plan = plan_compaction(facts, 0, 29, COMPACT, 5000)
    assert plan is not None and plan.end_offset == 20


def test_segments_wait_while_their_idempotency_keys_are_remembered():
    facts = segments(1, timestamps=(100,))
    config = LogConfig(cleanup_compact=True, min_compaction_lag_ms=1000, dedup_window_ms=5000)
    due_ms = 100 + 5000 + DEDUP_CLOCK_TOLERANCE_MS
    assert plan_compaction(facts, 0, 30, config, due_ms - 1) is None
    assert plan_compaction(facts, 0, 30, config, due_ms) is not None


def test_a_record_from_the_future_does_not_block_a_log_without_lag():
    assert plan_compaction(segments(1, timestamps=(NOW_MS + 99,)), 0, 10, COMPACT, NOW_MS) is not None


def test_a_log_is_overdue_after_the_longest_lag_however_clean():
    config = LogConfig(cleanup_compact=True, max_compaction_lag_ms=1000)
    facts = segments(1000, 1, timestamps=(0, 500))
    assert plan_compaction(facts, 10, 20, config, 1500) is None
    plan = plan_compaction(facts, 10, 20, config, 1501)
    assert plan is not None and plan.is_overdue
    relaxed = plan_compaction(segments(1), 0, 10, COMPACT, 0)
    assert relaxed is not None and plan.urgency > relaxed.urgency


def test_a_checkpoint_beyond_the_log_makes_everything_dirty():
    plan = plan_compaction(segments(1, 1), 21, 20, COMPACT, NOW_MS)
    assert plan is not None and plan.first_dirty_offset == 0


@given(st.lists(st.integers(0, 100), max_size=12), st.integers(0, 130), st.integers(1, 150))
def test_groups_keep_order_and_fit(sizes, end_offset, segment_bytes):
    facts = segments(*sizes)
    groups = group_segments(facts, end_offset, LogConfig(segment_bytes=segment_bytes))
    assert [s for group in groups for s in group] == [s for s in facts if s.base_offset < end_offset]
    for group in groups:
        assert len(group) == 1 or sum(s.size_bytes for s in group) <= segment_bytes
    for left, right in pairwise(groups):
        assert sum(s.size_bytes for s in left) + right[0].size_bytes > segment_bytes


def test_a_group_spans_no_more_offsets_than_an_index_can_hold():
    facts = segments(1, 1, 1, each=2**30)
    assert [len(group) for group in group_segments(facts, 2**40, LogConfig())] == [1, 1, 1]
    facts = segments(1, 1, 1, each=2**29)
    assert [len(group) for group in group_segments(facts, 2**40, LogConfig())] == [3]


def test_equal_digests_and_keys_are_told_apart_by_length():
    keys = KeyMap()
    keys.put(b"x" * 30, 5)
    (stored,) = (key for shard in keys._shards for key in shard)
    assert keys.is_latest(stored[:19], 0)
    assert len(stored) == 20 and keys.is_latest(b"x" * 30, 5) and not keys.is_latest(b"x" * 30, 4)
