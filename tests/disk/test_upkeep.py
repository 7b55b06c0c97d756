"""Upkeep keeps to its intervals, also when the clock is set."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from runnel.disk.cleaner import Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.upkeep import Interval, UpkeepIntervals
from runnel.disk.workers import InlineWorkers
from runnel.model.log_config import FOREVER, LogConfig
from runnel.sim.files import SimFiles
from tests.disk.compacted import CONFIG, ID, NAME, NOW_MS, Still, append, new_files
from tests.disk.world import Place, batch
from tests.disk.world import append as world_append

DELETING = replace(CONFIG, cleanup_compact=False, cleanup_delete=True, retention_bytes=1)


def directory(
    files: SimFiles, cleaner: Cleaner | None = None, intervals: UpkeepIntervals | None = None
) -> DataDirectory:
    return DataDirectory(
        "/data",
        files=files,
        clock=Still(),
        entropy=Still(),
        write_workers=InlineWorkers(),
        sync_workers=InlineWorkers(),
        upkeep_workers=InlineWorkers(),
        read_workers=InlineWorkers(),
        cleaner=cleaner,
        intervals=intervals,
    )


def fill(log: DiskLog) -> None:
    for number in range(40):
        append(log, (b"key", b"%d" % number * 50))


@pytest.mark.parametrize("first", [True, False])
def test_an_interval_is_over_once_per_interval(first: bool) -> None:
    interval = Interval(100)
    assert interval.is_over(1000, first=first) is first
    assert not interval.is_over(1000, first=first)
    assert not interval.is_over(1099, first=first)
    assert interval.is_over(1150, first=first)
    assert not interval.is_over(1249, first=first)


def test_a_clock_that_is_set_back_puts_nothing_off() -> None:
    interval = Interval(100)
    interval.is_over(10**12, first=True)
    assert interval.is_over(5000, first=True)
    assert not interval.is_over(5099, first=True)
    assert interval.is_over(5100, first=True)


def test_an_interval_of_zero_is_always_due() -> None:
    interval = Interval(0)
    assert all(interval.is_over(7, first=True) for _ in range(3))


def test_retention_waits_for_its_interval() -> None:
    disk = directory(new_files(), intervals=UpkeepIntervals(retention_interval_ms=1000))
    log = disk.open_log(NAME, ID, DELETING)
    disk.upkeep(NOW_MS)
    fill(log)
    disk.upkeep(NOW_MS + 999)
    assert log.log_start_offset == 0
    disk.upkeep(NOW_MS + 1000)
    assert log.log_start_offset > 0


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("recovery_points_interval_ms", "recovery-point-offset-checkpoint"),
        ("log_starts_interval_ms", "log-start-offset-checkpoint"),
    ],
)
def test_checkpoints_wait_for_their_own_intervals(name: str, file: str) -> None:
    files = new_files()
    intervals = {"recovery_points_interval_ms": 10**9, "log_starts_interval_ms": 10**9, name: 500}
    disk = directory(files, intervals=UpkeepIntervals(**intervals))
    log = disk.open_log(NAME, ID, DELETING)
    disk.upkeep(NOW_MS)
    fill(log)
    disk.flush_soon(log)
    disk.upkeep(NOW_MS + 499)
    assert log.log_start_offset > 0
    before = checkpoints(files)
    disk.upkeep(NOW_MS + 500)
    after = checkpoints(files)
    assert [path for path in after if after[path] != before.get(path)] == [file]


def checkpoints(files: SimFiles) -> dict[str, bytes]:
    return {path: files.read(f"/data/{path}") for path in files.names("/data") if "checkpoint" in path}


def test_a_cleaner_that_is_off_leaves_logs_alone() -> None:
    sizes = {}
    for is_on in (True, False):
        cleaner = Cleaner(InlineWorkers(), throttle=lambda: None, is_on=is_on)
        disk = directory(new_files(), cleaner)
        log = disk.open_log(NAME, ID, CONFIG)
        fill(log)
        before = log.size_bytes
        disk.upkeep(NOW_MS)
        disk.upkeep(NOW_MS + 20_000)
        sizes[is_on] = log.size_bytes - before
    assert sizes[True] < 0 == sizes[False]


def test_a_closed_directory_swaps_nothing_in() -> None:
    class Late(InlineWorkers):
        """Work that is done at once and reported later."""

        def __init__(self) -> None:
            self.untold: list[Callable[[], None]] = []

        def submit(self, work, done) -> None:
            super().submit(work, lambda result, failure: self.untold.append(lambda: done(result, failure)))

    files, late = new_files(), Late()
    disk = directory(files, Cleaner(late, throttle=lambda: None))
    log = disk.open_log(NAME, ID, CONFIG)
    fill(log)
    disk.upkeep(NOW_MS)
    while not any(name.endswith(".cleaned") for name in files.names(f"/data/{NAME}")):
        late.untold.pop(0)()
    segments = list(log.segments.segments)
    disk.close()
    late.untold.pop(0)()
    assert late.untold == [] and log.segments.segments == segments


DAY_MS = 24 * 60 * 60 * 1000


@pytest.mark.parametrize("jump_ms", [3650 * DAY_MS, -5 * DAY_MS])
@pytest.mark.parametrize("is_loaded_late", [False, True])
def test_a_clock_jump_expires_no_producer(jump_ms: int, is_loaded_late: bool) -> None:
    """A retry of what it sent before or during the jump is recognised; idle producers expire as usual."""
    place = Place()
    # Or it would refuse records from the future.
    config = LogConfig(message_timestamp_after_max_ms=FOREVER)
    data, log = place.open_log(config)
    sent = [batch(b"v", producer_id=5, producer_epoch=0, base_sequence=number) for number in range(3)]

    def send(number: int) -> int:
        return world_append(log, sent[number], now_ms=place.clock.now_ms())

    def pass_time(ms: int) -> None:
        place.clock.ms += ms
        data.upkeep(place.clock.now_ms())

    assert send(0) == 0
    pass_time(1000)
    if is_loaded_late:
        data.close()
        data, log = place.open_log(config)
    place.clock.jump_ms = jump_ms
    pass_time(1000)
    assert [send(0), send(1)] == [0, 1]
    pass_time(1000)
    assert [send(0), send(1), send(2)] == [0, 1, 2]
    place.clock.jump_ms = 0
    pass_time(1000)
    assert [send(1), send(2), log.end_offset] == [1, 2, 3]
    pass_time(DAY_MS - 1001)
    assert len(log.producer_state.get()) == 1
    pass_time(1001)
    assert len(log.producer_state.get()) == 0


@pytest.mark.parametrize("jump_ms", [3650 * DAY_MS, -5 * DAY_MS])
@pytest.mark.parametrize("end", ["clean", "killed", "truncated"])
def test_a_clock_that_was_set_between_two_starts_lets_no_producer_be_forgotten(
    jump_ms: int, end: str
) -> None:
    """Neither those that have written since the last snapshot, nor those that are only in it."""
    place = Place()
    config = LogConfig(segment_bytes=1000, message_timestamp_after_max_ms=FOREVER)
    data, log = place.open_log(config)

    def sent(producer_id: int, sequence: int) -> bytearray:
        return batch(bytes(300), producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    def send(producer_id: int, sequence: int) -> int:
        return world_append(log, sent(producer_id, sequence), now_ms=place.clock.now_ms())

    offsets = {(5, 0): send(5, 0)}
    place.clock.ms += DAY_MS // 2
    offsets |= {(6, sequence): send(6, sequence) for sequence in range(4)}
    assert len(log.segments.segments) > 1
    last = send(7, 0)
    if end == "clean":
        data.close()
    place.clock.jump_ms = jump_ms
    data, log = place.open_log(config)
    if end == "truncated":
        log.truncate_to(last)
    data.upkeep(place.clock.now_ms())
    assert {key: send(*key) for key in offsets} == offsets
    assert log.end_offset == last + (end != "truncated")
    # Those that are idle expire in the order in which they were seen.
    place.clock.ms += DAY_MS // 2
    data.upkeep(place.clock.now_ms())
    if jump_ms > 0:
        left = [6] if end == "truncated" else [6, 7]
        assert [each.producer_id for each in log.producer_state.get()] == left
    place.clock.ms += DAY_MS // 2
    data.upkeep(place.clock.now_ms())
    assert len(log.producer_state.get()) == 0
