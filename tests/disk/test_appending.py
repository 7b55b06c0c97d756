"""Staging and writing: offsets, rolls, duplicates, and writes that fail partly."""

import errno
from random import Random

import pytest

from runnel.batch.build import build_batch
from runnel.batch.header import patch_offset_and_epoch, read_header
from runnel.batch.records import Record
from runnel.disk.disk_log import DiskLog
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.model.log_config import HOUR_MS, LogConfig
from runnel.ports.disk import Origin, Staged
from runnel.sim.files import SimFiles
from tests.disk.world import START_MS, Place, append, batch, commit, offsets_of, read_all


def stage(log: DiskLog, data: bytes | bytearray, *, leader_epoch: int = 0) -> Staged:
    return log.stage(memoryview(bytearray(data)), leader_epoch, START_MS, Origin.CLIENT)


def names(log: DiskLog, suffix: str) -> list[str]:
    return sorted(n for n in log.segments.files.names(log.segments.folder) if n.endswith(suffix))


def test_offsets_and_epoch_are_patched_into_the_senders_memory() -> None:
    _, log = Place().open_log()
    append(log, batch(b"a", b"b", b"c"))
    data = batch(b"d")
    staged = log.stage(memoryview(data), 7, START_MS, Origin.CLIENT)
    assert (staged.base_offset, staged.last_offset, staged.log_append_time_ms) == (3, 3, -1)
    assert (log.end_offset, log.written_offset) == (4, 3)
    log.write_staged()
    assert (log.end_offset, log.written_offset, log.durable_offset) == (4, 4, 0)
    assert read_all(log)[-1] == data
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (3, 7)
    assert log.epoch_end(0) == (0, 3)


def any_batch(random: Random) -> bytearray:
    """Mostly ordinary batches; some damaged, too large, from the future, or of an idempotent producer."""
    kind = random.randrange(10)
    values = [b"v" * random.randrange(80) for _ in range(random.randrange(1, 4))]
    if kind == 0:
        data = batch(*values)
        data[-1] ^= 1
        return data
    if kind == 1:
        return batch(b"x" * 3_000)
    if kind == 2:
        return batch(*values, timestamp_ms=START_MS + 2 * HOUR_MS)
    if kind == 3:
        return batch(b"v", producer_id=7, producer_epoch=0, base_sequence=random.randrange(3))
    return batch(*values, compression=random.choice([0, 4]))


