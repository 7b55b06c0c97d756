"""A log is removed, and created again, while a thread waits for the disk on its behalf."""

from collections.abc import Callable
from random import Random
from threading import Thread

import pytest

from runnel.disk.cleaner import Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.log.names import CLEANER_CHECKPOINT
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from tests.disk.compacted import CONFIG as COMPACTED
from tests.disk.compacted import NAME, NOW_MS, fill
from tests.disk.world import TOPIC_ID, HeldWorkers, Place, append, batch, commit, files_of, read_all

NEW_ID = bytes(16)
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


class Scene:
    """A log that is removed and created again at the n-th time that a thread waits for the disk."""

    def __init__(self, name: TopicPartition, config: LogConfig) -> None:
        self.workers = HeldWorkers()
        self.place = Place(workers=self.workers)
        self.files = files_of(self.place)
        self.name, self.config = name, config
        self.directory: DataDirectory = self.place.open()
        self.log = commit(self.directory.open_log(name, TOPIC_ID, config))
        self.namesake: DiskLog | None = None
        self.has_waited = False

    def replace_at(self, number: int) -> None:
        """Act as the event loop while a thread is inside of its `number`-th sync."""
        left = number

        def fault(operation: str, path: str) -> None:
            nonlocal left
            if operation in ("datasync", "sync_folder") and self.workers.is_working:
                left -= 1
                if left == 0:
                    self.files.fault = None
                    loop = Thread(target=self.replace, daemon=True)
                    loop.start()
                    loop.join(5)
                    self.has_waited = loop.is_alive()

        self.files.fault = fault

    def replace(self) -> None:
        self.directory.remove_log(self.name)
        self.namesake = self.directory.open_log(self.name, NEW_ID, self.config)
        append(self.namesake, batch(b"new"))

    def check(self) -> None:
        """The removed log has left nothing to its namesake, which lives through a crash of the process."""
        assert not self.has_waited, "the removal waited for the disk"
        if self.namesake is None:
            return
        assert self.log.failure is not None and "was removed" in self.log.failure
        names = {name for name in self.files.names(f"/data/{self.name}") if name[:1].isdigit()}
        assert names == {"00000000000000000000.log"}
        append(self.namesake, batch(b"newer"))
        expected = read_all(self.namesake)
        assert len(expected) == 2
        log = commit(self.place.open().open_log(self.name, NEW_ID, self.config))
        assert read_all(log) == expected and log.failure is None


def at_every_sync(run: Callable[[int], Scene]) -> int:
    """At how many syncs a log was removed, one after the other."""
    number = 1
    while (scene := run(number)).namesake is not None or scene.has_waited:
        scene.check()
        number += 1
    return number - 1


def test_a_removal_does_not_wait_for_a_sync_in_flight() -> None:
    def run(number: int) -> Scene:
        scene = Scene(TopicPartition("orders", 0), SMALL)
        for number_sent in range(8):
            data = batch(bytes(100), producer_id=7, producer_epoch=0, base_sequence=number_sent)
            append(scene.log, data)
        scene.replace_at(number)
        scene.workers.drain()
        scene.directory.flush_soon(scene.log)
        scene.workers.drain()
        return scene

    assert at_every_sync(run) > 10


def test_a_removal_does_not_wait_for_a_compaction_in_flight() -> None:
    def run(number: int) -> Scene:
        scene = Scene(NAME, COMPACTED)
        fill(scene.log, Random(6))
        scene.directory.flush_soon(scene.log)
        scene.workers.drain()
        scene.replace_at(number)
        reports: list[str] = []
        Cleaner(scene.workers, throttle=lambda: None, report=reports.append).consider([scene.log], NOW_MS)
        scene.workers.drain()
        assert scene.namesake is None or scene.log.swap is None
        return scene

    assert at_every_sync(run) > 5


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_compaction_of_a_removed_log_ends_quietly(steps: int) -> None:
    scene = Scene(NAME, COMPACTED)
    fill(scene.log, Random(6))
    scene.directory.flush_soon(scene.log)
    scene.workers.drain()
    reports: list[str] = []
    cleaner = Cleaner(scene.workers, throttle=lambda: None, report=reports.append)
    cleaner.consider([scene.log], NOW_MS)
    for _ in range(steps):
        if scene.workers.held:
            scene.workers.finish_one()
    scene.replace()
    scene.workers.drain()
    assert not cleaner.is_busy and reports == []
    scene.check()
    assert CLEANER_CHECKPOINT not in scene.files.names(f"/data/{NAME}")
