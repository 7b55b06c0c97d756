"""Shared by tests of the disk: a data directory on simulated or real files, and batches."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

from runnel.batch.build import build_batch
from runnel.batch.header import read_header, walk_headers
from runnel.batch.records import Record
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.keyring import Keyring
from runnel.disk.staged_write import BACKGROUND_BYTES_MIN
from runnel.disk.workers import InlineWorkers
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.ports.disk import BlockingRead, FileSlice, Origin, Slice
from runnel.ports.files import File, Files, Workers
from runnel.sim.files import SimFiles

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000
EVERYTHING = 2**62

Found = TypeVar("Found")


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test inside an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class HeldWorkers(InlineWorkers):
    """Work that is done when the test runs it."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []
        self.is_working = False
        """Does a thread work just now, not the event loop?"""

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def in_thread() -> Any:
            self.is_working = True
            try:
                return work()
            finally:
                self.is_working = False

        self.held.append(lambda: super(HeldWorkers, self).submit(in_thread, done))

    def run_all(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        outcomes: list[Any] = []
        for work in works:
            super().submit(work, lambda result, failure: outcomes.append(failure or result))
        return outcomes

    def finish_one(self) -> None:
        self.held.pop(0)()

    def drain(self) -> None:
        while self.held:
            self.finish_one()


class ManualClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.jump_ms = 0
        """By how much the wall clock was set."""

    def now_ms(self) -> int:
        return self.ms + self.jump_ms

    def monotonic_ms(self) -> int:
        return self.ms

    def seconds(self) -> float:
        return self.ms / 1000


class CountingEntropy:
    """Ids that differ and repeat."""

    def __init__(self) -> None:
        self.count = 0

    def id_bytes(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, bound: int) -> int:
        return 0


@dataclass
class Place:
    """A folder in which a data directory lives through restarts."""

    files: Files = field(default_factory=SimFiles)
    path: str = "/data"
    clock: ManualClock = field(default_factory=ManualClock)
    workers: Workers = field(default_factory=InlineWorkers)
    write_workers: Workers = field(default_factory=InlineWorkers)
    read_workers: Workers = field(default_factory=InlineWorkers)
    background_bytes_min: int = BACKGROUND_BYTES_MIN
    open_files_max: int = 100
    master_keys: Sequence[bytes] = ()
    """The master keys of the node, the current one first."""

    def open(self) -> DataDirectory:
        return DataDirectory(
            self.path,
            files=self.files,
            clock=self.clock,
            entropy=CountingEntropy(),
            write_workers=self.write_workers,
            sync_workers=self.workers,
            upkeep_workers=self.workers,
            read_workers=self.read_workers,
            open_files_max=self.open_files_max,
            background_bytes_min=self.background_bytes_min,
            keyring=Keyring(self.master_keys, self.files, self.path) if self.master_keys else None,
        )

    def open_log(self, config: LogConfig | None = None) -> tuple[DataDirectory, DiskLog]:
        directory = self.open()
        return directory, commit(directory.open_log(PARTITION, TOPIC_ID, config or LogConfig()))


def files_of(place: Place) -> SimFiles:
    """The simulated files of a place."""
    assert isinstance(place.files, SimFiles)
    return place.files


def commit(log: DiskLog) -> DiskLog:
    """All that is written is committed, as where the leader is the only replica."""
    log.advance_high_watermark(log.written_offset)
    return log


def batch(
    *values: bytes,
    timestamp_ms: int = START_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = 0,
) -> bytearray:
    """A batch as a client sends it; each record is a millisecond younger than the one before."""
    return build_batch(
        [Record(0, timestamp_ms + number, b"key", value) for number, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        compression=compression,
    )


def append(log: DiskLog, data: bytes | bytearray, *, leader_epoch: int = 0, now_ms: int = START_MS) -> int:
    """Stage and write one batch; its base offset."""
    staged = log.stage(memoryview(bytearray(data)), leader_epoch, now_ms, Origin.CLIENT)
    log.write_staged()
    commit(log)
    return staged.base_offset


def slice_bytes(found: Slice) -> bytes:
    """The bytes of a slice, as the network would send them."""
    parts: list[bytes] = []
    for part in found.parts:
        if isinstance(part, FileSlice):
            parts.append(cast("File", part.file).pread(part.length, part.position))
        else:
            parts.append(bytes(part))
    data = b"".join(parts)
    assert len(data) == found.size_bytes
    return data


def run_now(read: BlockingRead[Found]) -> Found:
    """Run a blocking read without a thread."""
    read.run()
    return read.finish()


def read_all(log: DiskLog, max_bytes: int = 100_000) -> list[bytes]:
    """Every batch that the log holds from its start on, read as a consumer reads."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.written_offset:
        data = slice_bytes(log.read(offset, max_bytes, EVERYTHING, at_least_one=True))
        assert data, f"nothing at {offset} of {log.written_offset}"
        for position, header in walk_headers(data):
            found.append(data[position : position + header.size_bytes])
            offset = header.next_offset
    return found


def offsets_of(batches: list[bytes]) -> list[int]:
    return [read_header(one).base_offset for one in batches]