@pytest.mark.parametrize("seed", range(30))
def test_batches_that_are_staged_together_fare_as_one_by_one(seed: int) -> None:
    random = Random(seed)
    config = LogConfig(
        segment_bytes=random.choice([2_000, 1_000_000]),
        max_message_bytes=1_500,
        index_interval_bytes=random.choice([0, 300, 4_096]),
        message_timestamp_after_max_ms=HOUR_MS,
        compression_type=random.choice(["producer", "producer", "lz4"]),
    )
    (_, alone), (_, together) = Place().open_log(config), Place().open_log(config)
    for turn in range(20):
        batches = [any_batch(random) for _ in range(random.randrange(1, 9))]
        expected: list[object] = []
        for data in batches:
            try:
                expected.append(stage(alone, data, leader_epoch=turn // 7))
            except ApiError as error:
                expected.append((error.code, str(error)))
        views = [memoryview(bytearray(data)) for data in batches]
        outcomes = together.stage_all(views, turn // 7, START_MS)
        assert expected == [
            (outcome.code, str(outcome)) if isinstance(outcome, ApiError) else outcome for outcome in outcomes
        ]
        for log in (alone, together):
            log.write_staged()
            commit(log)
    assert read_all(alone) == read_all(together)
    for one, other in zip(alone.segments.segments, together.segments.segments, strict=True):
        assert one.base_offset == other.base_offset and one.size_bytes == other.size_bytes
        assert one.max_timestamp == other.max_timestamp
        assert one.offsets is not None and other.offsets is not None
        assert one.offsets.encode() == other.offsets.encode()
    assert alone.epoch_end(1) == together.epoch_end(1)


def test_a_failed_log_stages_nothing_of_several() -> None:
    _, log = Place().open_log()
    append(log, batch(b"a"))
    log.fail("broken", can_repair=False)
    outcomes = log.stage_all([memoryview(batch(b"b")), memoryview(batch(b"c"))], 0, START_MS)
    assert [type(outcome) for outcome in outcomes] == [StorageFailed, StorageFailed]
    assert log.end_offset == 1


def test_one_turn_is_one_write() -> None:
    files = SimFiles()
    _, log = Place(files).open_log()
    append(log, batch(b"first"))
    before = files.operations
    for number in range(50):
        stage(log, batch(b"%d" % number))
    log.write_staged()
    assert files.operations == before + 1
    assert log.written_offset == 51


def test_a_segment_that_would_grow_too_large_is_followed_by_another() -> None:
    _, log = Place().open_log(LogConfig(segment_bytes=500))
    size = len(batch(bytes(100)))
    for _ in range(8):
        append(log, batch(bytes(100)))
    per_segment = 500 // size
    assert names(log, ".log") == [f"{offset:020d}.log" for offset in range(0, 8, per_segment)]
    assert all(segment.size_bytes <= 500 for segment in log.segments.segments)
    assert log.size_bytes == 8 * size


def test_several_rolls_in_one_turn() -> None:
    _, log = Place().open_log(LogConfig(segment_bytes=400))
    data = [batch(bytes(100)) for _ in range(10)]
    for one in data:
        stage(log, one)
    log.write_staged()
    assert offsets_of(read_all(log)) == list(range(10))
    assert len(names(log, ".log")) == 5


def test_a_batch_much_younger_than_its_segment_begins_a_new_one() -> None:
    _, log = Place().open_log(LogConfig(segment_ms=1000))
    for delta_ms in (0, 999, 1000, 1001, 2002):
        append(log, batch(b"x", timestamp_ms=START_MS + delta_ms))
    assert names(log, ".log") == [f"{offset:020d}.log" for offset in (0, 3, 4)]


def test_a_full_index_begins_a_new_segment() -> None:
    _, log = Place().open_log(LogConfig(segment_index_bytes=60, index_interval_bytes=0))
    for _ in range(20):
        append(log, batch(b"x"))
    assert len(names(log, ".log")) > 2
    assert all(len(log.segments.offsets_of(s)) <= 4 for s in log.segments.segments)
    assert offsets_of(read_all(log)) == list(range(20))


def test_a_roll_that_was_planned_for_a_refused_batch_waits_for_the_next() -> None:
    _, log = Place().open_log(LogConfig(segment_bytes=400))
    append(log, batch(bytes(100), producer_id=5, producer_epoch=0, base_sequence=0))
    append(log, batch(bytes(100)))
    with pytest.raises(ApiError):
        stage(log, batch(bytes(100), producer_id=5, producer_epoch=0, base_sequence=9))
    assert len(log.segments.segments) == 1
    append(log, batch(bytes(100)))
    assert [segment.base_offset for segment in log.segments.segments] == [0, 2]
    assert offsets_of(read_all(log)) == [0, 1, 2]


def test_a_repeated_batch_is_answered_with_its_first_place() -> None:
    _, log = Place().open_log()
    data = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    first = stage(log, data)
    again = stage(log, data)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.base_offset, again.last_offset) == (0, 1)
    log.write_staged()
    assert stage(log, data).duplicate
    assert log.end_offset == 2


def failing(files: SimFiles, operation: str, *, after: int = 0, code: int = errno.ENOSPC) -> None:
    """Let this operation on segment files fail from now on, but for its first `after` times."""
    countdown = after

    def fault(name: str, path: str) -> None:
        nonlocal countdown
        if name == operation and path.endswith(".log"):
            countdown -= 1
            if countdown < 0:
                raise OSError(code, "on purpose", path)

    files.fault = fault


@pytest.mark.parametrize("segment_bytes", [400, 10_000])
@pytest.mark.parametrize(
    ("operation", "after"), [("pwritev", 0), ("pwritev", 1), ("create", 0), ("create", 1)]
)
def test_a_refused_write_leaves_no_trace(segment_bytes: int, operation: str, after: int) -> None:
    files = SimFiles()
    _, log = Place(files).open_log(LogConfig(segment_bytes=segment_bytes))
    append(log, batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0), leader_epoch=1)
    before = read_all(log)
    failing(files, operation, after=after)
    sequence = 1
    for _ in range(6):
        stage(log, batch(bytes(100), producer_id=5, producer_epoch=0, base_sequence=sequence), leader_epoch=1)
        sequence += 1
    fails = operation == "pwritev" and (segment_bytes == 400 or after == 0)
    fails = fails or (operation == "create" and segment_bytes == 400)
    if not fails:
        log.write_staged()
        return
    with pytest.raises(StorageFailed) as refused:
        log.write_staged()
    assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert read_all(log) == before
    assert (log.end_offset, log.written_offset, log.size_bytes) == (1, 1, len(before[0]))
    assert [producer.last_sequence for producer in log.producers()] == [0]
    files.fault = None
    # Room again: the retry of the very same batches is not taken for a repetition.
    for number in range(6):
        data = batch(bytes(100), producer_id=5, producer_epoch=0, base_sequence=1 + number)
        assert not stage(log, data, leader_epoch=1).duplicate
    log.write_staged()
    assert offsets_of(read_all(log)) == list(range(7))


def test_a_full_disk_takes_a_part_and_gives_it_back() -> None:
    files = SimFiles()
    _, log = Place(files).open_log()
    append(log, batch(b"a"))
    total, usable = files.space_bytes("/")
    files.capacity_bytes = total - usable + 150
    stage(log, batch(bytes(60)))
    stage(log, batch(bytes(500)))
    with pytest.raises(StorageFailed):
        log.write_staged()
    assert log.failure is None
    assert files.size_bytes("/data/orders-0/00000000000000000000.log") == log.size_bytes
    append(log, batch(b"small"))
    files.capacity_bytes = total
    append(log, batch(bytes(500)))
    assert offsets_of(read_all(log)) == [0, 1, 2]


def test_a_log_that_cannot_be_cut_back_takes_nothing_until_it_can() -> None:
    files = SimFiles()
    directory, log = Place(files).open_log()
    append(log, batch(b"a"))

    def fault(operation: str, path: str) -> None:
        if operation in ("pwritev", "truncate") and path.endswith(".log"):
            raise OSError(errno.EIO, "on purpose", path)

    files.fault = fault
    stage(log, batch(b"b"))
    with pytest.raises(StorageFailed):
        log.write_staged()
    directory.upkeep(START_MS)
    with pytest.raises(StorageFailed):
        stage(log, batch(b"b"))
    assert len(read_all(log)) == 1
    files.fault = None
    directory.upkeep(START_MS)
    append(log, batch(b"b"))
    assert offsets_of(read_all(log)) == [0, 1]


def copies(*offsets_and_epochs: tuple[int, int]) -> bytearray:
    """Batches of two records as a follower receives them."""
    found = bytearray()
    for base_offset, leader_epoch in offsets_and_epochs:
        one = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=base_offset)
        patch_offset_and_epoch(one, 0, base_offset, leader_epoch)
        found += one
    return found


