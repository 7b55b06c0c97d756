"""DeleteRecords: durable before it is answered, never on the event loop, many partitions with one write."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.log_starts import DROPS_AT_ONCE_MAX
from runnel.model.errors import ApiError
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from tests.disk.world import TOPIC_ID, HeldWorkers, Place, append, batch, commit, files_of

CHECKPOINT = "log-start-offset-checkpoint"


class Scene:
    """Some logs whose log starts are stored when the test lets a thread work."""

    def __init__(self, count: int = 10) -> None:
        self.workers = HeldWorkers()
        self.place = Place(workers=self.workers)
        self.files = files_of(self.place)
        self.directory: DataDirectory = self.place.open()
        self.logs = [self.open(number) for number in range(count)]
        for log in self.logs:
            for _ in range(5):
                append(log, batch(bytes(100)))
        self.outcomes: list[ApiError | None] = []
        self.stored = 0
        self.files.fault = self.watch

    def open(self, number: int) -> DiskLog:
        return commit(self.directory.open_log(TopicPartition("orders", number), TOPIC_ID, LogConfig()))

    def watch(self, operation: str, path: str) -> None:
        if operation in ("datasync", "sync_folder"):
            assert self.workers.is_working, f"{operation} of {path} on the event loop"
        if operation == "rename" and CHECKPOINT in path:
            self.stored += 1

    def delete(self, log: DiskLog, offset: int) -> None:
        log.delete_records_before(offset, self.outcomes.append)


def test_nothing_is_synced_on_the_event_loop() -> None:
    """The log starts of many partitions are stored by one write, in a thread."""
    scene = Scene()
    for log in scene.logs:
        log.delete_records_before(3)
    scene.workers.drain()
    assert [log.log_start_offset for log in scene.logs] == [3] * 10
    assert scene.stored == 2


def test_many_logs_are_not_all_shortened_at_once() -> None:
    """One request for 1,000 partitions stopped the event loop for a third of a second."""
    scene = Scene(0)
    scene.files.fault = None
    config = LogConfig(segment_bytes=300)
    for number in range(2 * DROPS_AT_ONCE_MAX + 1):
        log = commit(scene.directory.open_log(TopicPartition("orders", number), TOPIC_ID, config))
        for _ in range(5):
            append(log, batch(bytes(100)))
        scene.logs.append(log)
    scene.workers.drain()

    def lengths() -> list[int]:
        return [len(log.segments.segments) for log in scene.logs]

    (before,) = set(lengths())
    for log in scene.logs:
        scene.delete(log, 4)
    scene.workers.finish_one()
    scene.workers.finish_one()
    assert scene.outcomes == [None] * len(scene.logs)
    assert {log.log_start_offset for log in scene.logs} == {4}
    assert lengths().count(before) == len(scene.logs) - 1 - DROPS_AT_ONCE_MAX
    for _ in range(2):
        scene.directory.upkeep(scene.place.clock.ms)
    assert before not in lengths()


def test_it_is_answered_once_it_is_durable() -> None:
    scene = Scene()
    for log in scene.logs:
        scene.delete(log, 4)
    assert scene.outcomes == [] and [log.log_start_offset for log in scene.logs] == [0] * 10
    scene.workers.finish_one()
    assert scene.outcomes == [None]
    scene.workers.finish_one()
    assert scene.outcomes == [None] * 10
    scene.directory = scene.place.open()
    assert [scene.open(number).log_start_offset for number in range(10)] == [4] * 10


def test_a_disk_that_refuses_leaves_the_log_start_as_it_was() -> None:
    scene = Scene(3)

    def refuse(operation: str, path: str) -> None:
        if operation == "pwritev" and CHECKPOINT in path:
            raise OSError(errno.ENOSPC, "on purpose", path)

    scene.files.fault = refuse
    scene.delete(scene.logs[0], 4)
    scene.workers.finish_one()
    assert [error is not None and "on purpose" in str(error) for error in scene.outcomes] == [True]
    assert scene.logs[0].log_start_offset == 0
    scene.files.fault = None
    scene.delete(scene.logs[1], 2)
    scene.workers.drain()
    scene.directory = scene.place.open()
    assert [scene.open(number).log_start_offset for number in range(3)] == [0, 2, 0]


@pytest.mark.parametrize("is_recreated", [True, False])
def test_a_log_that_is_removed_meanwhile_leaves_nothing_to_its_namesake(is_recreated: bool) -> None:
    scene = Scene(2)
    scene.files.fault = None
    scene.delete(scene.logs[0], 4)
    scene.directory.remove_log(scene.logs[0].name)
    if is_recreated:
        scene.open(0)
    scene.workers.drain()
    assert [error is not None for error in scene.outcomes] == [True]
    scene.delete(scene.logs[1], 1)
    scene.workers.drain()
    scene.directory = scene.place.open()
    assert [scene.open(number).log_start_offset for number in range(2)] == [0, 1]


class LateWorkers(HeldWorkers):
    """Work is done at once; its outcome is reported when the test releases it."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            result = work()
        except OSError as error:
            failure = error
            self.held.append(lambda: done(None, failure))
        else:
            self.held.append(lambda: done(result, None))


