"""Sinks of a pipeline file: four kinds, each identified by its key."""

from pathlib import Path
from typing import Any

from runnel.pipelines.declared import values
from runnel.pipelines.declared.declaration import (
    DELIVERIES,
    MODES,
    REGISTERED_FORMATS,
    ConsoleTarget,
    ParquetTarget,
    Reference,
    Sink,
    SinkTarget,
    Subject,
    TableTarget,
    TopicTarget,
)
from runnel.pipelines.declared.findings import Findings, Position, listed
from runnel.pipelines.declared.sections import SUBJECT_KEYS, TOPIC_NAME, read_subject
from runnel.pipelines.declared.tree import Mapping, Node, Scalar
from runnel.pipelines.declared.values import NO_TEXTS, Key, Section, Texts
from runnel.pipelines.sink.options import TRANSACTION_TIMEOUT_MIN_MS
from runnel.pipelines.upkeep import FULL_UPKEEP, NO_UPKEEP, ORPHAN_AGE_MIN_MS, ORPHAN_AGE_MS, UpkeepPolicy

WAREHOUSE = ".runnel/warehouse"
CONSOLE_ROWS = 20
JSON = "json"

_INT_MAX = 2**31 - 1
"""Such numbers are 32-bit integers in Kafka and Spark."""

_COLUMN = values.scalar("the name of a column")
_COMMON = {
    "from": Key(values.scalar("the name of a source or step"), is_required=True),
    "mode": Key(values.choice(*MODES)),
}
TOPIC_KEYS = {
    **_COMMON,
    "topic": Key(TOPIC_NAME),
    "key": Key(_COLUMN),
    "format": Key(values.choice("json", *REGISTERED_FORMATS)),
    **SUBJECT_KEYS,
    "value": Key(values.texts("json, the name of a column, or a list of columns")),
    "headers": Key(_COLUMN),
    "partition": Key(_COLUMN),
    "timestamp": Key(_COLUMN),
    "delivery": Key(values.choice(*DELIVERIES)),
    "transaction-timeout": Key(values.duration("the timeout of the transactions of a batch")),
    "partitions": Key(values.count("the number of partitions if the topic is created", most=_INT_MAX)),
}
UPKEEP_KEYS = {
    "compact": Key(values.flag("merge small files")),
    "expire-snapshots": Key(
        values.flag("expire snapshots according to the table's history.expire properties")
    ),
    "orphan-age": Key(values.duration("the age at which orphaned files are removed", "never")),
}


def _upkeep(node: Node, findings: Findings) -> UpkeepPolicy | None:
    if isinstance(node, Scalar) and node.text == "none":
        return NO_UPKEEP
    section = values.read_section(node, UPKEEP_KEYS, "upkeep", findings)
    if section is None or not section.is_whole:
        return None
    orphan_age_ms = section.get("orphan-age", ORPHAN_AGE_MS)
    if orphan_age_ms != "never" and orphan_age_ms < ORPHAN_AGE_MIN_MS:
        findings.error(
            section.position_of("orphan-age"),
            "files younger than a day may belong to a concurrent writer: orphan-age is at least 1 day",
        )
        return None
    return UpkeepPolicy(
        is_compacting=section.get("compact", True),
        is_expiring=section.get("expire-snapshots", True),
        orphan_age_ms=None if orphan_age_ms == "never" else orphan_age_ms,
    )


TABLE_KEYS = {
    **_COMMON,
    "table": Key(
        values.matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", "a table with its namespace, such as shop.revenue")
    ),
    "warehouse": Key(values.text("a directory")),
    "catalog": Key(values.settings("properties of an Iceberg catalog, such as type and uri")),
    "properties": Key(
        values.settings("properties of an Iceberg table, such as history.expire.max-snapshot-age-ms")
    ),
    "upkeep": Key(_upkeep),
    "partition-by": Key(values.texts("names of columns")),
}
PARQUET_KEYS = {
    **_COMMON,
    "parquet": Key(values.text("a directory")),
    "partition-by": Key(values.texts("names of columns")),
}
CONSOLE_KEYS = {
    **_COMMON,
    "console": Key(values.flag("print each batch")),
    "rows": Key(values.count("the number of rows to print", most=_INT_MAX)),
}
KINDS = {"topic": TOPIC_KEYS, "table": TABLE_KEYS, "parquet": PARQUET_KEYS, "console": CONSOLE_KEYS}
_CALLED = {"table": "tables", "parquet": "Parquet files"}
MODES_OF_KINDS = {
    "topic": ("append", "update", "complete"),
    "table": ("append",),
    "parquet": ("append",),
    "console": ("append", "update", "complete"),
}


def sink_input(node: Node) -> Reference | None:
    """The input of a sink, even if its other keys are invalid."""
    entry = node.entries.get("from") if isinstance(node, Mapping) else None
    if entry is None or not isinstance(entry.value, Scalar) or entry.value.kind != "text":
        return None
    return Reference(entry.value.text, entry.value.position)


