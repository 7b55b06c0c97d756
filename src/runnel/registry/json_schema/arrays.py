"""Rules for arrays: positions with schemas of their own, further items, `contains`."""

from runnel.registry.json_schema.further import compare_further
from runnel.registry.json_schema.report import Pair, Report, Rule
from runnel.registry.json_schema.schema import ANYTHING, NOTHING, Draft, Schema


def compare_arrays(report: Report, writer: Schema, reader: Schema) -> Rule:
    """Compare what two schemas demand of an array, except its length."""
    report.budget.charge(max(len(writer.prefix_items), len(reader.prefix_items)))
    keyword = "prefixItems" if reader.draft >= Draft.DRAFT_2020_12 else "items"
    for index, (theirs, mine) in enumerate(zip(writer.prefix_items, reader.prefix_items, strict=False)):
        report.nest((yield report.pair(theirs, mine)), keyword, str(index))
    for index in range(len(reader.prefix_items), len(writer.prefix_items)):
        yield from _item_removed(
            report, writer.prefix_items[index], reader.items or ANYTHING, (keyword, str(index))
        )
    for index in range(len(writer.prefix_items), len(reader.prefix_items)):
        theirs_rest = _rest(writer, index)
        yield from _item_added(report, theirs_rest, reader.prefix_items[index], (keyword, str(index)))
    yield from _compare_further_items(report, writer, reader)
    if reader.unique_items and not writer.unique_items:
        report.add(
            "UNIQUE_ITEMS_ADDED", "the reader demands unique items, the writer does not", "uniqueItems"
        )
    elif writer.unique_items and not reader.unique_items:
        report.add("UNIQUE_ITEMS_REMOVED", "the reader does not demand unique items", "uniqueItems")
    yield from _compare_contains(report, writer, reader)


def _rest(schema: Schema, index: int) -> Schema:
    """What applies to an item behind those with schemas of their own."""
    if schema.bounds.get("maxItems", index + 1) <= index:
        return NOTHING
    return schema.items or ANYTHING


def _item_removed(report: Report, theirs: Schema, rest: Schema, path: tuple[str, str]) -> Rule:
    if rest.accepts_all():
        report.add("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", "the reader accepts any item here", *path)
    elif rest.rejects_all and theirs.rejects_all:
        report.add("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "neither accepts an item here", *path)
    elif rest.rejects_all:
        report.add("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "the reader accepts no item here", *path)
    else:
        result = yield report.pair(theirs, rest)
        report.nest(result, *path)
        if result.compatible:
            reason = "the reader's further items cover it"
            report.add("ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", reason, *path)
        else:
            reason = "the reader's further items do not accept what the writer writes here"
            report.add("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", reason, *path)


def _item_added(report: Report, rest: Schema, mine: Schema, path: tuple[str, str]) -> Rule:
    if rest.accepts_all():
        if mine.accepts_all():
            reason = "the reader accepts any item here"
            report.add("ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", reason, *path)
        else:
            reason = "the writer may write any item here, the reader does not accept all"
            report.add("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", reason, *path)
    elif rest.rejects_all:
        report.add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "the writer writes no item here", *path)
    else:
        result = yield report.pair(rest, mine)
        report.nest(result, *path)
        if result.compatible:
            reason = "it covers the writer's further items"
            report.add("ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", reason, *path)
        else:
            reason = "the reader does not accept what the writer's further items allow"
            report.add("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", reason, *path)


def _compare_further_items(report: Report, writer: Schema, reader: Schema) -> Rule:
    """Items that have no schema of their own in either."""
    theirs = _rest(writer, max(len(writer.prefix_items), len(reader.prefix_items)))
    mine = reader.items or ANYTHING
    path = (reader if reader.items else writer).items_keyword
    if writer.prefix_items or reader.prefix_items or path != "items":
        prefix = "UNEVALUATED_ITEMS" if path == "unevaluatedItems" else "ADDITIONAL_ITEMS"
        yield from compare_further(report, theirs, mine, prefix, path)
    elif theirs.accepts_all() and not mine.accepts_all():
        report.add("SCHEMA_ADDED", "the reader restricts items, the writer does not", path)
    elif mine.accepts_all() and not theirs.accepts_all():
        report.add("SCHEMA_REMOVED", "the reader accepts any items", path)
    else:
        report.nest((yield report.pair(theirs, mine)), path)


def _compare_contains(report: Report, writer: Schema, reader: Schema) -> Rule:
    theirs, mine = writer.contains, reader.contains
    if mine is None or (reader.contains_min == 0 and reader.contains_max is None):
        if theirs is not None:
            report.add("SCHEMA_REMOVED", "the reader does not demand certain items", "contains")
        return
    if theirs is None:
        report.add("SCHEMA_ADDED", "the reader demands certain items, the writer does not", "contains")
        return
    # Filled defaults do not help here: an item counts as it was written.
    if reader.contains_min > 0 and not (yield Pair(theirs, mine, True)).compatible:
        report.add("SCHEMA_ADDED", "the reader does not count all items that the writer counts", "contains")
    if reader.contains_max is not None and not (yield Pair(mine, theirs, True)).compatible:
        report.add("SCHEMA_ADDED", "the reader counts items that the writer does not count", "contains")
    _compare_counts(report, writer, reader)


def _compare_counts(report: Report, writer: Schema, reader: Schema) -> None:
    if writer.contains_min != reader.contains_min:
        change = "INCREASED" if reader.contains_min > writer.contains_min else "DECREASED"
        reason = f"the reader demands {reader.contains_min} of the items, the writer {writer.contains_min}"
        report.add(f"MIN_CONTAINS_{change}", reason, "minContains")
    theirs, mine = writer.contains_max, reader.contains_max
    if mine == theirs:
        return
    if mine is None:
        report.add("MAX_CONTAINS_REMOVED", "the reader accepts any number of the items", "maxContains")
    elif theirs is None:
        report.add(
            "MAX_CONTAINS_ADDED",
            f"the reader accepts {mine} of the items, the writer any number",
            "maxContains",
        )
    else:
        change = "INCREASED" if mine > theirs else "DECREASED"
        report.add(
            f"MAX_CONTAINS_{change}",
            f"the reader accepts {mine} of the items, the writer {theirs}",
            "maxContains",
        )
