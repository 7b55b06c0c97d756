"""What a pipeline's file says once it is read: plain values, each with the place it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from runnel.pipelines.declared.findings import Place
from runnel.pipelines.declared.tree import Scalar
from runnel.pipelines.upkeep import UpkeepPolicy

FORMATS = ("json", "avro", "string", "bytes")
METADATA = ("key", "topic", "partition", "offset", "timestamp", "headers")
ON_MALFORMED = ("dead-letter", "skip", "fail")
DELIVERIES = ("exactly-once", "at-least-once")
MODES = ("append", "update", "complete")


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a value's schema."""

    name: str
    type_text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a value, and their declaration for Spark."""

    text: str
    columns: tuple[Column, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late a row may come, by which column's time."""

    column: str
    delay_ms: int
    place: Place


@dataclass(frozen=True, slots=True)
class Source:
    """Topics that are read as one stream of rows."""

    name: str
    place: Place
    topics: tuple[str, ...]
    pattern: str | None
    format: str
    schema: Schema | None
    watermark: Watermark | None
    keeps_all: bool
    """`watermark: none`: its owner knows that state grows for ever."""
    start: str
    on_malformed: str
    dead_letter_topic: str | None
    keeps_tombstones: bool
    metadata: tuple[str, ...]
    records_per_batch: int | None
    fails_on_data_loss: bool
    options: Mapping[str, str]

    @property
    def column_names(self) -> tuple[str, ...]:
        """What a step can select from it."""
        decoded = tuple(column.name for column in self.schema.columns) if self.schema else ("value",)
        return (*decoded, *(f"_{name}" for name in self.metadata))


@dataclass(frozen=True, slots=True)
class Reference:
    """A name of a source or a step, where it is used."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function in a file."""

    file: Path
    function: str
    place: Place


@dataclass(frozen=True, slots=True)
class Step:
    """Rows made of other rows: by a query, or by a function."""

    name: str
    place: Place
    sql: Scalar | None
    python: PythonFunction | None
    inputs: tuple[Reference, ...]
    """For a query, the tables that it names."""
    joins: bool = False


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """A sink that is a topic."""

    topic: str
    key: str | None
    value: str | tuple[str, ...]
    """A column as it is, or the columns that make a JSON object; none of them is all of them."""
    headers: str | None
    partition: str | None
    timestamp: str | None
    delivery: str
    transaction_timeout_ms: int | None
    """How long a batch may take; None is the sink's default."""
    partitions: int | None


@dataclass(frozen=True, slots=True)
class TableTarget:
    """A sink that is an Iceberg table."""

    table: str
    warehouse: str
    catalog: Mapping[str, str]
    """Properties of an Iceberg catalog; none for a SQLite file in the warehouse."""
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    """Properties of the table that the pipeline sets, whether it creates the table or finds it."""
    upkeep: UpkeepPolicy


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """A sink that is a folder of Parquet files."""

    path: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    """A sink for people: each batch as a table on the terminal."""

    rows: int


Target: TypeAlias = TopicTarget | TableTarget | ParquetTarget | ConsoleTarget


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go; each sink is one streaming query."""

    name: str
    place: Place
    input: Reference
    target: Target
    mode: str
    column_places: tuple[Reference, ...] = ()
    """Columns of the input that the target names."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a batch begins: at an interval, as soon as possible (0), or once for all there is."""

    is_once: bool
    interval_ms: int


@dataclass(frozen=True, slots=True)
class Declaration:
    """A whole pipeline."""

    name: str
    broker: str
    checkpoint: str
    trigger: Trigger
    settings: Mapping[str, str]
    folder: Path
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
    broken: frozenset[str] = field(default=frozenset())
    """Names of sources and steps that are in the file but could not be read."""
    sink_inputs: Mapping[str, Reference] = field(default_factory=dict)
    """What every sink reads, also those that could not be read otherwise."""
