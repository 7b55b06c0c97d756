"""The same logs on the operating system's own files: descriptors, locks, a full volume, a killed process."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.batch.header import walk_headers
from runnel.disk.disk_log import DiskLog
from runnel.disk.os_files import OsFiles
from runnel.disk.workers import LoopWorkers
from runnel.log.names import LOCK
from runnel.model.errors import StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FlushPolicy, LogConfig
from runnel.ports.disk import FileSlice, Origin
from tests.disk.world import (
    EVERYTHING,
    START_MS,
    TOPIC_ID,
    ManualClock,
    Place,
    append,
    batch,
    in_loop,
    offsets_of,
    read_all,
    slice_bytes,
)
from tools.processes import child


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(OsFiles(), str(tmp_path / "made" / "on" / "demand"))


def test_a_log_lives_through_restarts_and_crashes(place: Place) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=300)
    directory, log = place.open_log(config)
    for number in range(30):
        append(log, batch(b"%d" % number * 50, producer_id=4, producer_epoch=0, base_sequence=number))
    before = read_all(log)
    directory.close()
    _, log = place.open_log(config)
    assert read_all(log) == before
    append(log, batch(b"x", producer_id=4, producer_epoch=0, base_sequence=30))
    before = read_all(log)
    log = reopened_after_a_kill(place, config)
    assert read_all(log) == before
    repeated = log.stage(
        memoryview(batch(b"x", producer_id=4, producer_epoch=0, base_sequence=30)), 0, START_MS, Origin.CLIENT
    )
    assert (repeated.duplicate, repeated.base_offset) == (True, 30)


def reopened_after_a_kill(place: Place, config: LogConfig) -> DiskLog:
    """The log in a copy of the folder as it is now, since this process still holds the lock."""
    copy = place.path + "-after"
    shutil.copytree(place.path, copy)
    place.path = copy
    return place.open_log(config)[1]


def test_only_one_process_at_a_time(place: Place) -> None:
    directory = place.open()
    with pytest.raises(BlockingIOError):
        place.open()
    directory.close()
    place.open().close()


LOCKED_AS_JAVA_DOES = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_not_together_with_apache_kafka(place: Place) -> None:
    """Java has locks of another kind on the same file."""
    place.open().close()
    command = [sys.executable, "-c", LOCKED_AS_JAVA_DOES, f"{place.path}/{LOCK}"]
    with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError):
            place.open()
        other.communicate()
    place.open().close()


def test_descriptors_are_bounded(place: Place) -> None:
    place.open_files_max = 10
    directory = place.open()
    before = len(os.listdir("/proc/self/fd"))
    logs = [directory.open_log(TopicPartition("many", number), TOPIC_ID, LogConfig()) for number in range(60)]
    for _ in range(3):
        for log in logs:
            append(log, batch(b"x"))
    assert len(os.listdir("/proc/self/fd")) - before <= 10
    assert all(offsets_of(read_all(log)) == [0, 1, 2] for log in logs)
    assert len(os.listdir("/proc/self/fd")) - before <= 10
    directory.close()
    assert len(os.listdir("/proc/self/fd")) < before


def test_a_file_is_sent_after_its_segment_was_deleted(place: Place) -> None:
    config = LogConfig(segment_bytes=150_000, file_delete_delay_ms=0)
    directory, log = place.open_log(config)
    for _ in range(3):
        append(log, batch(os.urandom(100_000)))
    found = log.read(0, 10**6, EVERYTHING, at_least_one=True)
    expected = slice_bytes(found)
    (part,) = found.parts
    assert isinstance(part, FileSlice)
    log.delete_records_before(2)
    directory.upkeep(START_MS)
    assert not (Path(place.path) / "orders-0" / "00000000000000000000.log").exists()
    ours, theirs = socket.socketpair()
    received = bytearray()
    position = part.position
    with ours, theirs:
        while len(received) < part.length:
            count = part.length - len(received)
            sent = os.sendfile(ours.fileno(), part.file.fileno(), position, min(count, 50_000))
            position += sent
            received += theirs.recv(sent, socket.MSG_WAITALL)
    assert received == expected
    descriptor = part.file.fileno()
    del part, found
    with pytest.raises(OSError):
        os.fstat(descriptor)
    directory.close()


def test_more_batches_than_one_call_takes(place: Place) -> None:
    directory, log = place.open_log()
    data = [batch(b"%d" % number) for number in range(3000)]
    for one in data:
        log.stage(memoryview(one), 0, START_MS, Origin.CLIENT)
    log.write_staged()
    assert b"".join(read_all(log)) == b"".join(data)
    directory.close()


@in_loop
async def test_real_threads_make_it_durable(tmp_path: Path) -> None:
    place = Place(OsFiles(), str(tmp_path), workers=LoopWorkers(3, "test"))
    directory, log = place.open_log(LogConfig(flush_policy=FlushPolicy.COMMIT, segment_bytes=3000))
    waiting = []
    for number in range(100):
        append(log, batch(b"%d" % number * 20))
        waiting.append((log.written_offset, directory.sync(log)))
    for written_offset, future in waiting:
        assert await future >= written_offset
    assert log.durable_offset == 100
    directory.close()
    assert (tmp_path / "orders-0" / "00000000000000000000.index").exists() or len(log.segments.segments) > 1


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs the superuser")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.root
def test_a_full_volume_refuses_and_recovers(small_volume: Path) -> None:
    place = Place(OsFiles(), str(small_volume / "data"))
    config = LogConfig(segment_bytes=50_000, retention_bytes=60_000, file_delete_delay_ms=0)
    directory, log = place.open_log(config)
    written = 0
    with pytest.raises(StorageFailed):
        while True:
            append(log, batch(os.urandom(20_000)))
            written += 1
    assert written > 5
    assert offsets_of(read_all(log)) == list(range(written))
    with pytest.raises(StorageFailed):
        append(log, batch(os.urandom(40_000)))
    # Retention makes room, and the log takes writes again.
    directory.upkeep(START_MS)
    assert append(log, batch(os.urandom(20_000))) == written
    expected = read_all(log)
    directory.close()
    directory, log = place.open_log(config)
    assert read_all(log) == expected
    directory.close()


WRITER = """
import sys
from runnel.disk.disk_log import DiskLog
from runnel.disk.os_files import OsFiles
from runnel.model.log_config import LogConfig
from tests.disk.world import Place, append, batch
_, log = Place(OsFiles(), sys.argv[1]).open_log(LogConfig(segment_bytes=20_000))
while True:
    offset = append(log, batch(b"%d" % log.end_offset * 100))
    sys.stdout.write(f"{offset}\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("lines", [1, 57, 400])
def test_a_killed_writer_loses_nothing_it_reported(tmp_path: Path, lines: int) -> None:
    root = Path(__file__).parents[2]
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=root, env={**os.environ}
    )
    assert writer.stdout is not None
    reported = [int(writer.stdout.readline()) for _ in range(lines)]
    writer.kill()
    reported += [int(line) for line in writer.stdout.read().splitlines() if line]
    writer.wait()
    writer.stdout.close()
    directory, log = Place(OsFiles(), str(tmp_path), ManualClock()).open_log(LogConfig(segment_bytes=20_000))
    found = b"".join(read_all(log))
    offsets = [header.base_offset for _, header in walk_headers(found)]
    assert offsets[: len(reported)] == reported
    assert len(offsets) <= len(reported) + 1
    directory.close()
