"""Sources and steps of a pipeline file: their keys and the validation of values."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runnel.pipelines.declared import values
from runnel.pipelines.declared.avro_text import read_avro_schema
from runnel.pipelines.declared.declaration import (
    FORMATS,
    METADATA,
    ON_MALFORMED,
    REGISTERED_FORMATS,
    PythonFunction,
    Reference,
    Schema,
    Source,
    Step,
    Subject,
    Watermark,
)
from runnel.pipelines.declared.findings import Findings, Position, did_you_mean, listed
from runnel.pipelines.declared.patterns import without_dead_letters
from runnel.pipelines.declared.schema_text import TIME_TYPES, read_schema
from runnel.pipelines.declared.sql_text import query_tables
from runnel.pipelines.declared.tree import Mapping as MappingNode
from runnel.pipelines.declared.tree import Node, Scalar
from runnel.pipelines.declared.values import Key, Section
from runnel.pipelines.errors import BadOption
from runnel.pipelines.source.options import FOREIGN_OPTIONS, READ_OPTIONS, read_options

TOPIC_NAME = values.matching(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", "a topic's name (letters, digits, . _ -)")

TOPICS = ("topic", "topics", "pattern")

WATERMARK_KEYS = {
    "column": Key(values.text("the name of a column"), is_required=True),
    "delay": Key(values.duration("how late a row may arrive"), is_required=True),
}


def _watermark(node: Node, findings: Findings) -> Watermark | str | None:
    if isinstance(node, Scalar) and node.text == "none":
        return "none"
    section = values.read_section(node, WATERMARK_KEYS, "a watermark", findings)
    if section is None or not section.is_whole:
        return None
    return Watermark(section.get("column"), section.get("delay"), section.position_of("column"))


def _as_is(node: Node, findings: Findings) -> Node:
    return node


_SETTINGS = values.settings("options of the format runnel")
_OF_KEYS = {
    "kafka.bootstrap.servers": "broker",
    "bootstrap.servers": "broker",
    "subscribe": "topic or topics",
    "subscribepattern": "pattern",
    "assign": "topic or topics",
    "valuesubject": "subject",
    "valueversion": "version",
    "valuemessage": "message",
    "schemaregistry.url": "registry",
    "schemaregistry.user": "registry-user",
}
"""Options that are set by keys of the pipeline file."""
_ANY_SOURCE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "any"}


def _options(node: Node, findings: Findings) -> dict[str, str] | None:
    """Options of the format `runnel` and of Kafka clients, each validated by itself."""
    found: dict[str, str] | None = _SETTINGS(node, findings)
    if found is None or not isinstance(node, MappingNode):
        return None
    is_whole = True
    known = {option.lower() for option in READ_OPTIONS} | FOREIGN_OPTIONS
    for name, value in found.items():
        try:
            if name.lower() not in known and not name.lower().startswith("kafka."):
                close = did_you_mean(name, READ_OPTIONS) or "; docs/SPARK.md lists the options"
                raise BadOption(f"the format runnel has no option {name!r}{close}")
            if name.lower().startswith("ending"):
                raise BadOption(f"{name} does not apply to streams: remove it")
            if name.lower() in _OF_KEYS:
                raise BadOption(f"use the key {_OF_KEYS[name.lower()]} instead of the option {name}")
            read_options({**_ANY_SOURCE, name: value})
        except BadOption as error:
            findings.error(node.entries[name].key.position, str(error))
            is_whole = False
    return found if is_whole else None


SUBJECT_KEYS = {
    "subject": Key(values.text("a subject of the schema registry")),
    "version": Key(values.matching(r"latest|[1-9]\d{0,9}", "a version of the subject, or latest")),
    "message": Key(values.text("the name of a Protobuf message")),
}
SOURCE_KEYS = {
    "topic": Key(TOPIC_NAME),
    "topics": Key(values.texts("names of topics")),
    "pattern": Key(values.text("a regular expression for topic names")),
    "format": Key(values.choice(*FORMATS)),
    "schema": Key(_as_is),
    **SUBJECT_KEYS,
    "watermark": Key(_watermark),
    "start": Key(values.moment("a starting position", "earliest", "latest")),
    "on-malformed": Key(values.choice(*ON_MALFORMED)),
    "dead-letter-topic": Key(TOPIC_NAME),
    "tombstones": Key(values.choice("skip", "keep")),
    "metadata": Key(values.texts("metadata fields of a record")),
    "records-per-batch": Key(values.count("the maximum number of records per batch")),
    "fail-on-data-loss": Key(values.flag("fail if records are deleted before they are read")),
    "options": Key(_options),
}


def read_source(name: str, position: Position, node: Node, folder: Path, findings: Findings) -> Source | None:
    """Parse a source; None on errors."""
    what = f"source {name!r}"
    section = values.read_section(node, SOURCE_KEYS, what, findings)
    if section is None:
        return None
    named = [key for key in TOPICS if key in section.positions]
    if len(named) != 1 and not section.misspelt & {*TOPICS}:
        problem = f"has {listed(named, 'and')}" if named else "has no topics"
        findings.error(position, f"{what} {problem}: exactly one of topic, topics or pattern is required")
        section.is_whole = False
    subject = _subject_of(section, what, findings)
    schema = None if subject else _schema_of(section, what, folder, findings)
    metadata = _metadata_of(section, findings)
    watermark = section.get("watermark")
    source = Source(
        name=name,
        position=position,
        topics=_topics_of(section, findings),
        pattern=section.get("pattern"),
        format=section.get("format", "json"),
        schema=schema,
        subject=subject,
        watermark=watermark if isinstance(watermark, Watermark) else None,
        keeps_all=watermark == "none",
        start=section.get("start", "earliest"),
        on_malformed=section.get("on-malformed", "dead-letter"),
        dead_letter_topic=section.get("dead-letter-topic"),
        keeps_tombstones=section.get("tombstones", "skip") == "keep",
        metadata=metadata,
        records_per_batch=section.get("records-per-batch"),
        fails_on_data_loss=section.get("fail-on-data-loss", True),
        options=section.get("options", {}),
    )
    _check_source(source, section, findings)
    return source if section.is_whole else None


def _topics_of(section: Section, findings: Findings) -> tuple[str, ...]:
    if "topic" in section.values:
        return (section.get("topic"),)
    found = [TOPIC_NAME(item, findings) for item in section.get("topics", values.NO_TEXTS)]
    if not all(found):
        section.is_whole = False
    return tuple(topic for topic in found if topic)


def _subject_of(section: Section, what: str, findings: Findings) -> Subject | None:
    """The subject of a source; None if its schema is in the file."""
    value_format = section.get("format", "json")
    given = [key for key in SUBJECT_KEYS if key in section.positions]
    if value_format not in REGISTERED_FORMATS or (value_format == "avro" and "schema" in section.positions):
        if given:
            reason = "a schema" if value_format == "avro" else f"format {value_format}"
            findings.error(
                section.position_of(given[0]),
                f"{what} has {reason}: {given[0]} requires one of the formats "
                f"{listed(REGISTERED_FORMATS)}, without a schema",
            )
            section.is_whole = False
        return None
    if value_format == "avro" and not given:
        return None
    return read_subject(section, what, value_format, section.get("topic"), findings)


def read_subject(
    section: Section, what: str, value_format: str, topic: str | None, findings: Findings
) -> Subject:
    """The subject of a source or a sink, by default that of the topic's values."""
    wrong = None
    if "schema" in section.positions:
        wrong = f"{what} has format {value_format}, whose schema is a subject of the registry: remove schema"
        position = section.position_of("schema")
    elif "subject" not in section.positions and topic is None and "topic" not in section.positions:
        wrong = f"{what} has several topics and requires a subject"
        position = section.position
    elif "message" in section.positions and value_format != "protobuf":
        wrong = f"message applies to format protobuf, not to {value_format}"
        position = section.position_of("message")
    if wrong is not None:
        findings.error(position, wrong)
        section.is_whole = False
    return Subject(
        value_format,
        section.get("subject") or (f"{topic}-value" if topic else None),
        section.get("version", "latest"),
        section.get("message"),
        section.position_of("subject"),
    )


