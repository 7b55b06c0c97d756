"""The traffic of topics, aggregated in Spark by time, size, partition and key."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.pipelines.client_options import connection_options
from runnel.pipelines.insights.commits import OFFSETS_TOPIC, read_key, read_offset
from runnel.pipelines.insights.lag import GroupCommit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BUCKETS_PER_OCTAVE = 4
"""Sizes are accurate to about 20 %."""
HOT_KEYS_MAX = 10
EARLIEST_MS = 1_293_840_000_000
"""The start of 2011: earlier timestamps are invalid, or seconds instead of milliseconds."""
SLACK_MS = 3_600_000
"""Tolerance for clock skew and late records."""
ROWS_MAX = 1_000_000
STEPS_MS = tuple(1000 * seconds for seconds in (60, 300, 900, 3600, 6 * 3600, 86_400))


@dataclass(slots=True)
class PartitionTraffic:
    """The traffic of one partition."""

    records: int = 0
    size_bytes: int = 0
    start: int = 2**62
    """The first offset."""
    end: int = 0
    """The end offset."""
    ends: dict[int, int] = field(default_factory=dict)
    """The end offset by step."""


@dataclass(slots=True)
class HotKey:
    """A key with many records."""

    key: bytes | None
    records: int


@dataclass(slots=True)
class TopicTraffic:
    """The traffic of one topic."""

    topic: str
    records: int = 0
    size_bytes: int = 0
    largest_bytes: int = 0
    unplaced: int = 0
    """Records with timestamps outside the window: counted, but not drawn."""
    first_ms: int = 2**62
    """The first timestamp within the window."""
    last_ms: int = -1
    keyed_records: int = 0
    keys: int = 0
    partitions: dict[int, PartitionTraffic] = field(default_factory=dict)
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(records, bytes) by the first millisecond of a step"""
    sizes: dict[int, int] = field(default_factory=dict)
    """Records by size, in logarithmic buckets."""
    hot_keys: list[HotKey] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """The records to read."""

    bootstrap: str
    topics: tuple[str, ...]
    since_ms: int | None
    until_ms: int
    """The time of the run."""
    properties: ClientProperties = NO_PROPERTIES

    @property
    def valid_range_ms(self) -> tuple[int, int]:
        """The range of valid record timestamps, inclusive."""
        low_ms = EARLIEST_MS if self.since_ms is None else max(EARLIEST_MS, self.since_ms - SLACK_MS)
        return low_ms, self.until_ms + SLACK_MS


