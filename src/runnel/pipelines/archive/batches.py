"""Archives a micro-batch: appends the new records of each topic to its table in one snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow.parquet as parquet
from pyiceberg.catalog import Catalog
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from runnel.pipelines.archive.decoding import with_decoded
from runnel.pipelines.archive.layout import (
    ARCHIVED,
    PARTITIONS,
    archive_rows,
    archived_offsets,
    check_is_same,
    ensure_archive,
)
from runnel.pipelines.source.options import SourceOptions
from runnel.pipelines.source.resolving import connected
from runnel.pipelines.tables import BatchMarker, SparkTable, marker_of
from runnel.pipelines.tables.staging import Staged


@dataclass(slots=True)
class TopicArchived:
    """The result for one topic."""

    topic: str
    table: str
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)
    """Per partition, the first offset that is not archived."""
    rows_removed: int = 0
    """Removed by the archive's own retention."""
    files_merged: int = 0
    files_removed: int = 0


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic on the broker."""

    topic_id: bytes
    partitions: int


class BatchArchiver:
    """The foreachBatch function, called in the driver; a batch may be replayed."""

    def __init__(
        self, catalog: Catalog, namespace: str, source: SourceOptions, known: Mapping[str, KnownTopic]
    ) -> None:
        self._catalog = catalog
        self._namespace = namespace
        self._source = source
        self._known = dict(known)
        self.topics: dict[str, TopicArchived] = {}
        self.tables: dict[str, SparkTable] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        marker = marker_of(frame, batch_id)
        subscription = self._source.subscription
        if len(subscription.topics) == 1:
            self._archive(frame, subscription.topics[0], marker)
            return
        # Each topic is a separate pass over the batch: fetch it once.
        frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for row in sorted(frame.select("topic").distinct().collect()):
                self._archive(frame.where(F.col("topic") == row["topic"]), row["topic"], marker)
        finally:
            frame.unpersist()

    def adopt(self, topic: str, table: SparkTable) -> None:
        """Add an existing table."""
        self.tables[topic] = table
        offsets = archived_offsets(table.properties())
        self.topics[topic] = TopicArchived(topic, table.name, next_offsets=offsets)

    def _open(self, topic: str, rows: DataFrame) -> SparkTable:
        if topic not in self.tables:
            if topic not in self._known:
                with connected(self._source) as broker:
                    view = broker.topic(topic)
                self._known[topic] = KnownTopic(view.topic_id, len(view.partitions))
            topic_id = self._known[topic].topic_id
            self.adopt(topic, ensure_archive(self._catalog, self._namespace, topic, topic_id, rows))
        return self.tables[topic]

    def _archive(self, frame: DataFrame, topic: str, marker: BatchMarker) -> None:
        rows = archive_rows(with_decoded(frame, self._source))
        table = self._open(topic, rows)
        latest = table.latest()
        outcome = self.topics[topic]
        before = archived_offsets(latest.properties)
        outcome.next_offsets = before
        if marker.is_in(latest):
            return
        staged = table.stage(_new_rows(rows, before))
        try:
            self._check_topic(topic, table.name, latest.properties)
        except BaseException:
            table.discard(staged)
            raise
        after = _ends(table, staged)
        if not after:
            # Nothing new: skip the snapshot; a replay finds nothing new again.
            table.discard(staged)
            return
        # If two runs archive the same topic, one fails here, and no record is duplicated.
        expected = {name: latest.properties.get(name) for name in map(_property, after)}
        properties = {_property(partition): str(offset) for partition, offset in after.items()}
        properties[PARTITIONS] = str(max(self._known[topic].partitions, *(number + 1 for number in after)))
        written = table.commit(staged, marker, properties=properties, expected=expected)
        outcome.next_offsets = {**before, **after} if written.is_new else before
        outcome.rows += written.rows
        outcome.files += written.files
        outcome.size_bytes += written.size_bytes

    def _check_topic(self, topic: str, table: str, properties: Mapping[str, str]) -> None:
        """TableError if the topic was recreated. This must be checked after its records were read.

        A deleted topic is not an error: the records that were read are kept.
        """
        with connected(self._source) as broker:
            for view in broker.named_topics([topic], may_miss=[topic]):
                check_is_same(table, properties, topic, view.topic_id)


def _property(partition: int) -> str:
    return f"{ARCHIVED}{partition}"


def _new_rows(rows: DataFrame, archived: Mapping[int, int]) -> DataFrame:
    """The rows that are not archived yet: without its checkpoint, a query may start before the end."""
    if not archived:
        return rows
    offsets = F.create_map(*(F.lit(number) for pair in sorted(archived.items()) for number in pair))
    return rows.where(F.col("offset") >= F.coalesce(offsets[F.col("partition")], F.lit(0)))


def _ends(table: SparkTable, staged: Staged) -> dict[int, int]:
    """The end offset per partition of the staged files."""
    ends: dict[int, int] = {}
    files = table.latest().io
    for path in staged.paths:
        with files.new_input(path).open() as stream:
            columns = parquet.read_table(stream, columns=["partition", "offset"])
        last = columns.group_by("partition").aggregate([("offset", "max")])
        for partition, offset in zip(
            *(last[name].to_pylist() for name in ("partition", "offset_max")), strict=True
        ):
            ends[partition] = max(ends.get(partition, 0), offset + 1)
    return ends
