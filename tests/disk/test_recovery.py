"""Recovery of a log: what is trusted, verified and truncated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.header import HEADER_BYTES, read_header
from runnel.disk.disk_log import DiskLog
from runnel.log.names import EPOCHS, INDEX, LOG, LOG_STARTS, SNAPSHOT, TIME_INDEX, offset_name
from runnel.model.errors import StorageFailed
from runnel.model.log_config import LogConfig
from runnel.sim.files import SimFiles
from tests.disk.world import (
    EVERYTHING,
    START_MS,
    Place,
    append,
    batch,
    in_loop,
    offsets_of,
    read_all,
    run_now,
)

FOLDER = "/data/orders-0"
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=200)


def filled(place: Place, count: int = 20, *, config: LogConfig = CONFIG) -> DiskLog:
    _, log = place.open_log(config)
    for number in range(count):
        producer = {"producer_id": number % 3, "producer_epoch": 0, "base_sequence": number // 3}
        append(
            log,
            batch(b"%d" % number * 10, timestamp_ms=START_MS + number, **producer),
            leader_epoch=number // 7,
        )
    return log


def state_of(log: DiskLog) -> object:
    """The visible state of a log."""
    return (
        read_all(log),
        log.epochs.entries,
        sorted((one.producer_id, one.last_sequence) for one in log.producers()),
        [run_now(log.find_timestamp(START_MS + number, EVERYTHING)) for number in range(20)],
        run_now(log.find_max_timestamp(EVERYTHING)),
        log.size_bytes,
        log.log_start_offset,
    )


def test_a_killed_broker_finds_all_it_wrote() -> None:
    place = Place()
    before = state_of(filled(place))
    _, log = place.open_log(CONFIG)
    assert state_of(log) == before
    assert len(log.segments.segments) > 2


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX, SNAPSHOT, EPOCHS])
@pytest.mark.parametrize("harm", ["missing", "empty", "zero", "cut", "garbage"])
def test_recovery_without_index_and_snapshot_files(suffix: str, harm: str) -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log(CONFIG)
    log = filled(place)
    before = state_of(log)
    directory.upkeep(START_MS)
    for name in [name for name in files.names(FOLDER) if name.endswith(suffix)]:
        path = f"{FOLDER}/{name}"
        data = files.read(path)
        if harm == "missing":
            files.remove(path)
        else:
            harmed = {"empty": b"", "zero": bytes(len(data)), "cut": data[:-3], "garbage": b"\xa5" * 24}[harm]
            files.write(path, harmed, sync=True)
    _, log = place.open_log(CONFIG)
    assert state_of(log) == before


@given(st.data())
def test_a_file_cut_by_a_power_failure_ends_with_its_last_whole_batch(data) -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place)
    batches = read_all(log)
    segment = data.draw(st.sampled_from(log.segments.segments))
    path = f"{FOLDER}/{offset_name(segment.base_offset, LOG)}"
    size_bytes = data.draw(st.integers(0, segment.size_bytes - 1))
    files.open(path).truncate(size_bytes)
    files.boots += 1
    _, log = place.open_log(CONFIG)
    kept = [one for one in batches if read_header(one).base_offset < segment.base_offset]
    for one in batches[len(kept) :]:
        size_bytes -= len(one)
        if size_bytes < 0:
            break
        kept.append(one)
    assert read_all(log) == kept
    assert append(log, batch(b"next"), leader_epoch=9) == len(kept)
    _, log = place.open_log(CONFIG)
    assert offsets_of(read_all(log)) == list(range(len(kept) + 1))


@given(st.data())
def test_what_a_power_failure_made_invalid_ends_the_log(data) -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place)
    batches = read_all(log)
    number = data.draw(st.integers(0, len(batches) - 1))
    position_in_batch = data.draw(st.integers(16, len(batches[number]) - 1))
    segment, position = log.segments.locate(number)
    path = f"{FOLDER}/{offset_name(segment.base_offset, LOG)}"
    files.flip_bit(path, position + position_in_batch, data.draw(st.integers(0, 7)))
    files.boots += 1
    _, log = place.open_log(CONFIG)
    assert read_all(log) == batches[:number]


@pytest.mark.parametrize("is_power_failure", [False, True])
@pytest.mark.parametrize("count", [3, 20])
def test_zeros_that_a_file_system_left_at_the_end_are_cut(count: int, is_power_failure: bool) -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place, count)
    batches, size_bytes = read_all(log), log.segments.active.size_bytes
    files.open(log.segments.path(log.segments.active, LOG)).pwritev([bytes(5000)], size_bytes)
    files.boots += is_power_failure
    _, log = place.open_log(CONFIG)
    assert read_all(log) == batches
    assert files.size_bytes(log.segments.path(log.segments.active, LOG)) == size_bytes


@in_loop
async def test_damage_in_what_was_durable_is_left_for_a_person() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log()
    for number in range(10):
        append(log, batch(b"%d" % number))
    await directory.sync(log)
    directory.upkeep(START_MS)
    directory.upkeep(START_MS + 70_000)
    batches = read_all(log)
    path = f"{FOLDER}/{offset_name(0, LOG)}"
    files.flip_bit(path, 4 * len(batches[0]) + 16)
    harmed = files.read(path)
    directory, log = place.open_log()
    assert log.failure is not None and "position" in log.failure
    with pytest.raises(StorageFailed):
        append(log, batch(b"x"))
    directory.upkeep(START_MS)
    assert log.failure is not None
    assert read_all(log) == batches[:4]
    directory.close()
    _, log = place.open_log()
    assert log.failure is not None
    assert files.read(path) == harmed


@in_loop
async def test_damage_that_is_met_while_producers_are_loaded_is_left_for_a_person() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log(CONFIG)
    for number in range(20):
        append(log, batch(b"%d" % number * 10, producer_id=1, producer_epoch=0, base_sequence=number))
    await directory.sync(log)
    directory.upkeep(START_MS)
    directory.upkeep(START_MS + 70_000)
    path = f"{FOLDER}/{offset_name(0, LOG)}"
    files.flip_bit(path, 16)
    for name in files.names(FOLDER):
        if name.endswith(SNAPSHOT):
            files.flip_bit(f"{FOLDER}/{name}", 12)
    harmed = files.read(path)
    directory, log = place.open_log(CONFIG)
    assert log.failure is not None and FOLDER in log.failure
    with pytest.raises(StorageFailed):
        append(log, batch(b"x"))
    directory.close()
    assert files.read(path) == harmed


@in_loop
async def test_a_believed_start_is_not_read_again() -> None:
    files = SimFiles()
    place = Place(files)
    config = LogConfig(index_interval_bytes=200)
    directory, log = place.open_log(config)
    for number in range(2000):
        append(log, batch(b"%d" % number * 20))
    directory.close()
    directory, log = place.open_log(config)
    append(log, batch(b"x"))
    read_bytes = 0

    def fault(operation: str, path: str) -> None:
        nonlocal read_bytes
        if operation == "pread" and path.endswith(LOG):
            read_bytes += 1

    files.fault = fault
    _, log = place.open_log(config)
    assert log.end_offset == 2001
    assert read_bytes < 12
    files.fault = None
    assert offsets_of(read_all(log)) == list(range(2001))
    found = run_now(log.find_max_timestamp(EVERYTHING))
    assert found is not None and found.offset == 0


def test_a_batch_header_that_claims_the_moon_costs_nothing() -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place, 3)
    path = log.segments.path(log.segments.active, LOG)
    lie = bytearray(batch(b"x"))
    lie[8:12] = (2**31 - 1).to_bytes(4, "big")
    files.open(path).pwritev([lie[:HEADER_BYTES]], log.segments.active.size_bytes)
    _, log = place.open_log(CONFIG)
    assert log.end_offset == 3


def test_offsets_never_go_back_below_a_deletion() -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place, 10, config=LogConfig())
    log.delete_records_before(8)
    files.open(log.segments.path(log.segments.active, LOG)).truncate(0)
    files.boots += 1
    _, log = place.open_log()
    assert (log.log_start_offset, log.end_offset) == (8, 8)
    assert append(log, batch(b"x")) == 8
    _, log = place.open_log()
    assert (log.log_start_offset, log.end_offset) == (8, 9)


def test_a_log_start_that_was_never_written_does_not_remove_records() -> None:
    """A flipped bit of a digit: the checkpoint is still well-formed."""
    files = SimFiles()
    place = Place(files)
    log = filled(place, 10, config=LogConfig())
    log.delete_records_before(4)
    batches = read_all(log)
    files.write(f"/data/{LOG_STARTS}", files.read(f"/data/{LOG_STARTS}").replace(b"0 4", b"0 54"), sync=True)
    _, log = place.open_log()
    assert (log.failure, log.log_start_offset, log.end_offset) == (None, 0, 10)
    assert read_all(log)[4:] == batches


@in_loop
async def test_epochs_of_truncated_batches_do_not_hide_those_that_follow() -> None:
    """A follower that truncates its log copies what its leader has from there on, also of older epochs."""
    place = Place()
    directory, log = place.open_log()
    for number in range(10):
        append(log, batch(b"old"), leader_epoch=5 if number < 5 else 7)
    await directory.sync(log)
    log.truncate_to(3)
    append(log, batch(b"copied"), leader_epoch=6)
    expected = log.epochs.entries
    _, log = place.open_log()
    assert log.epochs.entries == expected == ((5, 0), (6, 3))
    assert log.epoch_end(5) == (5, 3)
