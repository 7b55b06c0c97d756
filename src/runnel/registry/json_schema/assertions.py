"""Rules for the assertions of one schema: types, values, bounds, and what is below them."""

from fractions import Fraction

from runnel.registry.json_schema import json_text
from runnel.registry.json_schema.arrays import compare_arrays
from runnel.registry.json_schema.literals import accepts_scalar
from runnel.registry.json_schema.objects import compare_objects
from runnel.registry.json_schema.paths import clipped
from runnel.registry.json_schema.proofs import Proofs
from runnel.registry.json_schema.report import Report, Rule
from runnel.registry.json_schema.schema import TYPES, Schema

_BOUNDS = (
    ("maximum", "MAXIMUM", "number"),
    ("minimum", "MINIMUM", "number"),
    ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", "number"),
    ("exclusiveMinimum", "EXCLUSIVE_MINIMUM", "number"),
    ("maxLength", "MAX_LENGTH", "string"),
    ("minLength", "MIN_LENGTH", "string"),
    ("maxItems", "MAX_ITEMS", "array"),
    ("minItems", "MIN_ITEMS", "array"),
    ("maxProperties", "MAX_PROPERTIES", "object"),
    ("minProperties", "MIN_PROPERTIES", "object"),
)
_FINITE = {"null": ("null",), "boolean": ("true", "false")}


def compare_assertions(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    """Compare the assertions of two schemas, those that concern types which both allow."""
    admitted = proofs.types(writer)
    _compare_types(report, writer, reader, admitted)
    _compare_values(report, writer, reader, admitted)
    if _accepts_each_value(report, writer, reader):
        return
    shared = admitted & reader.types
    _compare_bounds(report, writer, reader, shared)
    if shared & TYPES["number"]:
        _compare_multiples(report, writer, reader)
    if "string" in shared:
        _compare_patterns(report, writer, reader)
    if "array" in shared:
        yield from compare_arrays(report, writer, reader)
    if "object" in shared:
        yield from compare_objects(report, proofs, writer, reader)


def _compare_types(report: Report, writer: Schema, reader: Schema, admitted: frozenset[str]) -> None:
    refused = admitted - reader.types
    if not refused:
        if writer.types != reader.types and writer.type_names and reader.type_names:
            kind = "SUM_TYPE_EXTENDED" if len(reader.type_names) > 1 else "TYPE_EXTENDED"
            report.add(kind, f"the reader accepts {_named(reader)}, the writer writes {_named(writer)}")
        return
    if not admitted & reader.types:
        kind = "TYPE_CHANGED"
    else:
        kind = "SUM_TYPE_NARROWED" if len(writer.type_names) > 1 else "TYPE_NARROWED"
    report.add(kind, f"the reader accepts {_named(reader)}, the writer may write {_spoken(admitted)}")


def _compare_values(report: Report, writer: Schema, reader: Schema, admitted: frozenset[str]) -> None:
    if reader.values is None:
        if writer.values is not None and reader.owner is None:
            report.add("PRODUCT_TYPE_NARROWED", "the reader does not restrict values")
        return
    keyword = "enum" if isinstance(reader.raw, dict) and "enum" in reader.raw else "const"
    written = writer.values
    if written is None and admitted <= _FINITE.keys():
        written = frozenset(value for name in admitted for value in _FINITE[name])
    if written is None:
        report.add("ENUM_ARRAY_NARROWED", "the reader accepts certain values only, the writer any", keyword)
        return
    report.budget.charge((len(written) + len(reader.values)) // 16)
    refused = sorted(written - reader.values)
    if refused:
        kind = "ENUM_ARRAY_NARROWED" if reader.values <= written else "ENUM_ARRAY_CHANGED"
        quoted = ", ".join(clipped(value) for value in refused[:3]) + (", …" if len(refused) > 3 else "")
        report.add(kind, f"the reader does not accept {quoted}, which the writer may write", keyword)
    elif written != reader.values:
        report.add("ENUM_ARRAY_EXTENDED", "the reader accepts further values", keyword)


def _accepts_each_value(report: Report, writer: Schema, reader: Schema) -> bool:
    """Whether the writer has certain scalars only, and each is valid."""
    if writer.values is None or any(text[0] in "{[" for text in writer.values):
        return False
    report.budget.charge(len(writer.values) + sum(map(len, writer.values)) // 100)
    return all(accepts_scalar(reader, json_text.parse(text)) for text in writer.values)


def _compare_bounds(report: Report, writer: Schema, reader: Schema, shared: frozenset[str]) -> None:
    for keyword, kind, type_name in _BOUNDS:
        mine, theirs = reader.bounds.get(keyword), writer.bounds.get(keyword)
        if mine == theirs or not shared & TYPES[type_name]:
            continue
        if mine is None:
            report.add(f"{kind}_REMOVED", f"the reader has no {keyword}, the writer's is {theirs}", keyword)
        elif theirs is None:
            report.add(f"{kind}_ADDED", f"the reader's {keyword} is {mine}, the writer has none", keyword)
        else:
            change = "INCREASED" if mine > theirs else "DECREASED"
            report.add(
                f"{kind}_{change}", f"the reader's {keyword} is {mine}, the writer's {theirs}", keyword
            )


def _compare_multiples(report: Report, writer: Schema, reader: Schema) -> None:
    mine, theirs = reader.multiple_of, writer.multiple_of
    reason = f"the reader's multipleOf is {mine}, the writer's {theirs}"
    if mine == theirs:
        return
    if mine is None:
        report.add(
            "MULTIPLE_OF_REMOVED", f"the reader has no multipleOf, the writer's is {theirs}", "multipleOf"
        )
    elif theirs is None:
        report.add(
            "MULTIPLE_OF_ADDED", f"the reader's multipleOf is {mine}, the writer has none", "multipleOf"
        )
    elif (Fraction(theirs) / Fraction(mine)).denominator == 1:
        report.add("MULTIPLE_OF_REDUCED", reason, "multipleOf")
    elif (Fraction(mine) / Fraction(theirs)).denominator == 1:
        report.add("MULTIPLE_OF_EXPANDED", reason, "multipleOf")
    else:
        report.add("MULTIPLE_OF_CHANGED", reason, "multipleOf")


def _compare_patterns(report: Report, writer: Schema, reader: Schema) -> None:
    if writer.pattern == reader.pattern:
        return
    if reader.pattern is None:
        report.add("PATTERN_REMOVED", "the reader has no pattern", "pattern")
    elif writer.pattern is None:
        reason = f"the reader demands the pattern {clipped(reader.pattern)}, the writer none"
        report.add("PATTERN_ADDED", reason, "pattern")
    else:
        reason = (
            f"the reader demands the pattern {clipped(reader.pattern)}, the writer {clipped(writer.pattern)}"
        )
        report.add("PATTERN_CHANGED", reason, "pattern")


def _named(schema: Schema) -> str:
    return " or ".join(schema.type_names) if schema.type_names else "any type"


def _spoken(types: frozenset[str]) -> str:
    if len(types) == sum(
        len(TYPES[name]) for name in ("null", "boolean", "object", "array", "string", "number")
    ):
        return "any type"
    names = sorted("number" if name == "fraction" else name for name in types)
    return " or ".join(name for name in names if name != "integer" or "number" not in names)