def step_for(span_ms: int, partitions: int) -> int:
    """One minute, or longer to bound the number of rows to collect."""
    return next((step for step in STEPS_MS if span_ms // step * partitions * 4 <= ROWS_MAX), STEPS_MS[-1])


def bucket_low(bucket: int) -> float:
    """The smallest size in a bucket."""
    return 0.0 if bucket < 0 else float(2 ** (bucket / BUCKETS_PER_OCTAVE))


def traffic_of(
    session: "SparkSession", window: ReadWindow, partitions: int
) -> tuple[dict[str, TopicTraffic], int]:
    """Aggregate all records in one pass; returns the traffic by topic and the step."""
    by_minute = _by_minute(session, window).persist()
    try:
        first_ms = by_minute.agg(F.min("first_ms")).collect()[0][0]
        span_ms = 0 if first_ms is None else max(0, window.until_ms - first_ms)
        step_ms = step_for(span_ms, partitions)
        traffic = {topic: TopicTraffic(topic) for topic in window.topics}
        for row in _coarser(by_minute, step_ms).toLocalIterator():
            _add(traffic[row[0]], *row[1:])
    finally:
        by_minute.unpersist()
    return traffic, step_ms


def _by_minute(session: "SparkSession", window: ReadWindow) -> "DataFrame":
    rows = _records(session, window, window.topics)
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    stamp = F.unix_millis("timestamp")
    # Invalid timestamps become null, and thus one group, however many there are.
    moment = F.when(stamp.between(*window.valid_range_ms), stamp)
    slim = rows.select("topic", "partition", "offset", size.alias("size"), moment.alias("ms"))
    bucket = F.when(F.col("size") > 0, F.floor(F.log2("size") * BUCKETS_PER_OCTAVE)).otherwise(-1)
    return slim.groupBy("topic", "partition", _step(STEPS_MS[0], "ms"), bucket.alias("bucket")).agg(
        F.count("*").alias("records"),
        F.sum("size").alias("size_bytes"),
        F.max("size").alias("largest_bytes"),
        F.min("ms").alias("first_ms"),
        F.max("ms").alias("last_ms"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )


def _coarser(by_minute: "DataFrame", step_ms: int) -> "DataFrame":
    return by_minute.groupBy("topic", "partition", _step(step_ms, "step"), "bucket").agg(
        F.sum("records"),
        F.sum("size_bytes"),
        F.max("largest_bytes"),
        F.min("first_ms"),
        F.max("last_ms"),
        F.min("first_offset"),
        F.max("last_offset"),
    )


def _step(step_ms: int, column: str) -> "Column":
    return F.expr(f"{column} div {step_ms} * {step_ms}").alias("step")


def _add(
    topic: TopicTraffic,
    partition: int,
    step: int | None,
    bucket: int,
    records: int,
    size_bytes: int,
    largest_bytes: int,
    first_ms: int | None,
    last_ms: int | None,
    first_offset: int,
    last_offset: int,
) -> None:
    topic.records += records
    topic.size_bytes += size_bytes
    topic.largest_bytes = max(topic.largest_bytes, largest_bytes)
    topic.sizes[bucket] = topic.sizes.get(bucket, 0) + records
    traffic = topic.partitions.setdefault(partition, PartitionTraffic())
    traffic.records += records
    traffic.size_bytes += size_bytes
    traffic.start, traffic.end = min(traffic.start, first_offset), max(traffic.end, last_offset + 1)
    if step is None or first_ms is None or last_ms is None:
        topic.unplaced += records
        return
    topic.first_ms, topic.last_ms = min(topic.first_ms, first_ms), max(topic.last_ms, last_ms)
    before_records, before_bytes = topic.steps.get(step, (0, 0))
    topic.steps[step] = before_records + records, before_bytes + size_bytes
    traffic.ends[step] = max(traffic.ends.get(step, 0), last_offset + 1)


def add_keys(session: "SparkSession", window: ReadWindow, traffic: Mapping[str, TopicTraffic]) -> None:
    """Add the number of distinct keys and the most frequent ones."""
    rows = _records(session, window, window.topics).where("key IS NOT NULL")
    counted = rows.groupBy("topic", "key").agg(F.count("*").alias("records"))
    by_topic = Window.partitionBy("topic")
    ranked = counted.select(
        "topic",
        "key",
        "records",
        F.row_number().over(by_topic.orderBy(F.desc("records"), "key")).alias("rank"),
        F.sum("records").over(by_topic).alias("keyed"),
        F.count("*").over(by_topic).alias("keys"),
    )
    for row in ranked.where(F.col("rank") <= HOT_KEYS_MAX).orderBy("topic", "rank").collect():
        topic = traffic[row["topic"]]
        # Read later than the totals: clamp to them.
        topic.keyed_records, topic.keys = min(row["keyed"], topic.records), min(row["keys"], topic.records)
        if topic.records:
            topic.hot_keys.append(HotKey(bytes(row["key"]), min(row["records"], topic.records)))


@dataclass(frozen=True, slots=True)
class Delay:
    """The time from the timestamp of a record to the commit of a group."""

    group: str
    topic: str
    at_ms: int
    delay_ms: int


def commits_of(
    session: "SparkSession", window: ReadWindow, step_ms: int
) -> tuple[list[GroupCommit], list[Delay]]:
    """The last offset commit of each step, and the delay of the newly committed records."""
    raw = _records(session, window, (OFFSETS_TOPIC,)).select(
        "key", "value", F.unix_millis("timestamp").alias("ms")
    )
    columns = "group string, topic string, partition int, offset bigint, ms bigint"
    is_selected = F.col("topic").isin(list(window.topics)) & F.col("ms").between(*window.valid_range_ms)
    parsed = raw.mapInArrow(_parse, columns).where(is_selected)
    partition = ("group", "topic", "partition")
    spans = (
        parsed.groupBy(*partition, "offset", _step(step_ms, "ms"))
        .agg(F.min("ms").alias("first_ms"), F.max("ms").alias("last_ms"))
        .persist()
    )
    try:
        last = _last_of_steps(spans.select(*partition, "offset", F.col("last_ms").alias("ms")), step_ms)
        # An idle group repeats its commits: use the first one.
        reached = spans.groupBy(*partition, "offset").agg(F.min("first_ms").alias("ms"))
        return last, _delays(session, window, _last_of_steps(reached, step_ms))
    finally:
        spans.unpersist()


def _last_of_steps(commits: "DataFrame", step_ms: int) -> list[GroupCommit]:
    last = commits.groupBy("group", "topic", "partition", _step(step_ms, "ms")).agg(
        F.max_by("offset", "ms").alias("offset"), F.max("ms").alias("ms")
    )
    return [
        GroupCommit(row["group"], row["topic"], row["partition"], row["ms"], row["offset"])
        for row in last.toLocalIterator()
    ]


def _delays(session: "SparkSession", window: ReadWindow, commits: Sequence[GroupCommit]) -> list[Delay]:
    if not commits:
        return []
    rows = [(each.group, each.topic, each.partition, each.offset - 1, each.at_ms) for each in commits]
    columns = "group string, topic string, partition int, offset bigint, at_ms bigint"
    wanted = F.broadcast(session.createDataFrame(rows, columns))
    records = _records(session, window, window.topics).select(
        "topic", "partition", "offset", F.unix_millis("timestamp").alias("ms")
    )
    found = records.join(wanted, ["topic", "partition", "offset"]).select("group", "topic", "at_ms", "ms")
    return [
        Delay(row["group"], row["topic"], row["at_ms"], max(0, row["at_ms"] - row["ms"]))
        for row in found.collect()
        if EARLIEST_MS <= row["ms"] <= window.valid_range_ms[1]
    ]


def _parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parse records of __consumer_offsets; runs in a task."""
    names = ("group", "topic", "partition", "offset", "ms")
    types = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64())
    for batch in batches:
        rows = []
        for key, value, moment in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            commit, offset = read_key(key or b""), read_offset(value)
            if commit is not None and offset is not None:
                rows.append((commit.group, commit.topic, commit.partition, offset, moment))
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _records(session: "SparkSession", window: ReadWindow, topics: Sequence[str]) -> "DataFrame":
    reader = (
        session.read.format("runnel")
        .options(**connection_options(window.bootstrap, window.properties))
        .option("subscribe", ",".join(topics))
        .option("includeHeaders", "false")
        # Records that retention deletes meanwhile are not an error.
        .option("failOnDataLoss", "false")
    )
    if window.since_ms is not None:
        reader = reader.option("startingTimestamp", str(window.since_ms)).option(
            "startingOffsetsByTimestampStrategy", "latest"
        )
    return reader.load()
