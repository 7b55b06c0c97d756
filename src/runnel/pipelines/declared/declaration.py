"""The declaration of a pipeline: the values of its file, each with its position."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.pipelines.client_options import connection_options
from runnel.pipelines.declared.findings import Position
from runnel.pipelines.declared.tree import Scalar
from runnel.pipelines.upkeep import UpkeepPolicy

FORMATS = ("json", "avro", "protobuf", "json-schema", "string", "bytes")
REGISTERED_FORMATS = ("avro", "protobuf", "json-schema")
"""Formats of values that have schemas of a registry; for sources, `avro` also without one."""
METADATA = ("key", "topic", "partition", "offset", "timestamp", "headers")
ON_MALFORMED = ("dead-letter", "skip", "fail")
DELIVERIES = ("exactly-once", "at-least-once")
MODES = ("append", "update", "complete")


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a value's schema."""

    name: str
    type_text: str
    position: Position


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a value, and the schema as text."""

    text: str
    columns: tuple[Column, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject of the registry instead of a schema."""

    format: str
    name: str | None
    """None is the subject of the topic's values."""
    version: str
    """A number, or `latest`."""
    message: str | None
    position: Position


@dataclass(frozen=True, slots=True)
class Watermark:
    """The event-time column, and how late a row may arrive."""

    column: str
    delay_ms: int
    position: Position


@dataclass(frozen=True, slots=True)
class Source:
    """Topics that are read as one stream of rows."""

    name: str
    position: Position
    topics: tuple[str, ...]
    pattern: str | None
    format: str
    schema: Schema | None
    subject: Subject | None
    watermark: Watermark | None
    keeps_all: bool
    """`watermark: none`: state that grows without bound is accepted."""
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
        """The columns that a step can select, without those that a subject has."""
        decoded = tuple(column.name for column in self.schema.columns) if self.schema else ("value",)
        return (*decoded, *(f"_{name}" for name in self.metadata))


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to a source or a step by name."""

    name: str
    position: Position


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function in a file."""

    file: Path
    function: str
    position: Position


@dataclass(frozen=True, slots=True)
class Step:
    """A transformation of rows: a query or a function."""

    name: str
    position: Position
    sql: Scalar | None
    python: PythonFunction | None
    inputs: tuple[Reference, ...]
    """For a query, the tables in its FROM and JOIN clauses."""
    joins: bool = False


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """Writes records to a topic."""

    topic: str
    key: str | None
    value: str | tuple[str, ...]
    """A column, or the columns of a JSON object; empty for all columns."""
    headers: str | None
    partition: str | None
    timestamp: str | None
    delivery: str
    transaction_timeout_ms: int | None
    """Timeout of the transactions of a batch; None is the sink's default."""
    partitions: int | None
    subject: Subject | None = None
    """The schema with which values are encoded; None writes JSON, or the column as it is."""


@dataclass(frozen=True, slots=True)
class TableTarget:
    """Appends to an Iceberg table."""

    table: str
    warehouse: str
    catalog: Mapping[str, str]
    """Properties of an Iceberg catalog; empty for a SQLite catalog in the warehouse."""
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    """Table properties that the pipeline sets, also on an existing table."""
    upkeep: UpkeepPolicy


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """Writes Parquet files to a directory."""

    path: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    """Prints each batch as a table."""

    rows: int


SinkTarget: TypeAlias = TopicTarget | TableTarget | ParquetTarget | ConsoleTarget


@dataclass(frozen=True, slots=True)
class Sink:
    """An output of the pipeline; each sink is one streaming query."""

    name: str
    position: Position
    input: Reference
    target: SinkTarget
    mode: str
    column_references: tuple[Reference, ...] = ()
    """References to columns of the input."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a batch starts: at an interval, as soon as possible (0), or once for all available records."""

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
    """Names of sources and steps with errors."""
    sink_inputs: Mapping[str, Reference] = field(default_factory=dict)
    """The input of every sink, including sinks with errors."""
    properties: ClientProperties = NO_PROPERTIES
    """Client properties of TLS and SASL."""
    registry: str = ""
    """The address of the schema registry."""
    registry_user: str | None = None

    def subject_options(self, subject: Subject) -> dict[str, str]:
        """The options with which the source and the sink use a subject."""
        found = {
            "valueFormat": subject.format,
            "schemaRegistry.url": self.registry,
            "schemaRegistry.user": self.registry_user,
            "valueSubject": subject.name,
            "valueVersion": subject.version,
            "valueMessage": subject.message,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def connection(self) -> dict[str, str]:
        """The options with which Spark connects to the cluster."""
        return connection_options(self.broker, self.properties)
