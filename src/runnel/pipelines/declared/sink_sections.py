"""The section of sinks: four kinds, each told by the one key that only it has."""

from pathlib import Path
from typing import Any

from runnel.pipelines.declared import values
from runnel.pipelines.declared.declaration import (
    DELIVERIES,
    MODES,
    ConsoleTarget,
    ParquetTarget,
    Reference,
    Sink,
    TableTarget,
    Target,
    TopicTarget,
)
from runnel.pipelines.declared.findings import Findings, Place, listed
from runnel.pipelines.declared.sections import TOPIC_NAME
from runnel.pipelines.declared.tree import Mapping, Node, Scalar
from runnel.pipelines.declared.values import NO_TEXTS, Key, Section, Texts

WAREHOUSE = ".runnel/warehouse"
CONSOLE_ROWS = 20
JSON = "json"

_INT_MAX = 2**31 - 1
"""What Kafka and Spark have for such numbers."""

_COLUMN = values.scalar("the name of a column")
_COMMON = {
    "from": Key(values.scalar("the name of a source or step"), is_required=True),
    "mode": Key(values.choice(*MODES)),
}
TOPIC_KEYS = {
    **_COMMON,
    "topic": Key(TOPIC_NAME),
    "key": Key(_COLUMN),
    "value": Key(values.texts("json, the name of a column, or a list of columns")),
    "headers": Key(_COLUMN),
    "partition": Key(_COLUMN),
    "timestamp": Key(_COLUMN),
    "delivery": Key(values.choice(*DELIVERIES)),
    "partitions": Key(values.count("how many partitions the topic gets if it is made", most=_INT_MAX)),
}
TABLE_KEYS = {
    **_COMMON,
    "table": Key(
        values.matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", "a table with its namespace, as shop.revenue")
    ),
    "warehouse": Key(values.text("a folder")),
    "catalog": Key(values.settings("properties of an Iceberg catalog, as type and uri")),
    "partition-by": Key(values.texts("names of columns")),
}
PARQUET_KEYS = {
    **_COMMON,
    "parquet": Key(values.text("a folder")),
    "partition-by": Key(values.texts("names of columns")),
}
CONSOLE_KEYS = {
    **_COMMON,
    "console": Key(values.flag("print each batch")),
    "rows": Key(values.count("how many rows to print", most=_INT_MAX)),
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
    """What a sink reads, also if nothing else of it makes sense."""
    entry = node.entries.get("from") if isinstance(node, Mapping) else None
    if entry is None or not isinstance(entry.value, Scalar) or entry.value.kind != "text":
        return None
    return Reference(entry.value.text, entry.value.place)


def read_sink(name: str, place: Place, node: Node, folder: Path, findings: Findings) -> Sink | None:
    """One sink; None where it could not be read."""
    what = f"sink {name!r}"
    kinds = [kind for kind in KINDS if kind in node.entries] if isinstance(node, Mapping) else []
    if isinstance(node, Mapping) and len(kinds) != 1:
        # Misspelt keys first: they may well be why.
        every = {key: KINDS[kind][key] for kind in KINDS for key in KINDS[kind]}
        section = values.read_section(node, every, what, findings)
        if kinds or (section and all(key in every for key in section.places)):
            said = f"is {listed(kinds, 'and')} at once" if kinds else "says not where to"
            findings.error(place, f"{what} {said}: it takes one of {listed(KINDS)}")
        return None
    kind = kinds[0] if kinds else "topic"
    section = values.read_section(node, KINDS[kind], what, findings)
    if section is None or not section.is_whole:
        return None
    mode = section.get("mode", "append")
    if mode not in MODES_OF_KINDS[kind]:
        findings.error(
            section.place_of("mode"),
            f"{_CALLED[kind]} take rows that are final, so the mode is append: a row that changes later, "
            f"as with {mode}, would be there twice",
        )
        return None
    if kind == "console" and not section.get("console"):
        findings.error(section.place_of("console"), f"{what} goes nowhere with console: false: remove it")
        return None
    source = section.get("from")
    columns = _columns(section)
    return Sink(
        name, place, Reference(source.text, source.place), _target(kind, section, folder), mode, columns
    )


def _columns(section: Section) -> tuple[Reference, ...]:
    named: list[Scalar] = [
        section.get(key) for key in ("key", "headers", "partition", "timestamp") if key in section.values
    ]
    named += section.get("partition-by", NO_TEXTS)
    value: Texts = section.get("value", NO_TEXTS)
    named += [item for item in value if value.is_list or item.text != JSON]
    return tuple(Reference(item.text, item.place) for item in named)


def _target(kind: str, section: Section, folder: Path) -> Target:
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
        partitions=section.get("partitions"),
    )


def located(path: str, folder: Path) -> str:
    """A path that means the same from wherever the pipeline is started: beside its file, or an address."""
    return path if "://" in path or path.startswith("file:") else str((folder / path).absolute())
