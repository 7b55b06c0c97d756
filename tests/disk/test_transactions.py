"""Transactions in random histories of crashes, cuts, rolls and restarts, held against an obvious model.

The model walks over all batches that were ever written and are still there, and notes where each transaction
begins and ends. It has no index, no snapshot and no memory that could be wrong.
"""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from runnel.batch.build import build_batch
from runnel.batch.control import EndMarker, build_end_marker, read_end_marker
from runnel.batch.header import read_header
from runnel.batch.records import Record
from runnel.disk.aborted_on_disk import aborted_of
from runnel.disk.disk_log import DiskLog
from runnel.disk.reading import walk_batches
from runnel.disk.retention import apply_retention
from runnel.disk.workers import InlineWorkers
from runnel.log.names import ABORTED, offset_name
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from runnel.sim.files import PowerFailure, SimFiles
from tests.disk.test_crash_histories import History, Model
from tests.disk.world import PARTITION, START_MS, HeldWorkers, Place, files_of, read_all

PRODUCERS = (7, 8, 9)


@dataclass
class Walk:
    """The state according to one walk over all batches."""

    sequences: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    ended: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """(producer, first offset, marker, committed)."""

    def meet(self, batch: bytes) -> None:
        header = read_header(batch)
        producer_id = header.producer_id
        if producer_id < 0:
            return
        if header.is_control:
            marker = read_end_marker(batch)
            assert marker is not None
            if self.epochs.get(producer_id) != header.producer_epoch:
                self.sequences[producer_id] = 0
            if producer_id in self.open:
                first_offset = self.open.pop(producer_id)
                self.ended.append((producer_id, first_offset, header.base_offset, marker.committed))
        else:
            self.sequences[producer_id] = header.base_sequence + header.record_count
            if header.is_transactional:
                self.open.setdefault(producer_id, header.base_offset)
        self.epochs[producer_id] = header.producer_epoch

    def last_stable_offset(self, high_watermark: int, start_offset: int) -> int:
        unsure = [first for _, first, marker, _ in self.ended if marker >= high_watermark]
        return min([high_watermark, *(max(first, start_offset) for first in [*self.open.values(), *unsure])])

    def aborted(self, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
        met = [
            (first, producer_id)
            for producer_id, first, marker, committed in self.ended
            if not committed and marker >= first_offset and first < end_offset
        ]
        return [(producer_id, first) for first, producer_id in sorted(met)]


class TransactionModel(Model):
    """The batches of a history, and what producers had done before the first of them."""

    before = Walk()

    def walk(self) -> Walk:
        walk = Walk(dict(self.before.sequences), dict(self.before.epochs), dict(self.before.open))
        for batch in self.batches:
            walk.meet(batch)
        return walk

    def cut(self, end_offset: int) -> None:
        super().cut(end_offset)
        self.sequences = self.walk().sequences


class TransactionHistory(History):
    """The same histories, with batches of transactions and their ends."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.model: TransactionModel = TransactionModel()
        self.is_recovered = False

    async def append(self) -> None:
        walk = self.model.walk()
        before = len(self.model.batches)
        staged: list[bytearray] = []
        for _ in range(self.random.randint(1, 6)):
            data, origin = self.some_batch(walk)
            self.log.stage(memoryview(data), 3, self.place.clock.ms, origin)
            walk.meet(bytes(data))
            staged.append(data)
        # The bytes are in the file from the first write on, whether or not that is reported.
        self.model.batches += [bytes(data) for data in staged]
        self.model.sequences = walk.sequences
        try:
            self.log.write_staged()
        except StorageFailed:
            self.model.undone += self.model.batches[before:]
            del self.model.batches[before:]
            self.model.cut(self.model.end_offset)

    def some_batch(self, walk: Walk) -> tuple[bytearray, Origin]:
        self.number += 1
        time_ms = START_MS + self.random.randint(0, 9999)
        producer_id = self.random.choice(PRODUCERS)
        epoch = walk.epochs.get(producer_id, 0)
        if self.random.random() < 0.4:
            # Each end with or without a new epoch, and now and then one for a transaction that is not there.
            marker = EndMarker(self.random.random() < 0.4, coordinator_epoch=0)
            epoch += self.random.randint(0, 1)
            data = build_end_marker(
                marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=time_ms
            )
            return data, Origin.COORDINATOR
        value = b"%d:" % self.number + bytes(self.random.randint(0, 200))
        records = [Record(0, time_ms, b"key", value) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.3:
            return build_batch(records), Origin.CLIENT
        return self.data_batch(records, producer_id, epoch, walk), Origin.CLIENT

    def data_batch(self, records: list[Record], producer_id: int, epoch: int, walk: Walk) -> bytearray:
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=walk.sequences.get(producer_id, 0),
            transactional=producer_id in walk.open or self.random.random() < 0.8,
        )

    def open(self) -> None:
        super().open()
        self.is_recovered = True

    def power_cut(self) -> None:
        super().power_cut()
        self.remember_what_was_before()

    def remember_what_was_before(self) -> None:
        """All batches are deleted: only the log itself knows the state of their producers."""
        if self.model.batches:
            return
        known = list(self.log.producers())
        self.model.before = Walk(
            {producer.producer_id: producer.last_sequence + 1 for producer in known},
            {producer.producer_id: producer.producer_epoch for producer in known},
            {
                producer.producer_id: producer.current_transaction_start_offset
                for producer in known
                if producer.current_transaction_start_offset >= 0
            },
        )

    def compare(self) -> None:
        if not self.model.batches:
            self.remember_what_was_before()
        super().compare()
        log, walk = self.log, self.model.walk()
        self.commit_some()
        high_watermark = log.high_watermark
        stable_offset = walk.last_stable_offset(high_watermark, log.log_start_offset)
        if self.is_recovered:
            # Snapshots do not contain ends that were about to be committed.
            assert stable_offset <= log.last_stable_offset
            self.is_recovered = False
            high_watermark = log.written_offset
            log.advance_high_watermark(high_watermark)
            stable_offset = walk.last_stable_offset(high_watermark, log.log_start_offset)
        assert log.last_stable_offset == stable_offset
        self.compare_aborted(walk, stable_offset)
        self.compare_files(walk)
        assert walk.open == {
            producer.producer_id: producer.current_transaction_start_offset
            for producer in log.producers()
            if producer.current_transaction_start_offset >= 0
        }

    def compare_aborted(self, walk: Walk, stable_offset: int) -> None:
        for _ in range(5):
            first_offset = self.random.randint(min(self.log.log_start_offset, stable_offset), stable_offset)
            end_offset = self.random.randint(first_offset, stable_offset)
            found = self.log.aborted_transactions(first_offset, end_offset)
            assert found == walk.aborted(first_offset, end_offset), (first_offset, end_offset)

    def compare_files(self, walk: Walk) -> None:
        """Every segment knows the transactions that were aborted in it, and no others."""
        segments = self.log.segments
        found = [entry for segment in segments.segments for entry in aborted_of(segments, segment)]
        # What a power cut left below the log start is there, but the model has forgotten it.
        start_offset = max(segments.segments[0].base_offset, self.model.first_offset)
        aborted = [
            (producer_id, first, marker)
            for producer_id, first, marker, committed in walk.ended
            if not committed and marker >= start_offset
        ]
        assert [entry[:3] for entry in found if entry.last_offset >= start_offset] == aborted


@pytest.mark.parametrize("block", range(10))
def test_readers_of_committed_records_see_what_the_model_says(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        try:
            asyncio.run(TransactionHistory(seed).run(30))
        except BaseException as failure:
            raise AssertionError(f"seed {seed}") from failure


def abort_one(log: DiskLog, sequence: int, value: bytes = b"void") -> None:
    """One transaction of one record, and its end."""
    data = build_batch(
        [Record(0, START_MS, b"key", value)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    marker = build_end_marker(EndMarker(False, 0), producer_id=7, producer_epoch=0, timestamp_ms=START_MS)
    for batch, origin in ((data, Origin.CLIENT), (marker, Origin.COORDINATOR)):
        log.stage(memoryview(batch), 0, START_MS, origin)
        log.write_staged()


def markers_of(log: DiskLog) -> list[int]:
    """The offsets of the abort markers according to the log."""
    segments = log.segments
    return [entry.last_offset for one in segments.segments for entry in aborted_of(segments, one)]


def abort_markers_in(log: DiskLog) -> list[int]:
    """The offsets of the abort markers according to the batches."""
    headers = map(read_header, walk_batches(log.segments, 0, log.written_offset))
    return [header.base_offset for header in headers if header.is_control]


@pytest.mark.parametrize("is_rolled", [False, True])
def test_what_a_file_tells_beyond_the_last_snapshot_is_not_counted_twice(is_rolled: bool) -> None:
    place = Place()
    directory, log = place.open_log()
    abort_one(log, 0)
    if is_rolled:
        log.roll_now()
    else:
        directory.close()
        directory, log = place.open_log()
    abort_one(log, 1)
    # As if the power went between this and the snapshot, when the segment is sealed.
    log.segments.save_aborted(log.segments.active)
    _, log = place.open_log()
    assert markers_of(log) == [1, 3]
    assert log.aborted_transactions(0, 2) == [(7, 0)]


def test_a_damaged_file_is_made_anew_from_the_batches() -> None:
    place = Place()
    directory, log = place.open_log()
    abort_one(log, 0)
    log.roll_now()
    abort_one(log, 1)
    directory.close()
    for base_offset in (0, 2):
        place.files.write(f"/data/{PARTITION}/{offset_name(base_offset, ABORTED)}", b"x" * 35, sync=True)
    _, log = place.open_log()
    assert log.aborted_transactions(0, 4) == [(7, 0), (7, 2)]


def roll_and_seal(log: DiskLog) -> None:
    abort_one(log, 0)
    abort_one(log, 1)
    log.roll_now()
    abort_one(log, 2)


def roll_and_let_go(log: DiskLog) -> None:
    abort_one(log, 0, bytes(900))
    log.roll_now()
    abort_one(log, 1, bytes(900))
    log.roll_now()
    abort_one(log, 2)
    apply_retention(log, START_MS)


@pytest.mark.parametrize("seals", [True, False])
@pytest.mark.parametrize("scene", [roll_and_seal, roll_and_let_go])
def test_no_power_cut_parts_a_segment_from_what_was_aborted_in_it(
    scene: Callable[[DiskLog], None], seals: bool
) -> None:
    config = LogConfig(retention_bytes=1200, retention_ms=-1)

    def play_until(number: int) -> Place:
        place = Place(SimFiles(), workers=InlineWorkers() if seals else HeldWorkers())
        _, log = place.open_log(config)
        files_of(place).power_failure_at = number
        with suppress(PowerFailure):
            scene(log)
        return place

    for number in range(1, files_of(play_until(-1)).operations + 1):
        for seed in range(8):
            place = play_until(number)
            files_of(place).lose_power(Random(seed))
            _, log = place.open_log(config)
            assert markers_of(log) == abort_markers_in(log), (number, seed)


@pytest.mark.parametrize("seed", range(40))
def test_ends_that_threads_write_count_when_they_are_written(seed: int) -> None:
    """Large writes go on behind others, and all of them are undone together when the disk refuses one."""
    history = TransactionHistory(seed)
    random, workers = Random(seed), HeldWorkers()
    place = Place(SimFiles(), write_workers=workers, background_bytes_min=1)
    _, log = place.open_log(LogConfig(segment_bytes=1500))
    refused: list[ApiError | None] = []

    def fault(operation: str, path: str) -> None:
        if operation == "pwritev" and path.endswith(".log") and random.random() < 0.2:
            raise OSError(errno.ENOSPC, "no space left on device", path)

    files_of(place).fault = fault
    staged = Walk()
    for _ in range(80):
        if workers.held and random.random() < 0.4:
            workers.finish_one()
        else:
            data, origin = history.some_batch(staged)
            log.stage(memoryview(data), 0, START_MS, origin)
            staged.meet(bytes(data))
            assert log.write_later(refused.append)
        written = Walk()
        for batch in read_all(log):
            written.meet(batch)
        if log.end_offset == log.written_offset:
            staged = written
        assert markers_of(log) == [marker for _, _, marker, committed in written.ended if not committed]
        high_watermark = log.written_offset
        log.advance_high_watermark(high_watermark)
        assert log.last_stable_offset == written.last_stable_offset(high_watermark, 0)
    assert any(refused) and not all(refused)


async def play(history: TransactionHistory) -> None:
    """A fixed mixture of everything; a power cut ends it."""
    steps = [history.append, history.append, history.restart, history.append, history.append,
             history.truncate, history.append, history.delete, history.upkeep, history.append]  # fmt: skip
    try:
        for step in steps:
            await step()
            history.workers.drain()
    except PowerFailure:
        history.power_cut()
    history.files.power_failure_at = -1
    await history.kill()
    await history.append()
    await history.restart()


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_at_any_step_keeps_what_was_aborted(seed: int) -> None:
    whole = TransactionHistory(seed)
    first = whole.files.operations + 1
    asyncio.run(play(whole))
    for number in range(first, whole.files.operations, 2):
        history = TransactionHistory(seed)
        history.files.power_failure_at = number
        try:
            asyncio.run(play(history))
        except BaseException as failure:
            raise AssertionError(f"seed {seed}, cut at {number}") from failure
