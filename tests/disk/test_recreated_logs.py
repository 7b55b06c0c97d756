"""A log is created under the name of one that was removed, which the checkpoint files still list."""

import asyncio
from random import Random
from typing import cast

import pytest

from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.durability import Durability
from runnel.disk.upkeep import LOGS_PER_RUN_MAX
from runnel.log.names import RECREATED
from runnel.model.errors import ApiError
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FlushPolicy, LogConfig
from runnel.sim.files import PowerFailure
from tests.disk.world import (
    PARTITION,
    START_MS,
    TOPIC_ID,
    HeldWorkers,
    Place,
    append,
    batch,
    commit,
    files_of,
    offsets_of,
    read_all,
)

NEW_ID = bytes(16)
CONFIG = LogConfig(flush_policy=FlushPolicy.COMMIT, segment_bytes=500, file_delete_delay_ms=0)


def marks(place: Place) -> list[str]:
    return [name for name in files_of(place).names("/data") if name.endswith(RECREATED)]


def run_upkeep(place: Place, directory: DataDirectory) -> None:
    place.clock.ms += 100_000
    directory.upkeep(place.clock.ms)


class Scene:
    """A log with a recovery point and a log start that are stored, and then its namesake."""

    def __init__(self) -> None:
        self.workers = HeldWorkers()
        self.place = Place(workers=self.workers)
        self.files = files_of(self.place)
        self.topic_id = TOPIC_ID
        self.end_offset = self.start_offset = 0
        """What is promised of the log of this id."""
        self.open()

    def open(self) -> None:
        self.workers.held.clear()
        self.directory = self.place.open()
        self.log = commit(self.directory.open_log(PARTITION, self.topic_id, CONFIG))

    async def sync(self, log: DiskLog) -> None:
        future = self.directory.sync(log)
        self.workers.drain()
        self.end_offset = await future

    def delete_records(self, log: DiskLog, offset: int) -> None:
        outcomes: list[ApiError | None] = []
        log.delete_records_before(offset, outcomes.append)
        self.workers.drain()
        assert outcomes == [None]
        self.start_offset = offset

    def upkeep(self) -> None:
        run_upkeep(self.place, self.directory)
        self.workers.drain()

    async def play_first(self) -> None:
        for _ in range(10):
            append(self.log, batch(bytes(100)))
        await self.sync(self.log)
        self.delete_records(self.log, 7)
        self.upkeep()
        self.upkeep()

    async def play_second(self) -> None:
        """The namesake is shorter than the start of the first one."""
        self.end_offset = self.start_offset = 0
        self.topic_id = NEW_ID
        log = self.log = commit(self.directory.open_log(PARTITION, NEW_ID, CONFIG))
        append(log, batch(b"a"))
        append(log, batch(b"b"))
        await self.sync(log)
        append(log, batch(b"c"))
        await self.sync(log)
        self.delete_records(log, 1)
        append(log, batch(b"d"))
        await self.sync(log)
        self.upkeep()

    def check(self) -> None:
        """After a crash: the log is sound and has what is promised."""
        log = self.log
        assert log.failure is None
        assert self.start_offset <= log.log_start_offset <= log.end_offset
        assert log.end_offset >= self.end_offset
        assert offsets_of(read_all(log))[-1:] == [log.end_offset - 1][: log.end_offset - log.log_start_offset]


def test_a_new_log_is_not_marked() -> None:
    place = Place()
    directory = place.open()
    first = commit(directory.open_log(PARTITION, TOPIC_ID, CONFIG))
    append(first, batch(bytes(100)))
    run_upkeep(place, directory)
    directory.open_log(TopicPartition("another", 0), NEW_ID, CONFIG)
    assert marks(place) == []


def test_recreating_a_log_syncs_nothing_on_the_event_loop() -> None:
    async def play() -> None:
        scene = Scene()
        await scene.play_first()

        def watch(operation: str, path: str) -> None:
            if operation in ("datasync", "sync_folder"):
                assert scene.workers.is_working, f"{operation} of {path} on the event loop"

        scene.files.fault = watch
        await scene.play_second()
        assert (scene.log.log_start_offset, scene.log.end_offset) == (1, 4)
        assert marks(scene.place) == []

    asyncio.run(play())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_power_failure", [True, False])
def test_a_crash_at_any_moment_leaves_nothing_of_the_older_log(is_power_failure: bool, seed: int) -> None:
    async def play(number: int) -> bool:
        scene = Scene()
        await scene.play_first()
        scene.files.power_failure_at = scene.files.operations + number
        try:
            await scene.play_second()
        except PowerFailure:
            has_crashed = True
        else:
            has_crashed = False
        scene.files.power_failure_at = -1
        if is_power_failure:
            scene.files.lose_power(Random(seed * 1000 + number))
        scene.open()
        scene.check()
        assert scene.log.log_start_offset <= 1 and scene.log.end_offset <= 4
        append(scene.log, batch(b"later"))
        await scene.sync(scene.log)
        scene.delete_records(scene.log, scene.log.end_offset - 1)
        # The offsets of the new log count after the next crash.
        scene.open()
        scene.check()
        assert scene.log.log_start_offset == scene.log.end_offset - 1
        return has_crashed

    number = 1
    while asyncio.run(play(number)):
        number += 1
    assert number > 30


def test_a_log_that_is_recreated_while_its_mark_is_removed_can_be_shortened() -> None:
    """It waited forever for a mark that was removed for the log before it."""

    async def play() -> None:
        scene = Scene()
        await scene.play_first()
        commit(scene.directory.open_log(PARTITION, NEW_ID, CONFIG))
        run_upkeep(scene.place, scene.directory)
        scene.directory.remove_log(PARTITION)
        log = commit(scene.directory.open_log(PARTITION, NEW_ID, CONFIG))
        append(log, batch(b"a"))
        append(log, batch(b"b"))
        scene.workers.drain()
        scene.delete_records(log, 1)
        assert marks(scene.place) == []

    asyncio.run(play())


def test_a_clean_stop_removes_the_mark() -> None:
    async def play() -> None:
        scene = Scene()
        await scene.play_first()
        log = scene.directory.open_log(PARTITION, NEW_ID, CONFIG)
        append(log, batch(b"a"))
        assert len(marks(scene.place)) == 1
        scene.directory.close()
        assert marks(scene.place) == []
        scene.topic_id = NEW_ID
        scene.open()
        assert offsets_of(read_all(scene.log)) == [0]
        scene.delete_records(scene.log, 1)
        scene.open()
        assert scene.log.log_start_offset == 1

    asyncio.run(play())


def test_a_checkpoint_looks_at_some_logs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    directory = place.open()
    logs = [directory.open_log(TopicPartition("many", n), TOPIC_ID, CONFIG) for n in range(1000)]
    for log in logs:
        append(log, batch(b"x"))
        directory.flush_soon(log)
    run_upkeep(place, directory)
    looked_at = 0
    original = cast("property", Durability.__dict__["recovery_point"])
    # Brokers of other tests may be running in threads of this process.
    own = {id(log.durability) for log in logs}

    def recovery_point(durability: Durability) -> int:
        nonlocal looked_at
        looked_at += id(durability) in own
        return cast("int", original.__get__(durability))

    monkeypatch.setattr(Durability, "recovery_point", property(recovery_point))
    run_upkeep(place, directory)
    assert 0 < looked_at <= LOGS_PER_RUN_MAX
    stored = files_of(place).read("/data/recovery-point-offset-checkpoint").splitlines()
    assert len(stored) == 1002 and all(line.endswith(b" 1") for line in stored[2:])
    assert place.clock.ms > START_MS
