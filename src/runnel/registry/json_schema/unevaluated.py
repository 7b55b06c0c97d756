"""Rules for unevaluatedProperties and unevaluatedItems beside schemas that are applied in place."""

from runnel.registry.json_schema.json_text import canonical
from runnel.registry.json_schema.proofs import Proofs
from runnel.registry.json_schema.report import Report, Rule
from runnel.registry.json_schema.schema import Schema


def compare_unevaluated(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    """Compare what applies to properties and items that no other keyword of the reader evaluates."""
    whole = reader.owner or reader
    types = proofs.types(writer)
    if writer.owner is None and _same(report, writer, whole):
        return
    if "object" in types and whole.unevaluated_properties is not None:
        yield from _compare_properties(report, proofs, writer, whole)
    mine = whole.unevaluated_items
    if "array" in types and mine is not None and not mine.accepts_all():
        kind = "UNEVALUATED_ITEMS_REMOVED" if mine.rejects_all else "UNEVALUATED_ITEMS_NARROWED"
        report.add(kind, "the writer may write items that the reader does not evaluate", "unevaluatedItems")


def _compare_properties(report: Report, proofs: Proofs, writer: Schema, reader: Schema) -> Rule:
    mine = reader.unevaluated_properties
    assert mine is not None
    evaluated = proofs.evaluated(reader, certain=True)
    if mine.accepts_all() or evaluated.everything:
        return
    kind = "UNEVALUATED_PROPERTIES_REMOVED" if mine.rejects_all else "UNEVALUATED_PROPERTIES_NARROWED"
    written = proofs.evaluated(writer, certain=False)
    theirs = writer.unevaluated_properties
    closed = writer.additional_properties
    if closed is not None and closed.rejects_all:
        # Nothing but its own properties can occur, whatever schemas beside them evaluate.
        names, patterns = set(writer.properties), set(writer.pattern_properties)
        theirs = closed
    else:
        names, patterns = set(written.names), set(written.patterns)
        if written.everything:
            theirs = None
    unknown = sorted(names - evaluated.names) or sorted(patterns - evaluated.patterns)
    if unknown:
        reason = (
            "the writer may write it, the reader does not always evaluate it, and restricts such properties"
        )
        report.add(kind, reason, "properties", unknown[0])
    elif theirs is None or theirs.accepts_all():
        report.add(
            kind,
            "the writer may write any further properties, the reader restricts them",
            "unevaluatedProperties",
        )
    else:
        report.nest((yield report.pair(theirs, mine)), "unevaluatedProperties")


def _same(report: Report, writer: Schema, reader: Schema) -> bool:
    """Whether two schemas have the same text, and so has all they refer to."""
    pairs = [(writer, reader)]
    seen: set[tuple[Schema, Schema]] = set()
    while pairs:
        theirs, mine = pairs.pop()
        if (theirs, mine) in seen:
            continue
        seen.add((theirs, mine))
        text = canonical(theirs.raw)
        report.budget.charge(1 + len(text) // 100)
        if theirs.draft != mine.draft or text != canonical(mine.raw):
            return False
        children = [*theirs.in_place(), *theirs.below()], [*mine.in_place(), *mine.below()]
        if len(children[0]) != len(children[1]):
            return False
        pairs += zip(*children, strict=True)
    return True
