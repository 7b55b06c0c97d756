"""Compaction of logs with transactions: what a reader of committed records makes of the log stays the same.

The model keeps every batch as it was written. The reader is as simple as a client's: fetch by fetch, with the
list of aborted transactions that comes with each.
"""

from random import Random

import pytest

from runnel.batch.build import build_batch
from runnel.batch.control import EndMarker, build_end_marker, read_end_marker
from runnel.batch.header import read_header, walk_headers
from runnel.batch.records import Record, iterate_records
from runnel.disk.aborted_on_disk import aborted_of
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.log.names import ABORTED
from runnel.ports.disk import Origin
from runnel.sim.files import PowerFailure
from tests.disk.compacted import CONFIG, ID, NAME, NOW_MS, compact, directory, new_files, problems
from tests.disk.test_transactions import Walk
from tests.disk.world import slice_bytes
from tests.stored import stored_batches

PRODUCERS = (7, 8, 9)
Row = tuple[int, bytes | None, bytes | None]


def committed_rows(log: DiskLog, random: Random) -> list[Row]:
    """What a reader of committed records sees from the start to the last stable offset."""
    rows: list[Row] = []
    log.advance_high_watermark(log.written_offset)
    end_offset = log.last_stable_offset
    offset = log.log_start_offset
    while offset < end_offset:
        found = log.read(offset, random.choice([1, 300, 900, 5000]), end_offset, at_least_one=True)
        assert found.parts, f"nothing from {offset} to {end_offset}"
        waiting = log.aborted_transactions(offset, found.end_offset)
        assert waiting == sorted(waiting, key=lambda entry: entry[1])
        void: set[int] = set()
        data = slice_bytes(found)
        for position, header in walk_headers(data):
            while waiting and waiting[0][1] <= header.last_offset:
                void.add(waiting.pop(0)[0])
            batch = data[position : position + header.size_bytes]
            if header.is_control:
                marker = read_end_marker(batch)
                if marker is not None and not marker.committed:
                    void.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in void):
                rows += [(record.offset, record.key, record.value) for record in iterate_records(batch)]
            offset = header.next_offset
    return rows


def table(rows: list[Row]) -> dict[bytes | None, bytes]:
    state: dict[bytes | None, bytes] = {}
    for _, key, value in rows:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