def _schema_of(section: Section, what: str, folder: Path, findings: Findings) -> Schema | None:
    value_format = section.get("format", "json")
    node = section.get("schema")
    if value_format in ("string", "bytes"):
        if node is not None:
            findings.error(
                section.position_of("schema"),
                f"{what} has format {value_format}, whose only column is value: remove the schema",
            )
            section.is_whole = False
        return None
    if node is None:
        format_is_wrong = "format" in section.positions and "format" not in section.values
        if "schema" not in section.positions and not format_is_wrong:
            findings.error(
                section.position,
                f"{what} has format {value_format} and requires a schema"
                + (", or a subject" if value_format == "avro" else ', such as "id string, at timestamp"'),
            )
        section.is_whole = False
        return None
    schema = (
        read_avro_schema(node, folder, findings) if value_format == "avro" else read_schema(node, findings)
    )
    if schema is None:
        section.is_whole = False
    return schema


def _metadata_of(section: Section, findings: Findings) -> tuple[str, ...]:
    found = []
    for item in section.get("metadata", values.NO_TEXTS):
        if item.text in METADATA:
            found.append(item.text)
        else:
            close = did_you_mean(item.text, METADATA) or f"; available: {listed(METADATA, 'and')}"
            findings.error(item.position, f"unknown metadata field {item.text!r}{close}")
            section.is_whole = False
    return tuple(dict.fromkeys(found))