def test_a_failure_that_is_reported_late_leaves_nothing_to_a_namesake() -> None:
    """The start of a removed log was stored for the new one: after a crash, its records were gone."""
    scene = Scene(2)
    scene.files.fault = None
    scene.delete(scene.logs[0], 4)
    scene.workers.drain()
    scene.directory.close()
    scene.workers = scene.place.workers = LateWorkers()
    scene.directory = scene.place.open()
    scene.logs = [scene.open(number) for number in range(2)]

    def refuse(operation: str, path: str) -> None:
        if operation == "pwritev" and CHECKPOINT in path:
            raise OSError(errno.ENOSPC, "on purpose", path)

    scene.files.fault = refuse
    scene.delete(scene.logs[0], 5)
    scene.files.fault = None
    scene.directory.remove_log(scene.logs[0].name)
    append(scene.open(0), batch(b"new"))
    scene.workers.drain()
    assert scene.outcomes[1] is not None
    scene.delete(scene.logs[1], 1)
    scene.workers.drain()
    scene.directory = scene.place.open()
    log = scene.open(0)
    assert (log.log_start_offset, log.end_offset) == (0, 1)


def test_a_log_that_is_truncated_meanwhile_keeps_what_is_written_since() -> None:
    scene = Scene(1)
    log = scene.logs[0]
    scene.files.fault = None
    scene.delete(log, 4)
    log.truncate_to(2)
    for _ in range(3):
        append(log, batch(b"new"))
    scene.workers.drain()
    assert [error is not None for error in scene.outcomes] == [True]
    assert log.log_start_offset == 0
    scene.directory = scene.place.open()
    assert scene.open(0).log_start_offset == 0


def test_a_crash_after_a_truncation_takes_nothing_that_was_written_since() -> None:
    """The log start of truncated records was stored a moment before it was corrected."""
    scene = Scene(1)
    log = scene.logs[0]
    scene.files.fault = None
    scene.delete(log, 4)
    log.truncate_to(2)
    append(log, batch(b"new"))
    scene.workers.finish_one()
    scene.directory = scene.place.open()
    log = scene.open(0)
    assert (log.log_start_offset, log.end_offset) == (0, 3)


def test_a_request_from_before_a_truncation_does_not_affect_a_later_one() -> None:
    scene = Scene(2)
    first, log = scene.logs
    scene.files.fault = None
    scene.delete(first, 1)
    # These two wait for the first one, and are stored together.
    scene.delete(log, 4)
    log.truncate_to(2)
    for _ in range(3):
        append(log, batch(b"new"))
    scene.delete(log, 1)
    scene.workers.finish_one()
    scene.workers.finish_one()
    starts = [log.log_start_offset]
    scene.workers.drain()
    assert [error is None for error in scene.outcomes] == [True, False, True]
    scene.directory = scene.place.open()
    starts.append(scene.open(1).log_start_offset)
    assert starts == [1, 1], "what is acknowledged survives a crash"
