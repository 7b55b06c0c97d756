"""Truncation without waiting for the disk on the event loop, with faults between its steps."""

import errno
from itertools import pairwise
from random import Random

import pytest

from runnel.batch.header import patch_offset_and_epoch, read_header
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from runnel.sim.files import PowerFailure, SimFiles
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
    in_loop,
    offsets_of,
    read_all,
)

CONFIG = LogConfig(segment_bytes=500)


def copy_of(base_offset: int, epoch: int) -> bytearray:
    one = batch(bytes(100), producer_id=5, producer_epoch=0, base_sequence=base_offset)
    patch_offset_and_epoch(one, 0, base_offset, epoch)
    return one


def copied(log: DiskLog, first: int, end: int, epoch: int) -> None:
    for offset in range(first, end):
        log.stage(memoryview(copy_of(offset, epoch)), epoch, START_MS, Origin.REPLICA)
    log.write_staged()


class Scene:
    """A follower's log of twenty batches in two epochs, on threads that the test runs."""

    def __init__(self) -> None:
        self.workers = HeldWorkers()
        self.place = Place(workers=self.workers, read_workers=self.workers)
        self.files = files_of(self.place)
        self.directory, self.log = self.open()
        copied(self.log, 0, 12, 1)
        copied(self.log, 12, 20, 2)
        self.workers.drain()
        self.outcomes: list[ApiError | None] = []

    def open(self) -> tuple[DataDirectory, DiskLog]:
        directory = self.place.open()
        return directory, directory.open_log(PARTITION, TOPIC_ID, CONFIG)

    def watch(self, operation: str, path: str) -> None:
        if operation in ("datasync", "sync_folder"):
            assert self.workers.is_working, f"{operation} of {path} on the event loop"


def state_of(log: DiskLog) -> tuple[object, ...]:
    return (
        log.log_start_offset,
        log.end_offset,
        log.epochs.entries,
        [(producer.producer_id, producer.last_sequence) for producer in log.producers()],
        [bytes(one) for one in read_all(commit(log))],
    )


@pytest.mark.parametrize("offset", [0, 3, 11, 12, 13, 19, 20, 25])
def test_no_step_waits_for_the_disk_on_the_event_loop(offset: int) -> None:
    scene = Scene()
    twin = Scene()
    if offset < 20:
        twin.log.truncate_to(offset)
    scene.files.fault = scene.watch
    scene.log.truncate_later(offset, scene.outcomes.append)
    if offset < 20:
        assert (scene.outcomes, scene.log.end_offset) == ([], 20), "what remains is still read meanwhile"
        with pytest.raises(StorageFailed):
            scene.log.stage(memoryview(copy_of(20, 2)), 2, START_MS, Origin.REPLICA)
    scene.workers.drain()
    assert scene.outcomes == [None]
    assert state_of(scene.log) == state_of(twin.log)
    end_offset = min(offset, 20)
    copied(scene.log, end_offset, end_offset + 4, 3)
    scene.files.fault = None
    _, log = scene.open()
    assert offsets_of(read_all(commit(log))) == list(range(end_offset + 4))
    assert log.epochs.entries[-1] == (3, end_offset)


def test_an_epoch_without_records_is_forgotten() -> None:
    """Else a follower that was elected without writing would have to truncate again and again."""
    scene = Scene()
    scene.log.begin_epoch(7)
    assert scene.log.leader_epoch == 7
    scene.log.truncate_later(20, scene.outcomes.append)
    assert (scene.outcomes, scene.log.leader_epoch, scene.log.end_offset) == ([None], 2, 20)


@pytest.mark.parametrize("steps", range(3))
def test_a_log_that_is_removed_meanwhile_is_left_alone(steps: int) -> None:
    scene = Scene()
    scene.log.truncate_later(5, scene.outcomes.append)
    for _ in range(min(steps, len(scene.workers.held))):
        scene.workers.finish_one()
    scene.directory.remove_log(PARTITION)
    log = scene.directory.open_log(PARTITION, bytes(16), CONFIG)
    append(log, batch(b"new"))
    scene.workers.drain()
    assert len(scene.outcomes) == 1
    if steps < 2:
        assert isinstance(scene.outcomes[0], StorageFailed)
    assert (log.failure, offsets_of(read_all(commit(log)))) == (None, [0])


