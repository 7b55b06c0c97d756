"""Groups, samples and selects dead letters in Spark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from runnel.model.ids import NO_ID, id_text
from runnel.pipelines.dead_letters.letter import MARKS, Letter, attempts_of, kind_of, read_letter
from runnel.pipelines.dead_letters.letter_filter import LetterFilter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SAMPLES = 3
_SHOWN_BYTES = 300
_FACTS = pa.schema(
    [
        *((name, pa.string()) for name in ("topic", "kind", "source")),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("offset", "ms", "attempts")),
    ]
)
_FACT_COLUMNS = (
    "topic string, kind string, source string, partition int, offset bigint, ms bigint, attempts bigint"
)
_POSITION = ("topic", "partition", "offset")


@dataclass(slots=True)
class LetterGroup:
    """Letters with the same source and reason."""

    topic: str
    source: str | None
    kind: str
    letters: int
    redriven: int
    first_ms: int
    last_ms: int
    attempts_max: int
    samples: list[Letter]


def letters_frame(
    session: "SparkSession", connection: Mapping[str, str], topics: Sequence[str]
) -> "DataFrame":
    """All records of dead-letter topics, headers included; timestamps in milliseconds.

    As numbers, because timestamps of records may be outside the range of Python's datetime.
    """
    letters = _topic_frame(session, connection, topics)
    return letters.withColumn("timestamp", F.unix_millis("timestamp"))


def marked_frame(
    session: "SparkSession", connection: Mapping[str, str], topics: Mapping[str, bytes]
) -> "DataFrame":
    """The positions of redriven letters; `topics` are those with marks, with their ids.

    Marks of a deleted topic of the same name are skipped. Marks without an id are of brokers without
    topic ids.
    """
    if not topics:
        return session.createDataFrame([], "topic string, partition int, offset bigint")
    marks = _topic_frame(session, connection, [topic + MARKS for topic in topics])
    named = marks.select(
        F.expr(f"substring(topic, 1, length(topic) - {len(MARKS)})").alias("topic"),
        F.split(F.col("key").cast("string"), ":").alias("words"),
    )
    ids = [(topic, "" if topic_id == NO_ID else id_text(topic_id)) for topic, topic_id in topics.items()]
    own = named.join(F.broadcast(session.createDataFrame(ids, "topic string, id string")), "topic")
    is_own = (F.size("words") == 2) | ((F.size("words") == 3) & (F.col("words")[0] == F.col("id")))
    return (
        own.where(is_own)
        .select(
            "topic",
            F.expr("try_cast(element_at(words, -2) AS int)").alias("partition"),
            F.expr("try_cast(element_at(words, -1) AS bigint)").alias("offset"),
        )
        .distinct()
    )


def chosen_frame(letters: "DataFrame", marked: "DataFrame", choice: LetterFilter) -> "DataFrame":
    """The matching letters that are not redriven yet, oldest first."""

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            mask = [choice.matches(letter) for letter in letters_of(batch)]
            yield batch.filter(pa.array(mask, pa.bool_()))

    chosen = letters.mapInArrow(keep, letters.schema)
    rest = chosen.join(marked, list(_POSITION), "left_anti")
    return rest.select(*letters.columns).orderBy("timestamp", "topic", "partition", "offset")


def groups_of(
    session: "SparkSession", letters: "DataFrame", marked: "DataFrame", choice: LetterFilter
) -> list[LetterGroup]:
    """Count letters by source and reason, with samples."""

    def facts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_fact(letter) for letter in letters_of(batch) if choice.matches(letter)]
            columns = list(zip(*rows, strict=True)) or [()] * len(_FACTS)
            arrays = [pa.array(column, each.type) for column, each in zip(columns, _FACTS, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_FACTS)

    known = marked.withColumn("is_back", F.lit(1))
    joined = letters.mapInArrow(facts, _FACT_COLUMNS).join(known, list(_POSITION), "left")
    by_kind = ("topic", "source", "kind")
    order = Window.partitionBy(*by_kind).orderBy(F.desc("ms"), F.desc("offset"))
    position = F.struct("partition", "offset")
    counted = (
        joined.withColumn("rank", F.row_number().over(order))
        .groupBy(*by_kind)
        .agg(
            F.count("*").alias("letters"),
            F.count("is_back").alias("redriven"),
            F.min("ms").alias("first_ms"),
            F.max("ms").alias("last_ms"),
            F.max("attempts").alias("attempts"),
            F.collect_list(F.when(F.col("rank") <= SAMPLES, position)).alias("samples"),
        )
        .orderBy(F.desc("letters"), *by_kind)
        .collect()
    )
    samples = _samples(letters, counted)
    return [_group(row, samples) for row in counted]


def letters_of(batch: pa.RecordBatch) -> Iterator[Letter]:
    """The letters in rows of the source."""
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    columns = [batch.column(name).to_pylist() for name in names]
    for topic, partition, offset, timestamp, key, value, headers in zip(*columns, strict=True):
        pairs = [(header["key"], header["value"]) for header in headers or ()]
        yield read_letter(topic, partition, offset, timestamp, key, value, pairs)


def letter_of_row(row: "Row") -> Letter:
    """One row of the source as a letter."""
    pairs = [(header["key"], _bytes(header["value"])) for header in row["headers"] or ()]
    key, value = _bytes(row["key"]), _bytes(row["value"])
    return read_letter(row["topic"], row["partition"], row["offset"], row["timestamp"], key, value, pairs)


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)


def _fact(letter: Letter) -> tuple[object, ...]:
    return (
        letter.topic,
        kind_of(letter.reason),
        letter.source_topic,
        letter.partition,
        letter.offset,
        letter.timestamp_ms,
        attempts_of(letter.headers),
    )


def _samples(letters: "DataFrame", counted: "Sequence[Row]") -> dict[tuple[str, int, int], Letter]:
    """The sampled letters, by position."""
    positions = [
        (row["topic"], sample["partition"], sample["offset"]) for row in counted for sample in row["samples"]
    ]
    if not positions:
        return {}
    wanted = letters.sparkSession.createDataFrame(positions, "topic string, partition int, offset bigint")
    found = letters.join(F.broadcast(wanted), list(_POSITION)).collect()
    shown = map(letter_of_row, found)
    return {(letter.topic, letter.partition, letter.offset): _shortened(letter) for letter in shown}


def _shortened(letter: Letter) -> Letter:
    return replace(letter, value=None if letter.value is None else letter.value[:_SHOWN_BYTES])


def _group(row: "Row", samples: dict[tuple[str, int, int], Letter]) -> LetterGroup:
    positions = [(row["topic"], sample["partition"], sample["offset"]) for sample in row["samples"]]
    return LetterGroup(
        row["topic"],
        row["source"],
        row["kind"],
        row["letters"],
        row["redriven"],
        row["first_ms"],
        row["last_ms"],
        row["attempts"],
        [samples[position] for position in positions if position in samples],
    )


def _topic_frame(
    session: "SparkSession", connection: Mapping[str, str], topics: Sequence[str]
) -> "DataFrame":
    return session.read.format("runnel").options(**connection).option("subscribe", ",".join(topics)).load()
