"""Schemas as people write them: "id string, amount double", or one key for each column."""

import re
from collections.abc import Iterator

from runnel.pipelines.declared.declaration import Column, Schema
from runnel.pipelines.declared.findings import Findings, Place, did_you_mean
from runnel.pipelines.declared.tree import Mapping, Node, Scalar, described, is_missing

TYPES = (
    "string", "boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float",
    "real", "double", "decimal", "dec", "numeric", "date", "timestamp", "timestamp_ltz", "timestamp_ntz",
    "binary", "array", "map", "struct", "variant", "char", "varchar",
)  # fmt: skip
TIME_TYPES = ("timestamp", "timestamp_ltz", "timestamp_ntz", "date")

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`<>(),]+))\s*(?::|\s)\s*(.+?)\s*", re.DOTALL)
_AFTER_TYPE = re.compile(r"\s+(not\s+null|comment\s|default\s|collate\s).*", re.IGNORECASE | re.DOTALL)
_EXPECTED = 'columns as "id string, amount double, at timestamp"'


def read_schema(node: Node, findings: Findings) -> Schema | None:
    """The columns of a value; None where they could not be read, and the findings then say why."""
    match node:
        case Mapping(entries=entries):
            columns = [
                Column(name, entry.value.text, entry.value.place)
                for name, entry in entries.items()
                if isinstance(entry.value, Scalar)
            ]
            for entry in entries.values():
                if not isinstance(entry.value, Scalar):
                    findings.error(
                        entry.value.place,
                        f"expected a type, as string, found {described(entry.value)}",
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
            findings.error(node.place, f"expected {_EXPECTED}, found {described(node)}")
            return None
    is_whole = _types_are_known(columns, findings) and _names_differ(columns, findings) and is_whole
    return Schema(text, tuple(columns), node.place) if is_whole and columns else None


def quoted(name: str) -> str:
    """A column's name, quoted so that it may contain any character."""
    return f"`{name.replace('`', '``')}`"


def top_level_parts(text: str) -> Iterator[tuple[int, str]]:
    """The parts between commas outside of brackets and quotes, with its index in the text."""
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
    place = node.place_of(start + len(part) - len(part.lstrip()))
    if matched is None:
        said = f"{part.strip()!r}" if part.strip() else "nothing between two commas"
        findings.error(place, f"expected a column and its type, as amount double, found {said}")
        return None
    return Column((matched[1] or matched[2]).replace("``", "`"), matched[3], place)


def _types_are_known(columns: list[Column], findings: Findings) -> bool:
    return all([_type_is_known(column.type_text, column, findings) for column in columns])


def _type_is_known(type_text: str, column: Column, findings: Findings) -> bool:
    bare = _AFTER_TYPE.sub("", type_text.strip())
    word = re.split(r"[<(\s]", bare, maxsplit=1)[0].lower()
    if word not in TYPES and not word.startswith("interval"):
        close = (
            did_you_mean(word, TYPES)
            or ": Spark's types are string, int, bigint, double, timestamp and so on"
        )
        findings.error(column.place, f"column {column.name!r} has an unknown type {word!r}{close}")
        return False
    inner = re.fullmatch(r"(array|map|struct)\s*<(.*)>", bare, re.IGNORECASE | re.DOTALL)
    if inner is None:
        if word in ("array", "map", "struct"):
            findings.error(column.place, f"column {column.name!r}: write what is in the {word}: {word}<...>")
            return False
        return True
    parts = [part for _, part in top_level_parts(inner[2])]
    if word == "struct":
        fields = [_COLUMN.fullmatch(part) for part in parts]
        parts = [field[3] for field in fields if field]
    return all([_type_is_known(part, column, findings) for part in parts])


def _names_differ(columns: list[Column], findings: Findings) -> bool:
    seen: dict[str, Place] = {}
    for column in columns:
        if column.name.lower() in seen:
            findings.error(column.place, f"the column {column.name!r} is here twice")
            return False
        seen[column.name.lower()] = column.place
    return True
