"""Reads the data folder of a stopped broker, of Runnel or Apache Kafka."""

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
from runnel.pipelines.restore.expected import ExpectedContents
from runnel.pipelines.restore.internal_topics import (
    GROUP_OFFSETS,
    ONGOING,
    TRANSACTION_STATES,
    TransactionState,
    commits_in,
    transactions_in,
)
from runnel.pipelines.restore.segments import FileRange, OpenTransaction, Scan, scan, valid_batches
from runnel.pipelines.source.columns import COLUMNS, TYPES
from runnel.pipelines.source.decode import Packed, packed, read_spans

ROWS_BYTES = 4 * 1024 * 1024
"""Target size of one Arrow batch."""


@dataclass(slots=True)
class FoundTopic:
    """A topic in a data folder."""

    name: str
    partitions: list[int]
    size_bytes: int


@dataclass(slots=True)
class FoundGroups:
    """Committed offsets of consumer groups, as far as they can be read."""

    committed: dict[str, dict[TopicPartition, int]]
    damages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class DataFolder:
    """A data folder, locked while it is open: see `locked_data_folder`."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        names = os.listdir(path) if self.path.is_dir() else []
        self._partitions = sorted(
            partition
            for name in names
            if (partition := partition_of(name)) is not None and (self.path / name).is_dir()
        )
        if not self._partitions:
            raise BadDataFolder(f"{path} has no partitions: it is not the data folder of a broker")
        self._expected = ExpectedContents(self.path)

    def topics(self) -> list[FoundTopic]:
        """All topics, including internal ones."""
        found: dict[str, FoundTopic] = {}
        for topic, number in self._partitions:
            entry = found.setdefault(topic, FoundTopic(topic, [], 0))
            entry.partitions.append(number)
            folder = self.path / f"{topic}-{number}"
            entry.size_bytes += sum(file.stat().st_size for file in folder.glob("*.log"))
        return list(found.values())

    def scan(self, session: SparkSession, topic: str) -> list[Scan]:
        """Scan each partition of a topic in Spark tasks, verifying every batch."""
        chosen = self._partitions_of(topic)
        # Plain values only, as they are pickled for the tasks.
        inputs = [(str(self.path), *partition, self._expected.log_start(partition)) for partition in chosen]
        tasks = session.sparkContext.parallelize(inputs, len(inputs))
        scans: list[Scan] = tasks.map(_scan_partition).collect()
        return self.checked([*scans, *self._expected.missing(topic, chosen)])

    def checked(self, scans: list[Scan]) -> list[Scan]:
        """The scans, compared with the checkpoints of the folder, with open transactions resolved."""
        for found in scans:
            self._expected.check(found)
        self._resolve_open([found for found in scans if found.open])
        return scans

    def read(self, session: SparkSession, scans: Sequence[Scan]) -> DataFrame:
        """The rows visible to a read_committed consumer, in the columns of the source."""
        pieces = [
            (replace(found, ranges=[], damages=[], notes=[], open=[], gaps=[]), range_)
            for found in scans
            for range_ in found.ranges
        ]
        schema = StructType([StructField(name, kind) for name, kind in TYPES.items()])
        if not pieces:
            return session.createDataFrame([], schema)
        numbers = session.range(0, len(pieces), 1, numPartitions=len(pieces))
        return numbers.mapInArrow(partial(_read_pieces, pieces, schema), schema)

    def group_offsets(self) -> FoundGroups:
        """The committed offsets of each consumer group, from __consumer_offsets."""
        scans = self.checked(self._internal_topic(GROUP_OFFSETS))
        committed = commits_in(scans)
        return FoundGroups(
            committed,
            [damage for found in scans for damage in found.damages],
            [note for found in scans for note in found.notes],
        )

    def _internal_topic(self, topic: str) -> list[Scan]:
        """Scan an internal topic in the driver."""
        present = [partition for partition in self._partitions if partition.topic == topic]
        return [
            *(_scan_partition((str(self.path), *name, self._expected.log_start(name))) for name in present),
            *self._expected.missing(topic, present),
        ]

    def _resolve_open(self, unresolved: Sequence[Scan]) -> None:
        """Resolve open transactions from the coordinator's log, where the marker was not written."""
        if not unresolved:
            return
        own = self._internal_topic(TRANSACTION_STATES)
        for states in own:
            self._expected.check(states)
        known = transactions_in(own)
        for found in unresolved:
            for transaction in list(found.open):
                _resolve_one(found, transaction, known.get(transaction.producer_id))
        # If transaction states are lost, the outcome of their transactions is unknown.
        unresolved[0].damages += [damage for states in own for damage in states.damages]

    def _partitions_of(self, topic: str) -> list[TopicPartition]:
        chosen = [partition for partition in self._partitions if partition.topic == topic]
        if not chosen:
            names = ", ".join(sorted({partition.topic for partition in self._partitions}))
            raise BadDataFolder(f"{self.path} has no topic {topic}; it has {names}")
        return chosen


@contextmanager
def locked_data_folder(path: str) -> Iterator[DataFolder]:
    """Open a data folder with the broker's lock held, so that no broker can run on it."""
    folder = DataFolder(path)
    lock_path = folder.path / LOCK
    with ExitStack() as stack:
        # A copy may lack the lock file.
        if lock_path.exists():
            _lock(stack.enter_context(lock_path.open("rb")), path)
        yield folder


def _lock(lock: BinaryIO, path: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Java uses POSIX locks, which are independent of flock.
        fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadDataFolder(
            f"a broker is running on {path}: stop it first, or read its topics from the broker"
        ) from None


def _scan_partition(partition: tuple[str, str, int, int]) -> Scan:
    path, topic, number, log_start_offset = partition
    return scan(Path(path) / f"{topic}-{number}", topic, number, log_start_offset)


def _resolve_one(found: Scan, transaction: OpenTransaction, known: TransactionState | None) -> None:
    if known is not None and known.completes(found.topic_partition, transaction.epoch):
        if known.is_commit:
            found.commit(transaction)
        return
    if transaction.records:
        name = "" if known is None else f" (transactional id {known.transactional_id})"
        is_ongoing = known is not None and known.status == ONGOING
        why = "was never committed" if is_ongoing else "has an unknown outcome"
        found.notes.append(
            f"{found.topic_partition}: {transaction.records} records of producer "
            f"{transaction.producer_id}{name} are omitted: their transaction {why}"
        )


def _read_pieces(
    pieces: Sequence[tuple[Scan, FileRange]], schema: StructType, batches: Iterable[Any]
) -> Iterator[Any]:
    """Read file ranges by index as Arrow batches; runs in a task."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        for number in batch.column(0).to_pylist():
            found, range_ = pieces[number]
            partition = TopicPartition(found.topic, found.partition)
            for group in _packed_batches(found, range_):
                for spans in read_spans(group, found.log_start_offset, 2**63 - 1):
                    columns = [COLUMNS[name](partition, spans) for name in schema.fieldNames()]
                    yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def _packed_batches(found: Scan, range_: FileRange) -> Iterator[list[Packed]]:
    group: list[Packed] = []
    size_bytes = 0
    with open(range_.path, "rb", buffering=0) as file:
        for _, header, batch in valid_batches(file.fileno(), range_.start, range_.end):
            if header.base_offset >= range_.offset_min and found.is_visible(header):
                group.append(packed(batch, header))
                size_bytes += header.size_bytes
            if size_bytes >= ROWS_BYTES:
                yield group
                group, size_bytes = [], 0
    if group:
        yield group
