"""Dead letters as rows: grouped, sampled and chosen by Spark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from runnel.pipelines.dead_letters.choice import Choice
from runnel.pipelines.dead_letters.letter import Letter, attempts_of, kind_of, mark_of, read_letter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

MARKS = ".redriven"
"""What the name of the topic ends with that remembers which letters of a dead-letter topic were sent back."""
SAMPLES = 3
_SHOWN_BYTES = 300
_FACTS = pa.schema(
    [
        *((name, pa.string()) for name in ("topic", "mark", "kind", "source", "pipeline")),
        *((name, pa.int64()) for name in ("partition", "offset", "ms", "attempts")),
    ]
)
_FACT_COLUMNS = (
    "topic string, mark string, kind string, source string, pipeline string, "
    "partition bigint, offset bigint, ms bigint, attempts bigint"
)


@dataclass(slots=True)
class LetterGroup:
    """Letters that came from the same place for the same reason."""

    topic: str
    source: str | None
    kind: str
    letters: int
    redriven: int
    first_ms: int
    last_ms: int
    attempts_max: int
    samples: list[Letter]


def letters_frame(session: "SparkSession", bootstrap: str, topics: Sequence[str]) -> "DataFrame":
    """All records of dead-letter topics, headers included."""
    return _topic_frame(session, bootstrap, topics)


def marked_frame(session: "SparkSession", bootstrap: str, topics: Sequence[str]) -> "DataFrame":
    """(topic, mark) of every letter that was sent back; `topics` are those of them that exist."""
    if not topics:
        return session.createDataFrame([], "topic string, mark string")
    marks = _topic_frame(session, bootstrap, [topic + MARKS for topic in topics])
    topic = F.expr(f"substring(topic, 1, length(topic) - {len(MARKS)})")
    return marks.select(topic.alias("topic"), F.col("key").cast("string").alias("mark")).distinct()


def chosen_frame(letters: "DataFrame", marked: "DataFrame", choice: Choice) -> "DataFrame":
    """The letters that are meant and were not sent back yet, with all they hold, oldest first."""

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            mask = [choice.has(letter) for letter in letters_of(batch)]
            yield batch.filter(pa.array(mask, pa.bool_()))

    chosen = letters.mapInArrow(keep, letters.schema)
    mark = F.concat_ws(":", "partition", "offset")
    rest = chosen.withColumn("mark", mark).join(marked, ["topic", "mark"], "left_anti").drop("mark")
    return rest.select(*letters.columns).orderBy("timestamp", "topic", "partition", "offset")


def groups_of(
    session: "SparkSession", letters: "DataFrame", marked: "DataFrame", choice: Choice
) -> list[LetterGroup]:
    """Count letters by source and reason, and show a few of each."""

    def facts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_fact(letter) for letter in letters_of(batch) if choice.has(letter)]
            columns = list(zip(*rows, strict=True)) or [()] * len(_FACTS)
            arrays = [pa.array(column, each.type) for column, each in zip(columns, _FACTS, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_FACTS)

    known = marked.withColumn("is_back", F.lit(1))
    told = letters.mapInArrow(facts, _FACT_COLUMNS).join(known, ["topic", "mark"], "left")
    by_kind = ("topic", "source", "kind")
    order = Window.partitionBy(*by_kind).orderBy(F.desc("ms"), F.desc("offset"))
    place = F.struct("partition", "offset")
    counted = (
        told.withColumn("place", F.row_number().over(order))
        .groupBy(*by_kind)
        .agg(
            F.count("*").alias("letters"),
            F.count("is_back").alias("redriven"),
            F.min("ms").alias("first_ms"),
            F.max("ms").alias("last_ms"),
            F.max("attempts").alias("attempts"),
            F.collect_list(F.when(F.col("place") <= SAMPLES, place)).alias("samples"),
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
        moment = round(timestamp.timestamp() * 1000) if timestamp is not None else -1
        yield read_letter(topic, partition, offset, moment, key, value, pairs)


def letter_of_row(row: "Row") -> Letter:
    """One row of the source as a letter."""
    pairs = [(header["key"], _bytes(header["value"])) for header in row["headers"] or ()]
    moment = round(row["timestamp"].timestamp() * 1000)
    key, value = _bytes(row["key"]), _bytes(row["value"])
    return read_letter(row["topic"], row["partition"], row["offset"], moment, key, value, pairs)


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)


def _fact(letter: Letter) -> tuple[object, ...]:
    return (
        letter.topic,
        mark_of(letter.partition, letter.offset),
        kind_of(letter.reason),
        letter.source_topic,
        letter.pipeline,
        letter.partition,
        letter.offset,
        letter.timestamp_ms,
        attempts_of(letter.headers),
    )


def _samples(letters: "DataFrame", counted: "Sequence[Row]") -> dict[tuple[str, int, int], Letter]:
    """The letters that are shown, found by where they stand."""
    places = [
        (row["topic"], sample["partition"], sample["offset"]) for row in counted for sample in row["samples"]
    ]
    if not places:
        return {}
    wanted = letters.sparkSession.createDataFrame(places, "topic string, partition int, offset bigint")
    found = letters.join(F.broadcast(wanted), ["topic", "partition", "offset"]).collect()
    shown = map(letter_of_row, found)
    return {(letter.topic, letter.partition, letter.offset): _shortened(letter) for letter in shown}


def _shortened(letter: Letter) -> Letter:
    from dataclasses import replace

    return replace(letter, value=None if letter.value is None else letter.value[:_SHOWN_BYTES])


def _group(row: "Row", samples: dict[tuple[str, int, int], Letter]) -> LetterGroup:
    places = [(row["topic"], sample["partition"], sample["offset"]) for sample in row["samples"]]
    return LetterGroup(
        row["topic"],
        row["source"],
        row["kind"],
        row["letters"],
        row["redriven"],
        row["first_ms"],
        row["last_ms"],
        row["attempts"],
        [samples[place] for place in places if place in samples],
    )


def _topic_frame(session: "SparkSession", bootstrap: str, topics: Sequence[str]) -> "DataFrame":
    return (
        session.read.format("runnel")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(topics))
        .load()
    )