def test_a_disk_that_is_full_before_anything_was_truncated_changes_nothing() -> None:
    scene = Scene()
    before = state_of(scene.log)
    scene.workers.drain()

    def refuse(operation: str, path: str) -> None:
        if operation == "pwritev" and "checkpoint" in path:
            raise OSError(errno.ENOSPC, "on purpose", path)

    # The stored recovery point must be lowered first.
    scene.directory._checkpoints.record(scene.log)
    scene.files.fault = refuse
    scene.log.truncate_later(5, scene.outcomes.append)
    scene.workers.drain()
    (outcome,) = scene.outcomes
    assert "on purpose" in str(outcome)
    assert scene.log.failure is None
    assert state_of(scene.log) == before
    scene.files.fault = None
    scene.log.truncate_later(5, scene.outcomes.append)
    scene.workers.drain()
    assert (scene.outcomes[-1], scene.log.end_offset) == (None, 5)


@in_loop
async def test_a_failed_sync_at_the_end_is_repaired() -> None:
    scene = Scene()

    def refuse(operation: str, path: str) -> None:
        if operation == "datasync" and path.endswith(".log"):
            raise OSError(errno.EIO, "on purpose", path)

    scene.log.truncate_later(5, scene.outcomes.append)
    scene.files.fault = refuse
    scene.workers.drain()
    assert isinstance(scene.outcomes[0], StorageFailed)
    assert "on purpose" in str(scene.log.failure)
    scene.files.fault = None
    scene.directory.upkeep(START_MS)
    scene.workers.drain()
    assert (scene.log.failure, scene.log.end_offset) == (None, 5)


def test_a_log_starts_over_where_the_log_of_its_leader_starts() -> None:
    scene = Scene()
    scene.files.fault = scene.watch
    scene.log.restart_at(100, scene.outcomes.append)
    scene.workers.drain()
    log = scene.log
    assert scene.outcomes == [None]
    assert (log.log_start_offset, log.end_offset, log.high_watermark, log.leader_epoch) == (100, 100, 100, -1)
    assert (list(log.producers()), log.size_bytes) == ([], 0)
    copied(log, 100, 105, 3)
    scene.files.fault = None
    scene.directory.close()
    _, log = scene.open()
    assert offsets_of(read_all(commit(log))) == [100, 101, 102, 103, 104]
    assert (log.log_start_offset, log.epochs.entries) == (100, ((3, 100),))


@pytest.mark.parametrize("seed", range(40))
def test_after_a_power_failure_no_batch_follows_one_of_a_later_epoch(seed: int) -> None:
    """Truncation, then batches of a new epoch, with a power failure at any operation."""
    random = Random(seed)
    files = SimFiles()
    place = Place(files)
    log = place.open().open_log(PARTITION, TOPIC_ID, CONFIG)
    copied(log, 0, 12, 1)
    copied(log, 12, 20, 2)
    offset = random.choice([0, 3, 7, 12, 18])
    outcomes: list[ApiError | None] = []
    files.power_failure_at = files.operations + random.randint(1, 40)
    restarts = random.random() < 0.3
    try:
        if restarts:
            log.restart_at(100, outcomes.append)
        else:
            log.truncate_later(offset, outcomes.append)
        start = 100 if restarts else offset
        for number in range(start, start + 20):
            copied(log, number, number + 1, 5)
    except PowerFailure:
        pass
    files.lose_power(random)
    _, log = place.open_log(CONFIG)
    headers = [read_header(one) for one in read_all(commit(log))]
    epochs = [header.leader_epoch for header in headers]
    assert epochs == sorted(epochs)
    assert all(one.next_offset == two.base_offset for one, two in pairwise(headers))
    assert [log.epoch_of(header.base_offset) for header in headers] == epochs
