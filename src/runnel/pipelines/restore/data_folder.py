"""The data folder of a broker that is not running, read directly: Runnel's, or Apache Kafka's."""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from runnel.batch.errors import CorruptBatch
from runnel.batch.records import iterate_records
from runnel.log.checkpoints import DamagedCheckpoint, decode_offsets
from runnel.log.manifest import DamagedManifest, decode_manifest
from runnel.log.names import LOCK, LOG_STARTS, MANIFEST, partition_of
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import BadDataFolder
from runnel.pipelines.restore.segments import Scan, Stretch, scan, walk
from runnel.pipelines.source.columns import COLUMNS, TYPES
from runnel.pipelines.source.decode import Packed, packed, read_spans

GROUP_OFFSETS = "__consumer_offsets"
ROWS_BYTES = 4 * 1024 * 1024
"""How much of a file becomes one Arrow batch."""

_SHORT = Struct(">h")
_OFFSET_VALUE = Struct(">hq")


@dataclass(slots=True)
class FoundTopic:
    """A topic whose partitions a folder holds."""

    name: str
    partitions: list[int]
    size_bytes: int


class DataFolder:
    """A folder of logs that nobody else uses while it is open: see `held_data_folder`."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        names = os.listdir(path) if self.path.is_dir() else []
        self._partitions = sorted(
            partition
            for name in names
            if (partition := partition_of(name)) is not None and (self.path / name).is_dir()
        )
        if not self._partitions:
            raise BadDataFolder(f"{path} holds no partitions: it is not the data folder of a broker")
        self._log_starts = self._read_log_starts()

    def topics(self) -> list[FoundTopic]:
        """All topics, the broker's own included."""
        found: dict[str, FoundTopic] = {}
        for topic, number in self._partitions:
            entry = found.setdefault(topic, FoundTopic(topic, [], 0))
            entry.partitions.append(number)
            folder = self.path / f"{topic}-{number}"
            entry.size_bytes += sum(file.stat().st_size for file in folder.glob("*.log"))
        return list(found.values())

    def scan(self, session: SparkSession, topic: str) -> list[Scan]:
        """What stands in each partition of a topic, checked batch by batch, by Spark's tasks."""
        chosen = self._of(topic)
        # Plain values only: tasks may run in processes that know nothing of this object.
        places = [(str(self.path), *partition, self._log_starts.get(partition, 0)) for partition in chosen]
        tasks = session.sparkContext.parallelize(places, len(places))
        return tasks.map(_scan_place).collect()

    def read(self, session: SparkSession, scans: Sequence[Scan]) -> DataFrame:
        """The rows that a reader of committed records would have got, as the source has them."""
        pieces = [
            (replace(found, stretches=[], damages=[]), stretch)
            for found in scans
            for stretch in found.stretches
        ]
        schema = StructType([StructField(name, kind) for name, kind in TYPES.items()])
        if not pieces:
            return session.createDataFrame([], schema)
        numbers = session.range(0, len(pieces), 1, numPartitions=len(pieces))
        return numbers.mapInArrow(partial(_read_pieces, pieces, schema), schema)

    def group_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        """What each consumer group had committed, from the broker's own topic of them."""
        committed: dict[str, dict[TopicPartition, int]] = {}
        for topic, number in self._partitions:
            if topic == GROUP_OFFSETS:
                found = scan(self.path / f"{topic}-{number}", topic, number, 0)
                for key, value in _key_values(found):
                    _take_commit(committed, key, value)
        return committed

    def _of(self, topic: str) -> list[TopicPartition]:
        chosen = [partition for partition in self._partitions if partition.topic == topic]
        if not chosen:
            names = ", ".join(sorted({partition.topic for partition in self._partitions}))
            raise BadDataFolder(f"{self.path} holds no topic {topic}; it holds {names}")
        return chosen

    def _read_log_starts(self) -> dict[TopicPartition, int]:
        """Below these, records were deleted on request although their files may still be there."""
        starts: dict[TopicPartition, int] = {}
        with suppress(OSError, DamagedCheckpoint):
            starts |= decode_offsets((self.path / LOG_STARTS).read_bytes())
        with suppress(OSError, DamagedManifest):
            manifest = decode_manifest((self.path / MANIFEST).read_bytes())
            for partition, entry in manifest.items():
                starts[partition] = max(entry.log_start_offset, starts.get(partition, 0))
        return starts


