"""A compacted log for tests, and the model that it is compared with."""

from collections.abc import Callable, Sequence
from random import Random

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.records import Record, iterate_records
from runnel.disk.cleaner import Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.dump import ProblemRow, dump
from runnel.disk.keyring import Keyring
from runnel.disk.workers import InlineWorkers
from runnel.log.names import CLEANED, COMPACTION_SWAP
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from runnel.sim.files import SimFiles
from tests.disk.world import commit
from tests.stored import stored_batches

NAME = TopicPartition("table", 0)
ID = bytes(range(16))
CONFIG = LogConfig(
    cleanup_compact=True,
    cleanup_delete=False,
    segment_bytes=700,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=1000,
    index_interval_bytes=100,
)
NOW_MS = 50_000


class Still:
    """A stopped clock, and constant randomness."""

    def now_ms(self) -> int:
        return NOW_MS

    monotonic_ms = now_ms

    def seconds(self) -> float:
        return NOW_MS / 1000

    def id_bytes(self) -> bytes:
        return bytes(range(16))

    def below(self, bound: int) -> int:
        return 0


class QueueWorkers(InlineWorkers):
    """Work that is done when the test runs it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable, Callable]] = []

    def submit(self, work, done) -> None:
        self.waiting.append((work, done))

    def do_one(self) -> None:
        work, done = self.waiting.pop(0)
        super().submit(work, done)


def new_files() -> SimFiles:
    """An empty disk on which the data directory's own name is durable."""
    files = SimFiles()
    files.make_folder("/data")
    files.sync_folder("/")
    return files


def directory(files, path: str = "/data", master_keys: Sequence[bytes] = ()) -> DataDirectory:
    world = Still()
    return DataDirectory(
        path,
        files=files,
        clock=world,
        entropy=world,
        write_workers=InlineWorkers(),
        sync_workers=InlineWorkers(),
        upkeep_workers=InlineWorkers(),
        read_workers=InlineWorkers(),
        keyring=Keyring(master_keys, files, path) if master_keys else None,
    )


def open_log(files, config: LogConfig = CONFIG, master_keys: Sequence[bytes] = ()) -> DiskLog:
    return commit(directory(files, master_keys=master_keys).open_log(NAME, ID, config))


def append(log: DiskLog, *pairs, at: int = NOW_MS, **settings) -> int:
    batch = build_batch([Record(0, at, key, value) for key, value in pairs], **settings)
    staged = log.stage(memoryview(batch), 1, NOW_MS, Origin.CLIENT)
    log.write_staged()
    commit(log)
    return staged.base_offset


def fill(log: DiskLog, random: Random, count: int = 60) -> None:
    for _ in range(count):
        pairs = [
            (b"key-%d" % random.randrange(12), random.choice([None, b"x" * random.randrange(40), b"y"]))
            for _ in range(random.randint(1, 4))
        ]
        append(log, *pairs, at=NOW_MS - random.randrange(100), compression=random.choice(list(Compression)))


def records(log: DiskLog) -> list[Record]:
    return [
        record
        for batch in stored_batches(log, log.log_start_offset, log.end_offset)
        for record in iterate_records(batch)
    ]


def table(log: DiskLog) -> dict[bytes | None, bytes]:
    """The twin: a dict of last values."""
    state: dict[bytes | None, bytes] = {}
    for record in records(log):
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def cleaner(**settings) -> Cleaner:
    return Cleaner(InlineWorkers(), throttle=lambda: None, **settings)


def compact(log: DiskLog, now_ms: int = NOW_MS, **settings) -> None:
    commit(log)
    compact_uncommitted(log, now_ms, **settings)


def compact_uncommitted(log: DiskLog, now_ms: int = NOW_MS, **settings) -> None:
    """Compact as far as the high watermark permits."""
    complaints: list[str] = []
    cleaner(report=complaints.append, **settings).consider([log], now_ms)
    assert complaints == []


def problems(files) -> list[ProblemRow]:
    return [row for row in dump(files, "/data/table-0") if isinstance(row, ProblemRow)]


def leftovers(files) -> list[str]:
    names = files.names("/data/table-0")
    return [name for name in names if name.endswith(CLEANED) or name == COMPACTION_SWAP]