def test_a_follower_keeps_what_its_leader_wrote() -> None:
    _, log = Place().open_log(LogConfig(segment_bytes=400))
    data = copies((0, 1), (2, 1), (6, 3), (8, 3), (10, 4))
    staged = log.stage(memoryview(data + data[:50]), 9, START_MS, Origin.REPLICA)
    log.write_staged()
    assert (staged.base_offset, staged.last_offset) == (0, 11)
    assert b"".join(read_all(log)) == data
    assert len(log.segments.segments) > 1
    assert log.epochs.entries == ((1, 0), (3, 6), (4, 10))
    assert [producer.last_sequence for producer in log.producers()] == [11]
    with pytest.raises(ApiError):
        log.stage(memoryview(copies((11, 4))), 9, START_MS, Origin.REPLICA)


def test_damaged_copies_have_no_effect() -> None:
    _, log = Place().open_log()
    log.stage(memoryview(copies((0, 2))), 2, START_MS, Origin.REPLICA)
    log.write_staged()
    flipped = copies((2, 2), (4, 2))
    flipped[-1] ^= 1
    short_marker = build_batch(
        [Record(0, START_MS, b"\0", b"")],
        base_offset=4,
        leader_epoch=2,
        producer_id=5,
        producer_epoch=0,
        control=True,
    )
    for damaged in (flipped, copies((2, 2), (2, 2)), copies((2, 1)), copies((2, 2)) + short_marker):
        with pytest.raises(ApiError) as refused:
            log.stage(memoryview(damaged), 2, START_MS, Origin.REPLICA)
        assert refused.value.error is ErrorCode.CORRUPT_MESSAGE
        log.write_staged()
        assert (log.end_offset, log.epochs.entries) == (2, ((2, 0),))
        assert [producer.last_sequence for producer in log.producers()] == [1]


def test_a_follower_undoes_copies_that_were_not_written() -> None:
    files = SimFiles()
    _, log = Place(files).open_log()
    log.stage(memoryview(copies((0, 1))), 9, START_MS, Origin.REPLICA)
    log.write_staged()
    failing(files, "pwritev")
    log.stage(memoryview(copies((2, 2), (4, 3))), 9, START_MS, Origin.REPLICA)
    with pytest.raises(StorageFailed):
        log.write_staged()
    assert [producer.last_sequence for producer in log.producers()] == [1]
    assert log.end_offset == 2
    assert log.epochs.entries == ((1, 0), (2, 2)), "as after an election without a record"
