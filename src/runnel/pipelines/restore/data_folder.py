"""The data folder of a broker that is not running, read directly: Runnel's, or Apache Kafka's."""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from runnel.log.names import LOCK, partition_of
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import BadDataFolder
from runnel.pipelines.restore.expected import Expected
from runnel.pipelines.restore.own_topics import (
    GROUP_OFFSETS,
    ONGOING,
    TRANSACTION_STATES,
    KnownTransaction,
    commits_in,
    transactions_in,
)
from runnel.pipelines.restore.segments import OpenTransaction, Scan, Stretch, scan, walk
from runnel.pipelines.source.columns import COLUMNS, TYPES
from runnel.pipelines.source.decode import Packed, packed, read_spans

ROWS_BYTES = 4 * 1024 * 1024
"""How much of a file becomes one Arrow batch."""


@dataclass(slots=True)
class FoundTopic:
    """A topic whose partitions a folder holds."""

    name: str
    partitions: list[int]
    size_bytes: int


@dataclass(slots=True)
class FoundGroups:
    """What consumer groups had committed, as far as it can be read."""

    committed: dict[str, dict[TopicPartition, int]]
    damages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class DataFolder:
    """A folder of logs that is locked while it is open: see `held_data_folder`."""

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
        self._expected = Expected(self.path)

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
        """The contents of each partition of a topic, checked batch by batch, by Spark's tasks."""
        chosen = self._of(topic)
        # Plain values only: tasks may run in processes that know nothing of this object.
        places = [(str(self.path), *partition, self._expected.log_start(partition)) for partition in chosen]
        tasks = session.sparkContext.parallelize(places, len(places))
        scans: list[Scan] = tasks.map(_scan_place).collect()
        return self.judged([*scans, *self._expected.missing(topic, chosen)])

    def judged(self, scans: list[Scan]) -> list[Scan]:
        """The same, compared with what the folder should hold, and with open transactions decided."""
        for found in scans:
            self._expected.check(found)
        self._decide([found for found in scans if found.open])
        return scans

    def read(self, session: SparkSession, scans: Sequence[Scan]) -> DataFrame:
        """The rows that a reader of committed records would have got, as the source has them."""
        pieces = [
            (replace(found, stretches=[], damages=[], notes=[], open=[], gaps=[]), stretch)
            for found in scans
            for stretch in found.stretches
        ]
        schema = StructType([StructField(name, kind) for name, kind in TYPES.items()])
        if not pieces:
            return session.createDataFrame([], schema)
        numbers = session.range(0, len(pieces), 1, numPartitions=len(pieces))
        return numbers.mapInArrow(partial(_read_pieces, pieces, schema), schema)

    def group_offsets(self) -> FoundGroups:
        """What each consumer group had committed, from the broker's own topic of them."""
        scans = self.judged(self._own_topic(GROUP_OFFSETS))
        committed = commits_in(scans)
        return FoundGroups(
            committed,
            [damage for found in scans for damage in found.damages],
            [note for found in scans for note in found.notes],
        )

    def _own_topic(self, topic: str) -> list[Scan]:
        """The contents of an internal topic: small, and read here."""
        present = [partition for partition in self._partitions if partition.topic == topic]
        return [
            *(_scan_place((str(self.path), *name, self._expected.log_start(name))) for name in present),
            *self._expected.missing(topic, present),
        ]

    def _decide(self, undecided: Sequence[Scan]) -> None:
        """Open transactions end as their coordinator decided, even if the marker is not in the partition."""
        if not undecided:
            return
        own = self._own_topic(TRANSACTION_STATES)
        for states in own:
            self._expected.check(states)
        known = transactions_in(own)
        for found in undecided:
            for transaction in list(found.open):
                _decide_one(found, transaction, known.get(transaction.producer_id))
        # Where notes of transactions are lost, what they would have decided is not known.
        undecided[0].damages += [damage for states in own for damage in states.damages]

    def _of(self, topic: str) -> list[TopicPartition]:
        chosen = [partition for partition in self._partitions if partition.topic == topic]
        if not chosen:
            names = ", ".join(sorted({partition.topic for partition in self._partitions}))
            raise BadDataFolder(f"{self.path} holds no topic {topic}; it holds {names}")
        return chosen


@contextmanager
def held_data_folder(path: str) -> Iterator[DataFolder]:
    """The folder while no broker runs on it: its lock is taken, as a broker would take it."""
    folder = DataFolder(path)
    lock_path = folder.path / LOCK
    with ExitStack() as at_end:
        # A copy may lack the file: then nothing is known.
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


def _decide_one(found: Scan, transaction: OpenTransaction, known: KnownTransaction | None) -> None:
    if known is not None and known.ends(found.place, transaction.epoch):
        if known.is_commit:
            found.commit(transaction)
        return
    if transaction.records:
        name = "" if known is None else f" (transactional id {known.transactional_id})"
        is_ongoing = known is not None and known.status == ONGOING
        why = "was never committed" if is_ongoing else "has an end that is not known here"
        found.notes.append(
            f"{found.place}: {transaction.records} records of producer {transaction.producer_id}{name} are "
            f"left out: their transaction {why}"
        )


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
