"""Random histories of appends, syncs, deletions, restarts and power cuts, held against an obvious model.

The model is the list of batches in the order in which they were written. After any fault, the log is a
prefix of that list, and at least as long as what was promised: by a sync if the power went, by the write if
only the process did. All this holds for encrypted logs, too, and for logs that are encrypted in part.
"""

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from struct import iter_unpack

import pytest

from runnel.batch.header import read_header
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.walk import walk_headers_of_file
from runnel.disk.workers import InlineWorkers
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.log_config import FlushPolicy, LogConfig
from runnel.ports.disk import Origin
from runnel.sim.files import PowerFailure, SimFiles
from tests.disk.world import EVERYTHING, PARTITION, START_MS, TOPIC_ID, HeldWorkers, Place, batch, read_all
from tests.stored import stored_batches

PRODUCERS = (7, 8)


@dataclass
class Model:
    """What was written, what of it is promised, and what the producers have done."""

    batches: list[bytes] = field(default_factory=list)
    start_offset: int = 0
    """No record below may be seen, not even after a power cut."""
    durable_offset: int = 0
    """Everything below, from the start on, survives a power cut."""
    sequences: dict[int, int] = field(default_factory=dict)
    first_offset: int = 0
    """Where the first of the batches begins, or will."""
    forgotten: dict[int, int] = field(default_factory=dict)
    """The sequences before the first of the batches."""
    undone: list[bytes] = field(default_factory=list)
    """Written and taken back, which is not durable either: a power cut may bring them back."""

    @property
    def end_offset(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.first_offset

    def cut(self, end_offset: int) -> None:
        """What a crash took was never promised; the producers' next sequences are what is left of them."""
        self.batches = [one for one in self.batches if read_header(one).next_offset <= end_offset]
        self.sequences = dict(self.forgotten)
        for one in self.batches:
            header = read_header(one)
            if header.producer_id >= 0:
                self.sequences[header.producer_id] = header.base_sequence + header.record_count


class History:
    """One random history on one simulated disk."""

    def __init__(self, seed: int, master_keys: Sequence[bytes] = ()) -> None:
        """With master keys, encryption is turned on and off between restarts."""
        self.random = Random(seed)
        self.files = SimFiles()
        self.workers = HeldWorkers() if self.random.random() < 0.5 else InlineWorkers()
        self.place = Place(
            self.files,
            workers=self.workers,
            open_files_max=self.random.choice([1, 2, 100]),
            master_keys=master_keys,
        )
        self.config = LogConfig(
            segment_bytes=self.random.choice([1500, 3000, 10_000]),
            index_interval_bytes=self.random.choice([0, 100, 1000]),
            flush_policy=self.random.choice(list(FlushPolicy)),
            file_delete_delay_ms=self.random.choice([0, 60_000]),
            retention_ms=-1,
            retention_bytes=self.random.choice([-1, 6000]),
        )
        self.model = Model()
        self.number = 0
        self.directory: DataDirectory
        self.log: DiskLog
        self.open()

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.random.choice(
                [self.append, self.append, self.append, self.sync, self.upkeep, self.delete, self.restart,
                 self.kill, self.check, self.truncate, self.fill_up]
            )  # fmt: skip
            if self.random.random() < 0.25:
                self.files.power_failure_at = self.files.operations + self.random.randint(1, 12)
            try:
                await step()
                self.let_threads_work()
            except PowerFailure:
                self.power_cut()
            self.files.power_failure_at = -1
        await self.kill()
        await self.check()

    def let_threads_work(self, *, at_least_one: bool = False) -> None:
        """Do some of what was handed to threads, which may be any time later."""
        if isinstance(self.workers, HeldWorkers) and self.workers.held:
            for _ in range(self.random.randint(int(at_least_one), len(self.workers.held))):
                self.workers.finish_one()

    def open(self) -> None:
        if isinstance(self.workers, HeldWorkers):
            # The threads of the process that was before died with it.
            self.workers.held.clear()
        if self.place.master_keys:
            self.config = replace(self.config, encryption_enable=self.random.random() < 0.7)
        self.directory, self.log = self.place.open_log(self.config)

    async def append(self) -> None:
        staged: list[bytearray] = []
        for _ in range(self.random.randint(1, 5)):
            self.number += 1
            values = [b"%d:" % self.number + bytes(self.random.randint(0, 300))] * self.random.randint(1, 4)
            producer_id = self.random.choice([-1, *PRODUCERS])
            sequence = self.model.sequences.get(producer_id, 0)
            data = batch(
                *values,
                timestamp_ms=START_MS + self.random.randint(0, 9999),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence if producer_id >= 0 else -1,
            )
            if producer_id >= 0:
                self.model.sequences[producer_id] = sequence + len(values)
            view = memoryview(data)
            self.log.stage(
                view, self.random.choice([self.log.leader_epoch, 3]), self.place.clock.ms, Origin.CLIENT
            )
            staged.append(data)
        # The bytes are in the file from the first write on, whether or not that is reported.
        before = len(self.model.batches)
        self.model.batches += [bytes(data) for data in staged]
        try:
            self.log.write_staged()
        except StorageFailed:
            self.model.undone += self.model.batches[before:]
            del self.model.batches[before:]
            self.model.cut(self.model.end_offset)

    async def sync(self) -> None:
        written = self.log.written_offset
        future = self.directory.sync(self.log)
        while not future.done():
            self.let_threads_work(at_least_one=True)
        durable = await future
        assert durable >= written
        self.model.durable_offset = max(self.model.durable_offset, durable)
        self.model.undone.clear()

    async def upkeep(self) -> None:
        self.place.clock.ms += self.random.choice([100, 2000, 70_000])
        self.commit_some()
        self.directory.upkeep(self.place.clock.ms)

    def commit_some(self) -> None:
        """Followers may have all that is written, or lag behind."""
        log = self.log
        lagging_offset = self.random.randint(log.high_watermark, log.written_offset)
        log.advance_high_watermark(self.random.choice((lagging_offset, log.written_offset)))

    async def delete(self) -> None:
        self.commit_some()
        offset = self.random.randint(self.log.log_start_offset, self.log.high_watermark)
        outcomes: list[ApiError | None] = []
        model = self.model

        def done(error: ApiError | None) -> None:
            outcomes.append(error)
            if error is None:
                model.start_offset = max(model.start_offset, offset)

        self.log.delete_records_before(offset, done)
        # Other things may happen before it is durable, or it is waited for.
        while not outcomes and offset % 2:
            self.let_threads_work(at_least_one=True)

    async def truncate(self) -> None:
        if self.random.random() < 0.7 or not self.model.batches:
            return
        batches = [
            one for one in self.model.batches if read_header(one).base_offset >= self.log.log_start_offset
        ]
        if not batches:
            return
        offset = read_header(self.random.choice(batches)).base_offset
        self.model.durable_offset = min(self.model.durable_offset, offset)
        self.model.start_offset = min(self.model.start_offset, offset)
        self.log.truncate_to(offset)
        self.model.cut(offset)

    async def fill_up(self) -> None:
        failing = self.random.choice(["pwritev", "create", "truncate", "datasync"])
        countdown = self.random.randint(1, 3)

        def fault(operation: str, path: str) -> None:
            nonlocal countdown
            if operation == failing and path.endswith(".log"):
                countdown -= 1
                if countdown <= 0:
                    raise OSError(errno.ENOSPC, "no space left on device", path)

        self.files.fault = fault
        try:
            for _ in range(3):
                try:
                    await self.random.choice([self.append, self.sync])()
                except ApiError:
                    self.model.cut(self.log.end_offset)
        finally:
            self.files.fault = None
        # There is space again: the log is repaired.
        self.workers.drain()
        self.directory.upkeep(self.place.clock.ms)
        self.workers.drain()
        assert self.log.failure is None
        await self.check()

    async def restart(self) -> None:
        self.directory.close()
        self.model.durable_offset = self.model.end_offset
        self.model.undone.clear()
        self.open()
        await self.check()

    async def kill(self) -> None:
        self.model.cut(self.log.written_offset)
        self.open()
        await self.check()

    def power_cut(self) -> None:
        """The machine stops and starts, perhaps to stop again while it recovers."""
        while True:
            self.files.lose_power(self.random)
            if self.random.random() < 0.5:
                self.files.power_failure_at = self.files.operations + self.random.randint(1, 20)
            try:
                self.open()
            except PowerFailure:
                continue
            break
        self.files.power_failure_at = -1
        end_offset = self.log.written_offset
        assert end_offset >= min(self.model.durable_offset, self.model.end_offset)
        assert self.log.log_start_offset >= self.model.start_offset
        found = read_all(self.log)
        promised = [
            one for one in self.expected() if read_header(one).next_offset <= self.model.durable_offset
        ]
        assert found[: len(promised)] == promised
        assert set(found) <= set(self.model.batches + self.model.undone)
        self.model.batches = [one for one in self.model.batches if one not in self.expected()] + found
        self.model.cut(end_offset)
        if end_offset == self.log.log_start_offset:
            # All records were deleted, durably; that they had been written was not durable.
            self.model.batches = []
            self.model.first_offset = end_offset
            self.model.forgotten = self.known_sequences()
            self.model.sequences = self.known_sequences()
        self.compare()

    async def check(self) -> None:
        self.compare()

    def compare(self) -> None:
        log = self.log
        found = read_all(log, self.random.choice([1, 500, 100_000]))
        expected = self.expected()
        assert found == expected
        for one, other in pairwise(found):
            assert read_header(one).next_offset == read_header(other).base_offset
        if found:
            assert log.written_offset == read_header(found[-1]).next_offset
        assert log.end_offset == log.written_offset
        assert list(stored_batches(log, log.log_start_offset, EVERYTHING)) == expected
        assert log.size_bytes == sum(segment.size_bytes for segment in log.segments.segments)
        self.compare_indexes()
        assert self.known_sequences() == self.model.sequences

    def compare_indexes(self) -> None:
        """Every index entry is correct, no matter how it was loaded."""
        segments = self.log.segments
        for segment in segments.segments:
            file = segments.open(segment, create=True)
            batches = list(walk_headers_of_file(file, 0, segment.size_bytes))
            places = {position: header.last_offset - segment.base_offset for position, header in batches}
            entries = segments.offsets_of(segment).encode()
            assert all(places[position] == offset for offset, position in iter_unpack(">II", entries))
            times = {header.last_offset: header.max_timestamp for _, header in batches}
            for timestamp, offset in iter_unpack(">qI", segments.times_of(segment).encode()):
                assert times[segment.base_offset + offset] == timestamp
            assert segments.max_timestamp_of(segment) == max(times.values(), default=-1)

    def expected(self) -> list[bytes]:
        start_offset = self.log.log_start_offset
        return [one for one in self.model.batches if read_header(one).next_offset > start_offset]

    def known_sequences(self) -> dict[int, int]:
        return {producer.producer_id: producer.last_sequence + 1 for producer in self.log.producers()}


@pytest.mark.parametrize("block", range(10))
def test_nothing_promised_is_lost(block: int) -> None:
    for seed in range(block * 8, block * 8 + 8):
        try:
            asyncio.run(History(seed).run(30))
        except BaseException as failure:
            raise AssertionError(f"seed {seed}") from failure


@pytest.mark.parametrize("block", range(5))
def test_nothing_promised_of_an_encrypted_log_is_lost(block: int) -> None:
    for seed in range(block * 8, block * 8 + 8):
        try:
            asyncio.run(History(seed, master_keys=[bytes(range(32))]).run(30))
        except BaseException as failure:
            raise AssertionError(f"seed {seed}") from failure


def test_the_partition_is_known_after_a_crash() -> None:
    place = Place()
    place.open_log()
    assert list(place.open().known_logs()) == [PARTITION]
    assert place.open().open_log(PARTITION, TOPIC_ID, LogConfig()).end_offset == 0
