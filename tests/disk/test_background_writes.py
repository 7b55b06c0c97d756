"""Writes in a thread: order, failures, and operations that wait for them."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from runnel.sim.files import SimFiles
from tests.disk.world import (
    PARTITION,
    START_MS,
    TOPIC_ID,
    HeldWorkers,
    Place,
    append,
    batch,
    in_loop,
    offsets_of,
    read_all,
)


@dataclass
class Scene:
    """A log whose background writes happen when the test runs them."""

    config: LogConfig = field(default_factory=LogConfig)
    files: SimFiles = field(default_factory=SimFiles)
    workers: HeldWorkers = field(default_factory=HeldWorkers)
    outcomes: list[tuple[str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        place = Place(self.files, write_workers=self.workers, background_bytes_min=1)
        self.directory: DataDirectory
        self.log: DiskLog
        self.directory, self.log = place.open_log(self.config)

    def later(self, name: str, data: bytearray | None = None) -> None:
        """Stage a batch and let a thread write it."""
        self.log.stage(memoryview(data or batch(name.encode())), 0, START_MS, Origin.CLIENT)
        assert self.log.write_later(self._done(name))

    def refuse(self) -> None:
        """Let the disk be full from now on."""

        def fault(operation: str, path: str) -> None:
            if operation == "pwritev":
                raise OSError(errno.ENOSPC, "on purpose", path)

        self.files.fault = fault

    def values(self) -> list[int]:
        return offsets_of(read_all(self.log))

    def _done(self, name: str) -> Callable[[ApiError | None], None]:
        return lambda error: self.outcomes.append((name, error is None))


def test_nothing_counts_as_written_before_the_thread_has_written_it() -> None:
    scene = Scene()
    scene.later("a")
    scene.later("b")
    assert (scene.log.end_offset, scene.log.written_offset) == (2, 0)
    assert scene.outcomes == []
    scene.workers.finish_one()
    assert (scene.log.written_offset, scene.outcomes) == (1, [("a", True)])
    scene.workers.finish_one()
    assert (scene.log.written_offset, scene.outcomes) == (2, [("a", True), ("b", True)])
    assert scene.values() == [0, 1]


def test_all_that_came_meanwhile_is_one_write() -> None:
    scene = Scene()
    for name in "abcd":
        scene.later(name)
    scene.workers.finish_one()
    before = scene.files.operations
    scene.workers.finish_one()
    assert scene.files.operations == before + 1
    assert scene.workers.held == []
    assert scene.values() == [0, 1, 2, 3]


def test_a_synchronous_write_follows_all_others() -> None:
    scene = Scene()
    scene.later("a")
    scene.later("b")
    assert append(scene.log, batch(b"c")) == 2
    assert scene.outcomes == [("a", True), ("b", True)]
    assert scene.values() == [0, 1, 2]
    scene.workers.drain()
    assert scene.values() == [0, 1, 2]


def test_too_little_is_not_worth_a_thread() -> None:
    _, log = Place(write_workers=HeldWorkers()).open_log()
    log.stage(memoryview(batch(b"small")), 0, START_MS, Origin.CLIENT)
    assert not log.write_later(lambda error: pytest.fail("called without a write"))
    log.write_staged()
    assert offsets_of(read_all(log)) == [0]


@pytest.mark.parametrize("segment_bytes", [1 << 30, 100])
def test_a_disk_that_refuses_takes_back_what_came_behind_as_well(segment_bytes: int) -> None:
    scene = Scene(LogConfig(segment_bytes=segment_bytes))
    append(scene.log, batch(b"kept", producer_id=7, producer_epoch=0, base_sequence=0))
    scene.later("a", batch(b"a", producer_id=7, producer_epoch=0, base_sequence=1))
    scene.later("b", batch(b"b", producer_id=7, producer_epoch=0, base_sequence=2))
    scene.refuse()
    scene.workers.finish_one()
    scene.files.fault = None
    assert scene.outcomes == [("a", False), ("b", False)]
    assert (scene.log.end_offset, scene.log.written_offset) == (1, 1)
    # The producer repeats them, and they are no duplicates.
    append(scene.log, batch(b"a", producer_id=7, producer_epoch=0, base_sequence=1))
    append(scene.log, batch(b"b", producer_id=7, producer_epoch=0, base_sequence=2))
    assert scene.values() == [0, 1, 2]


def test_what_is_written_is_remembered_when_the_next_write_fails() -> None:
    scene = Scene()
    scene.later("a", batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    scene.later("b", batch(b"b", producer_id=7, producer_epoch=0, base_sequence=1))
    scene.workers.finish_one()
    scene.refuse()
    scene.workers.finish_one()
    scene.files.fault = None
    assert scene.outcomes == [("a", True), ("b", False)]
    again = scene.log.stage(
        memoryview(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)), 0, START_MS, Origin.CLIENT
    )
    assert (again.duplicate, again.base_offset) == (True, 0)


def test_a_write_in_the_turn_hears_of_the_failure_before_it() -> None:
    scene = Scene()
    scene.later("a")
    scene.log.stage(memoryview(batch(b"b")), 0, START_MS, Origin.CLIENT)
    scene.refuse()
    with pytest.raises(StorageFailed):
        scene.log.write_staged()
    scene.files.fault = None
    assert scene.outcomes == [("a", False)]
    assert scene.log.end_offset == 0


@pytest.mark.parametrize("act", ["roll", "truncate", "close", "remove"])
@in_loop
async def test_who_needs_the_files_at_rest_waits_for_the_thread(act: str) -> None:
    scene = Scene()
    append(scene.log, batch(b"first"))
    scene.later("a")
    scene.later("b")
    match act:
        case "roll":
            scene.log.roll_now()
            assert scene.log.segments.active.base_offset == 3
        case "truncate":
            scene.log.truncate_to(2)
            assert scene.values() == [0, 1]
        case "close":
            scene.directory.close()
            place = Place(scene.files)
            assert offsets_of(read_all(place.open_log()[1])) == [0, 1, 2]
        case "remove":
            scene.directory.remove_log(PARTITION)
            scene.directory.open_log(PARTITION, TOPIC_ID[::-1], LogConfig())
    assert scene.outcomes == [("a", True), ("b", True)]
    scene.workers.drain()


STEPS = st.lists(
    st.sampled_from(["later", "now", "finish", "roll", "settle", "refuse", "configure"]), max_size=40
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from([150, 400, 1 << 30]))
def test_every_history_ends_as_if_each_batch_had_been_written_at_once(
    steps: list[str], segment_bytes: int
) -> None:
    scene = Scene(LogConfig(segment_bytes=segment_bytes))
    names: list[str] = []
    kept: list[str] = []
    for number, step in enumerate(steps):
        name = f"{number:03d}"
        match step:
            case "later":
                names.append(name)
                scene.later(name)
            case "now":
                append(scene.log, batch(name.encode()))
                scene.outcomes.append((name, True))
            case "finish" if scene.workers.held:
                scene.workers.finish_one()
            case "roll":
                scene.log.roll_now()
            case "settle":
                scene.log.settle()
            case "refuse" if scene.workers.held:
                scene.refuse()
                scene.workers.finish_one()
                scene.files.fault = None
            case "configure":
                scene.log.configure(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=number))
    scene.log.settle()
    kept = [name for name, is_written in scene.outcomes if is_written]
    found = read_all(scene.log)
    assert [one[-4:-1].decode() for one in found] == kept
    assert offsets_of(found) == list(range(len(kept)))
    assert scene.log.end_offset == len(kept)
    assert {name for name, _ in scene.outcomes} >= set(names)


@pytest.mark.parametrize("interrupt", ["settle", "thread"])
@pytest.mark.parametrize("is_large", [True, False])
def test_a_write_that_fails_before_its_caller_asks_for_it_fails_when_it_does(
    interrupt: str, is_large: bool
) -> None:
    """A failed second write fails its own batches; later ones are not acknowledged in their place."""
    scene = Scene()
    scene.later("a")
    scene.log.stage(memoryview(batch(b"b")), 0, START_MS, Origin.CLIENT)
    scene.refuse()
    if interrupt == "settle":
        scene.log.settle()
    else:
        scene.workers.finish_one()
    scene.files.fault = None
    assert scene.outcomes == [("a", False)]
    assert scene.log.end_offset == scene.log.written_offset == 0
    with pytest.raises(StorageFailed, match="on purpose"):
        # Its offset is given out again only after that.
        scene.log.stage(memoryview(batch(b"c")), 0, START_MS, Origin.CLIENT)
    if is_large:
        assert scene.log.write_later(lambda error: scene.outcomes.append(("b", error is None)))
        assert scene.outcomes == [("a", False), ("b", False)]
    else:
        with pytest.raises(StorageFailed, match="on purpose"):
            scene.log.write_staged()
    assert append(scene.log, batch(b"c")) == 0
    assert scene.values() == [0]


def test_a_second_write_that_fails_while_a_log_settles_is_reported() -> None:
    scene = Scene()
    scene.later("a")
    scene.log.stage(memoryview(batch(b"b")), 0, START_MS, Origin.CLIENT)
    writes: list[str] = []

    def refuse_second(operation: str, path: str) -> None:
        if operation == "pwritev":
            writes.append(path)
            if len(writes) == 2:
                raise OSError(errno.ENOSPC, "on purpose", path)

    scene.files.fault = refuse_second
    scene.log.settle()
    assert scene.outcomes == [("a", True)]
    with pytest.raises(StorageFailed, match="on purpose"):
        scene.log.write_staged()
    assert scene.log.end_offset == scene.log.written_offset == 1
    assert scene.values() == [0]