class CleaningHistory:
    """One random history of a compacted log."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = new_files()
        self.batches: list[bytes] = []
        self.now_ms = NOW_MS
        self.directory: DataDirectory
        self.log: DiskLog
        self.open()

    def open(self) -> None:
        self.directory = directory(self.files)
        self.log = self.directory.open_log(NAME, ID, CONFIG)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.random.choice(
                [self.append, self.append, self.append, self.clean, self.clean, self.restart, self.open]
            )
            if self.random.random() < 0.2:
                self.files.power_failure_at = self.files.operations + self.random.randint(1, 40)
            try:
                step()
            except PowerFailure:
                self.lose_power()
            self.files.power_failure_at = -1
            self.check()

    def lose_power(self) -> None:
        while True:
            self.files.lose_power(self.random)
            self.files.power_failure_at = -1
            if self.random.random() < 0.3:
                self.files.power_failure_at = self.files.operations + self.random.randint(1, 30)
            try:
                self.open()
            except PowerFailure:
                continue
            break
        end_offset = self.log.written_offset
        self.batches = [batch for batch in self.batches if read_header(batch).next_offset <= end_offset]

    def restart(self) -> None:
        self.directory.close()
        self.open()

    def clean(self) -> None:
        self.now_ms += self.random.choice([0, 500, 2000])
        compact(self.log, self.now_ms, key_memory_bytes=self.random.choice([2000, 100_000]))

    def append(self) -> None:
        for _ in range(self.random.randint(1, 12)):
            walk = self.walk()
            data, origin = self.some_batch(walk)
            self.log.stage(memoryview(data), 1, NOW_MS, origin)
            self.batches.append(bytes(data))
            self.log.write_staged()

    def some_batch(self, walk: Walk) -> tuple[bytearray, Origin]:
        producer_id = self.random.choice(PRODUCERS)
        epoch = walk.epochs.get(producer_id, 0)
        if self.random.random() < 0.35:
            marker = EndMarker(self.random.random() < 0.5, coordinator_epoch=0)
            epoch += self.random.randint(0, 1)
            data = build_end_marker(
                marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=NOW_MS
            )
            return data, Origin.COORDINATOR
        records = [
            Record(0, NOW_MS, b"%d" % self.random.randrange(8), self.random.choice([None, b"x" * 30, b"y"]))
            for _ in range(self.random.randint(1, 3))
        ]
        if self.random.random() < 0.25:
            return build_batch(records), Origin.CLIENT
        data = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=walk.sequences.get(producer_id, 0),
            transactional=producer_id in walk.open or self.random.random() < 0.9,
        )
        return data, Origin.CLIENT

    def walk(self) -> Walk:
        walk = Walk()
        for batch in self.batches:
            walk.meet(batch)
        return walk

    def expected_rows(self, walk: Walk) -> list[Row]:
        void = [
            (producer, first, marker) for producer, first, marker, committed in walk.ended if not committed
        ]
        rows: list[Row] = []
        for batch in self.batches:
            header = read_header(batch)
            is_void = any(
                header.producer_id == producer and first <= header.base_offset <= marker
                for producer, first, marker in void
            )
            if not header.is_control and not (header.is_transactional and is_void):
                rows += [(record.offset, record.key, record.value) for record in iterate_records(batch)]
        return rows

    def check(self) -> None:
        walk = self.walk()
        end_offset = self.log.written_offset
        stable_offset = walk.last_stable_offset(end_offset, 0)
        self.log.advance_high_watermark(end_offset)
        assert self.log.last_stable_offset == stable_offset
        expected = [row for row in self.expected_rows(walk) if row[0] < stable_offset]
        found = committed_rows(self.log, self.random)
        assert set(found) <= set(expected)
        assert [row[0] for row in found] == sorted(row[0] for row in found)
        assert table(found) == table(expected)
        self.check_entries(walk)
        assert problems(self.files) == []

    def check_entries(self, walk: Walk) -> None:
        """A reader that gets an aborted transaction finds its end marker: else it would skip what follows."""
        segments = self.log.segments
        markers = {
            read_header(batch).base_offset: read_end_marker(batch)
            for batch in stored_batches(self.log, 0, self.log.written_offset)
            if read_header(batch).is_control
        }
        aborted = {(producer, first, marker) for producer, first, marker, yes in walk.ended if not yes}
        for segment in segments.segments:
            for entry in aborted_of(segments, segment):
                assert entry[:3] in aborted
                marker = markers.get(entry.last_offset)
                assert marker is not None and not marker.committed


@pytest.mark.parametrize("block", range(10))
def test_compaction_changes_nothing_for_readers_of_committed_records(block: int) -> None:
    for seed in range(block * 5, block * 5 + 5):
        try:
            CleaningHistory(seed).run(25)
        except BaseException as failure:
            raise AssertionError(f"seed {seed}") from failure


def test_aborted_records_are_removed_eventually() -> None:
    history = CleaningHistory(0)
    log = history.log
    for sequence in range(30):
        data = build_batch(
            [Record(0, NOW_MS, b"key", b"void" * 20)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        marker = build_end_marker(EndMarker(False, 0), producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)
        for batch, origin in ((data, Origin.CLIENT), (marker, Origin.COORDINATOR)):
            log.stage(memoryview(batch), 1, NOW_MS, origin)
            log.write_staged()
    before_bytes = log.size_bytes
    assert any(name.endswith(ABORTED) for name in history.files.names("/data/table-0"))
    for count in range(1, 6):
        # The records first, then their ends get a horizon, and then these go as well.
        data = build_batch([Record(0, NOW_MS, b"other", b"filler" * 100)])
        log.stage(memoryview(data), 1, NOW_MS, Origin.CLIENT)
        log.write_staged()
        compact(log, NOW_MS + 2000 * count)
    assert log.size_bytes < before_bytes / 2
    # The last one stays for as long as its producer's last sequence must be remembered.
    closed = log.closed_segments()
    assert [entry.last_offset for segment in closed for entry in aborted_of(log.segments, segment)] == [59]
    headers = list(map(read_header, stored_batches(log, 0, 60)))
    assert [header.base_offset for header in headers if header.is_control and header.record_count] == [59]
    assert [header.base_offset for header in headers if not header.is_control] == [58]