def read_sink(name: str, position: Position, node: Node, folder: Path, findings: Findings) -> Sink | None:
    """Parse a sink; None on errors."""
    what = f"sink {name!r}"
    kinds = [kind for kind in KINDS if kind in node.entries] if isinstance(node, Mapping) else []
    if isinstance(node, Mapping) and len(kinds) != 1:
        # Misspelt keys are reported first: they are the likely reason.
        every = {key: KINDS[kind][key] for kind in KINDS for key in KINDS[kind]}
        section = values.read_section(node, every, what, findings)
        if kinds or (section and all(key in every for key in section.positions)):
            problem = f"has {listed(kinds, 'and')}" if kinds else "has no target"
            findings.error(position, f"{what} {problem}: exactly one of {listed(KINDS)} is required")
        return None
    kind = kinds[0] if kinds else "topic"
    section = values.read_section(node, KINDS[kind], what, findings)
    if section is None or not section.is_whole:
        return None
    mode = section.get("mode", "append")
    if mode not in MODES_OF_KINDS[kind]:
        findings.error(
            section.position_of("mode"),
            f"{_CALLED[kind]} support mode append only: a row that is updated later, "
            f"as in mode {mode}, would be written twice",
        )
        return None
    if kind == "console" and not section.get("console"):
        findings.error(
            section.position_of("console"), f"{what} writes nothing with console: false: remove it"
        )
        return None
    if kind == "topic" and not (_check_timeout(section, findings) and _check_format(section, what, findings)):
        return None
    source = section.get("from")
    columns = _columns(section)
    return Sink(
        name, position, Reference(source.text, source.position), _target(kind, section, folder), mode, columns
    )


def _check_timeout(section: Section, findings: Findings) -> bool:
    """Check the transaction timeout, except for the broker's limit."""
    timeout_ms = section.get("transaction-timeout")
    if timeout_ms is None:
        return True
    position = section.position_of("transaction-timeout")
    if section.get("delivery") == "at-least-once":
        findings.error(position, "delivery: at-least-once uses no transactions: remove transaction-timeout")
        return False
    if not TRANSACTION_TIMEOUT_MIN_MS <= timeout_ms <= _INT_MAX:
        findings.error(
            position, f"a transaction timeout is from {TRANSACTION_TIMEOUT_MIN_MS // 1000} seconds to 24 days"
        )
        return False
    return True


def _check_format(section: Section, what: str, findings: Findings) -> bool:
    """Check the keys of the value's schema in the registry."""
    value_format = section.get("format", JSON)
    if value_format != JSON:
        read_subject(section, what, value_format, section.get("topic"), findings)
        return section.is_whole
    given = [key for key in SUBJECT_KEYS if key in section.positions]
    if given:
        formats = listed(REGISTERED_FORMATS)
        findings.error(section.position_of(given[0]), f"{given[0]} requires one of the formats {formats}")
    return not given


def _columns(section: Section) -> tuple[Reference, ...]:
    named: list[Scalar] = [
        section.get(key) for key in ("key", "headers", "partition", "timestamp") if key in section.values
    ]
    named += section.get("partition-by", NO_TEXTS)
    value: Texts = section.get("value", NO_TEXTS)
    named += [item for item in value if value.is_list or item.text != JSON]
    return tuple(Reference(item.text, item.position) for item in named)


def _target(kind: str, section: Section, folder: Path) -> SinkTarget:
    partition_by = tuple(item.text for item in section.get("partition-by", NO_TEXTS))
    match kind:
        case "topic":
            return _topic(section)
        case "table":
            return TableTarget(
                table=section.get("table"),
                warehouse=located(section.get("warehouse", WAREHOUSE), folder),
                catalog=section.get("catalog", {}),
                partition_by=partition_by,
                properties=section.get("properties", {}),
                upkeep=section.get("upkeep", FULL_UPKEEP),
            )
        case "parquet":
            return ParquetTarget(located(section.get("parquet"), folder), partition_by)
        case _:
            return ConsoleTarget(section.get("rows", CONSOLE_ROWS))


def _topic(section: Section) -> TopicTarget:
    def column(key: str) -> Any:
        return section.get(key).text if key in section.values else None

    chosen: Texts = section.get("value", NO_TEXTS)
    names = tuple(item.text for item in chosen)
    value: str | tuple[str, ...] = names if chosen.is_list else names[0]
    if value == JSON:
        value = ()
    return TopicTarget(
        topic=section.get("topic"),
        key=column("key"),
        value=value,
        headers=column("headers"),
        partition=column("partition"),
        timestamp=column("timestamp"),
        delivery=section.get("delivery", "exactly-once"),
        transaction_timeout_ms=section.get("transaction-timeout"),
        partitions=section.get("partitions"),
        subject=_subject(section),
    )


def _subject(section: Section) -> Subject | None:
    value_format = section.get("format", JSON)
    if value_format == JSON:
        return None
    return read_subject(section, "", value_format, section.get("topic"), Findings())


def located(path: str, folder: Path) -> str:
    """An absolute path, relative to the directory of the pipeline file; URIs are returned unchanged."""
    return path if "://" in path or path.startswith("file:") else str((folder / path).absolute())