def _check_source(source: Source, section: Section, findings: Findings) -> None:
    if source.pattern is not None:
        _check_pattern(source.pattern, section, findings)
    if source.dead_letter_topic and source.on_malformed != "dead-letter":
        findings.error(
            section.position_of("dead-letter-topic"),
            f"dead-letter-topic has no effect with on-malformed: {source.on_malformed}",
        )
        section.is_whole = False
    if source.dead_letter_topic in source.topics:
        findings.error(
            section.position_of("dead-letter-topic"), "the dead-letter topic cannot be a topic of the source"
        )
        section.is_whole = False
    if section.is_whole:
        _check_columns(source, section, findings)


def _check_pattern(pattern: str, section: Section, findings: Findings) -> None:
    position = section.position_of("pattern")
    try:
        re.compile(pattern)
        re.compile(without_dead_letters(pattern, set()))
    except re.error as error:
        findings.error(position, f"the pattern is not a valid regular expression: {error}")
        section.is_whole = False
    if "dead-letters" in pattern.replace("\\", "") and "!" not in pattern:
        findings.warn(
            position, "a pattern does not match dead-letter topics: to read them, list them in topics"
        )


def _check_columns(source: Source, section: Section, findings: Findings) -> None:
    columns = {column.name: column for column in (source.schema.columns if source.schema else ())}
    for name in source.metadata:
        if f"_{name}" in columns:
            findings.error(
                columns[f"_{name}"].position, f"the column '_{name}' is reserved for metadata: {name}"
            )
            section.is_whole = False
    watermark = source.watermark
    if watermark is None or (source.subject is not None and not watermark.column.startswith("_")):
        # The columns of a subject are known to the registry only.
        return
    if watermark.column not in source.column_names:
        close = did_you_mean(watermark.column, source.column_names)
        known = f"; its columns are {listed(source.column_names, 'and')}"
        findings.error(
            watermark.position, f"source {source.name!r} has no column {watermark.column!r}{close or known}"
        )
        section.is_whole = False
        return
    column = columns.get(watermark.column)
    word = column.type_text.split()[0].lower() if column else "timestamp"
    if (source.format == "json" and word not in TIME_TYPES) or watermark.column in ("value", "_key"):
        findings.error(
            watermark.position,
            f"the column of a watermark must be a timestamp, and {watermark.column!r} is {word}; "
            "declare it as timestamp, or use metadata: [timestamp] and its column _timestamp",
        )
        section.is_whole = False


STEP_KEYS = {
    "sql": Key(values.scalar("a query, such as SELECT * FROM orders")),
    "python": Key(
        values.matching(r".+\.py:[A-Za-z_][A-Za-z0-9_]*", "a function in a file, such as steps.py:with_total")
    ),
    "inputs": Key(values.texts("names of sources or steps")),
}


def read_step(name: str, position: Position, node: Node, folder: Path, findings: Findings) -> Step | None:
    """Parse a step; None on errors."""
    what = f"step {name!r}"
    section = values.read_section(node, STEP_KEYS, what, findings)
    if section is None:
        return None
    kinds = [key for key in ("sql", "python") if key in section.positions]
    if len(kinds) != 1 and section.misspelt & {"sql", "python"}:
        return None
    if len(kinds) != 1:
        findings.error(
            position, f"{what} has {'both' if kinds else 'neither'} sql {'and' if kinds else 'nor'} python"
        )
        return None
    if kinds == ["sql"] and "inputs" in section.positions:
        findings.error(
            section.position_of("inputs"), f"{what} is a query, whose inputs are its tables: remove inputs"
        )
        return None
    if kinds == ["python"] and "inputs" not in section.positions and "inputs" not in section.misspelt:
        findings.error(position, f"{what} has no inputs: add them, such as inputs: [orders]")
        return None
    if not section.is_whole:
        return None
    return _query(name, position, section) if kinds == ["sql"] else _function(name, position, section, folder)


def _query(name: str, position: Position, section: Section) -> Step:
    sql: Scalar = section.get("sql")
    tables = query_tables(sql.text)
    inputs = tuple(Reference(table.name, sql.position_of(table.index)) for table in tables.names)
    return Step(name, position, sql, None, inputs, tables.joins)


def _function(name: str, position: Position, section: Section, folder: Path) -> Step:
    file, _, function = section.get("python").rpartition(":")
    python = PythonFunction(folder / file, function, section.position_of("python"))
    inputs = tuple(Reference(item.text, item.position) for item in section.get("inputs"))
    return Step(name, position, None, python, inputs)


def checked_names(
    entries: Mapping[str, Any], what: str, findings: Findings, taken: dict[str, Position]
) -> list[str]:
    """The names that are valid as tables in a query, in which case is not significant."""
    good = []
    for name, entry in entries.items():
        position = entry.key.position
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            fixed = re.sub(r"^(?=\d)", "_", re.sub(r"\W", "_", name))
            findings.error(
                position,
                f"the name of a {what} consists of letters, digits and _, such as {fixed or 'orders'!r}",
            )
        elif name.lower() in taken:
            findings.error(
                position,
                f"duplicate name {name!r}, first used at line {taken[name.lower()].line} (case-insensitive)",
            )
        else:
            taken[name.lower()] = position
            good.append(name)
    return good