@contextmanager
def held_data_folder(path: str) -> Iterator[DataFolder]:
    """The folder while no broker runs on it: its lock is taken, as a broker would take it."""
    folder = DataFolder(path)
    lock_path = folder.path / LOCK
    with ExitStack() as at_end:
        # A copy may lack the file: then there is nobody to ask.
        if lock_path.exists():
            _take(at_end.enter_context(lock_path.open("rb")), path)
        yield folder


def _take(lock: BinaryIO, path: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Java has locks of the other kind, which do not see the first.
        fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadDataFolder(
            f"a broker is running on {path}: stop it first, or read its topics from the broker"
        ) from None


def _scan_place(place: tuple[str, str, int, int]) -> Scan:
    path, topic, number, log_start_offset = place
    return scan(Path(path) / f"{topic}-{number}", topic, number, log_start_offset)


def _read_pieces(
    pieces: Sequence[tuple[Scan, Stretch]], schema: StructType, batches: Iterable[Any]
) -> Iterator[Any]:
    """Runs in a task: numbers of stretches in, their rows as Arrow batches out."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        for number in batch.column(0).to_pylist():
            found, stretch = pieces[number]
            partition = TopicPartition(found.topic, found.partition)
            for group in _packed_batches(found, stretch):
                for spans in read_spans(group, found.log_start_offset, 2**63 - 1):
                    columns = [COLUMNS[name](partition, spans) for name in schema.fieldNames()]
                    yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def _packed_batches(found: Scan, stretch: Stretch) -> Iterator[list[Packed]]:
    group: list[Packed] = []
    size_bytes = 0
    with open(stretch.path, "rb", buffering=0) as file:
        for _, header, batch in walk(file.fileno(), stretch.start, stretch.end):
            if header.base_offset >= stretch.offset_min and found.counts(header):
                group.append(packed(batch, header))
                size_bytes += header.size_bytes
            if size_bytes >= ROWS_BYTES:
                yield group
                group, size_bytes = [], 0
    if group:
        yield group


# Group offsets.


def _key_values(found: Scan) -> Iterator[tuple[bytes | None, bytes | None]]:
    for stretch in found.stretches:
        with open(stretch.path, "rb", buffering=0) as file:
            for _, header, batch in walk(file.fileno(), stretch.start, stretch.end):
                if found.counts(header):
                    with suppress(CorruptBatch):
                        yield from ((record.key, record.value) for record in iterate_records(batch))


def _take_commit(
    committed: dict[str, dict[TopicPartition, int]], key: bytes | None, value: bytes | None
) -> None:
    """One record of the broker's topic of offsets: versions 0 and 1 of its keys are commits."""
    if key is None or len(key) < 2 or _SHORT.unpack_from(key)[0] not in (0, 1):
        return
    group, position = _text(key, 2)
    topic, position = _text(key, position)
    partition = TopicPartition(topic, int.from_bytes(key[position : position + 4], "big"))
    if value is None:
        committed.get(group, {}).pop(partition, None)
    else:
        # Every version of the value begins with the offset.
        committed.setdefault(group, {})[partition] = _OFFSET_VALUE.unpack_from(value)[1]


def _text(data: bytes, position: int) -> tuple[str, int]:
    end = position + 2 + _SHORT.unpack_from(data, position)[0]
    return data[position + 2 : end].decode("utf-8", "replace"), end
