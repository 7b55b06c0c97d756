"""The first uses of a log after a start: what takes long to load is loaded by a thread."""

from collections.abc import Callable

import pytest

from runnel.disk.appender import REBUILT_BATCHES_MAX
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.producer_state import SNAPSHOT_BYTES_MAX
from runnel.model.errors import ErrorCode, StorageFailed
from tests.disk.world import HeldWorkers, Place, append, batch, files_of, offsets_of, read_all

BATCHES = REBUILT_BATCHES_MAX + 500


class Scene:
    """A log that was closed cleanly and is opened again; the test controls when its threads work."""

    def __init__(self, batches: int, producers: int, change: Callable[[Place], None] = lambda place: None):
        self.readers = HeldWorkers()
        place = self.place = Place(read_workers=self.readers)
        directory, log = place.open_log()
        for number in range(batches):
            producer_id = number % producers if producers else -1
            data = batch(
                bytes(50),
                producer_id=producer_id,
                producer_epoch=0 if producers else -1,
                base_sequence=number // producers if producers else -1,
            )
            append(log, data)
        directory.close()
        change(place)
        self.read: list[str] = []
        """Files that are read on the event loop."""
        self.directory: DataDirectory
        self.log: DiskLog
        self.directory, self.log = place.open_log()
        files_of(place).fault = self.watch

    def watch(self, operation: str, path: str) -> None:
        if operation == "pread" and not self.readers.is_working:
            self.read.append(path.rpartition(".")[2])

    def refuse(self, use: Callable[[], object]) -> None:
        """It is refused so that clients try again, and nothing large is read on the event loop."""
        with pytest.raises(StorageFailed) as refusal:
            use()
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR.code
        assert len(self.readers.held) == 1


def lose_indexes(place: Place) -> None:
    files = files_of(place)
    for suffix in ("index", "timeindex"):
        files.remove(f"/data/orders-0/00000000000000000000.{suffix}")


def lose_snapshots(place: Place) -> None:
    files = files_of(place)
    for name in files.names("/data/orders-0"):
        if name.endswith(".snapshot"):
            files.remove(f"/data/orders-0/{name}")


def test_many_producers_are_loaded_by_a_thread() -> None:
    scene = Scene(BATCHES, BATCHES)
    files = files_of(scene.place)
    path = f"/data/orders-0/{BATCHES:020d}.snapshot"
    assert files.size_bytes(path) > SNAPSHOT_BYTES_MAX
    again = batch(bytes(50), producer_id=7, producer_epoch=0, base_sequence=0)
    following = batch(b"next", producer_id=7, producer_epoch=0, base_sequence=1)
    scene.refuse(lambda: append(scene.log, following))
    scene.refuse(lambda: scene.log.last_stable_offset)
    assert scene.read == []
    scene.readers.drain()
    assert append(scene.log, again) == 7
    assert append(scene.log, following) == BATCHES
    assert scene.log.last_stable_offset == BATCHES + 1
    assert len(list(scene.log.producers())) == BATCHES


def test_producers_without_their_snapshot_are_found_by_a_thread() -> None:
    scene = Scene(BATCHES, 3, lose_snapshots)
    following = batch(b"next", producer_id=0, producer_epoch=0, base_sequence=BATCHES // 3)
    scene.refuse(lambda: append(scene.log, following))
    assert "log" not in scene.read
    # Who writes without a sequence does not wait for them.
    append(scene.log, batch(b"plain"))
    scene.readers.drain()
    assert append(scene.log, following) == BATCHES + 1


def test_the_indexes_of_a_large_segment_are_rebuilt_by_a_thread() -> None:
    scene = Scene(BATCHES, 0, lose_indexes)
    scene.refuse(lambda: append(scene.log, batch(b"next")))
    assert scene.log.end_offset == BATCHES
    scene.readers.drain()
    assert append(scene.log, batch(b"next")) == BATCHES
    active = scene.log.segments.active
    assert active.offsets is not None and len(active.offsets) > 10
    assert offsets_of(read_all(scene.log)) == list(range(BATCHES + 1))


def test_small_files_are_loaded_at_once() -> None:
    scene = Scene(BATCHES, 3)
    following = batch(b"next", producer_id=0, producer_epoch=0, base_sequence=BATCHES // 3)
    assert append(scene.log, following) == BATCHES
    scene = Scene(20, 3, lose_snapshots)
    following = batch(b"next", producer_id=0, producer_epoch=0, base_sequence=7)
    assert append(scene.log, following) == 20


def test_upkeep_loads_ahead_of_the_first_use() -> None:
    scene = Scene(BATCHES, BATCHES, lose_indexes)
    scene.directory.upkeep(scene.place.clock.ms)
    scene.readers.drain()
    following = batch(b"next", producer_id=7, producer_epoch=0, base_sequence=1)
    assert append(scene.log, following) == BATCHES
    assert set(scene.read) <= {"log"}
    scene.directory.upkeep(scene.place.clock.ms + 1)
    assert not scene.readers.held


def test_a_log_that_is_closed_before_its_producers_are_loaded_keeps_them() -> None:
    scene = Scene(BATCHES, BATCHES)
    append(scene.log, batch(b"plain"))
    scene.directory.close()
    files_of(scene.place).fault = None
    scene.place.read_workers = HeldWorkers()
    _, log = scene.place.open_log()
    with pytest.raises(StorageFailed):
        list(log.producers())
    scene.place.read_workers.drain()
    assert len(list(log.producers())) == BATCHES
