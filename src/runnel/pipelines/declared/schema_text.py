"""Schemas: "id string, amount double", or a mapping of columns to types."""

import re
from collections.abc import Iterator

from runnel.pipelines.declared.declaration import Column, Schema
from runnel.pipelines.declared.findings import Findings, Position, did_you_mean
from runnel.pipelines.declared.tree import Mapping, Node, Scalar, described, is_missing

TYPES = (
    "string", "boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float",
    "real", "double", "decimal", "dec", "numeric", "date", "timestamp", "timestamp_ltz", "timestamp_ntz",
    "binary", "array", "map", "struct", "variant", "char", "varchar",
)  # fmt: skip
TIME_TYPES = ("timestamp", "timestamp_ltz", "timestamp_ntz", "date")

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`<>(),]+))\s*(?::|\s)\s*(.+?)\s*", re.DOTALL)
_AFTER_TYPE = re.compile(r"\s+(not\s+null|comment\s|default\s|collate\s).*", re.IGNORECASE | re.DOTALL)
_EXPECTED = 'columns such as "id string, amount double, at timestamp"'


def read_schema(node: Node, findings: Findings) -> Schema | None:
    """Parse a schema; None on errors, which are added to the findings."""
    match node:
        case Mapping(entries=entries):
            columns = [
                Column(name, entry.value.text, entry.value.position)
                for name, entry in entries.items()
                if isinstance(entry.value, Scalar)
            ]
            for entry in entries.values():
                if not isinstance(entry.value, Scalar):
                    findings.error(
                        entry.value.position,
                        f"expected a type, such as string, found {described(entry.value)}",
                    )
            is_whole = len(columns) == len(entries)
            text = ", ".join(f"{quoted(column.name)} {column.type_text}" for column in columns)
        case Scalar(kind="text") if node.text.strip():
            found = [_column(node, start, part, findings) for start, part in top_level_parts(node.text)]
            columns = [column for column in found if column]
            is_whole = len(columns) == len(found)
            text = node.text
        case _ if is_missing(node):
            return None
        case _:
            findings.error(node.position, f"expected {_EXPECTED}, found {described(node)}")
            return None
    is_whole = _types_are_known(columns, findings) and _names_differ(columns, findings) and is_whole
    return Schema(text, tuple(columns), node.position) if is_whole and columns else None


def quoted(name: str) -> str:
    """A column's name, quoted so that it may contain any character."""
    return f"`{name.replace('`', '``')}`"


def top_level_parts(text: str) -> Iterator[tuple[int, str]]:
    """The parts between commas outside of brackets and quotes, each with its index in the text."""
    depth, start, quote = 0, 0, ""
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            yield start, text[start:index]
            start = index + 1
    yield start, text[start:]


def _column(node: Scalar, start: int, part: str, findings: Findings) -> Column | None:
    matched = _COLUMN.fullmatch(part)
    position = node.position_of(start + len(part) - len(part.lstrip()))
    if matched is None:
        found = f"{part.strip()!r}" if part.strip() else "nothing between two commas"
        findings.error(position, f"expected a column and its type, such as amount double, found {found}")
        return None
    return Column((matched[1] or matched[2]).replace("``", "`"), matched[3], position)


def _types_are_known(columns: list[Column], findings: Findings) -> bool:
    return all([_type_is_known(column.type_text, column, findings) for column in columns])


def _type_is_known(type_text: str, column: Column, findings: Findings) -> bool:
    bare = _AFTER_TYPE.sub("", type_text.strip())
    word = re.split(r"[<(\s]", bare, maxsplit=1)[0].lower()
    if word not in TYPES and not word.startswith("interval"):
        close = (
            did_you_mean(word, TYPES)
            or ": use a type of Spark SQL, such as string, bigint, double or timestamp"
        )
        findings.error(column.position, f"column {column.name!r} has an unknown type {word!r}{close}")
        return False
    inner = re.fullmatch(r"(array|map|struct)\s*<(.*)>", bare, re.IGNORECASE | re.DOTALL)
    if inner is None:
        if word in ("array", "map", "struct"):
            findings.error(
                column.position, f"column {column.name!r}: the {word} has no element type: write {word}<...>"
            )
            return False
        return True
    parts = [part for _, part in top_level_parts(inner[2])]
    if word == "struct":
        fields = [_COLUMN.fullmatch(part) for part in parts]
        parts = [field[3] for field in fields if field]
    return all([_type_is_known(part, column, findings) for part in parts])


def _names_differ(columns: list[Column], findings: Findings) -> bool:
    seen: dict[str, Position] = {}
    for column in columns:
        if column.name.lower() in seen:
            findings.error(column.position, f"duplicate column {column.name!r}")
            return False
        seen[column.name.lower()] = column.position
    return True
