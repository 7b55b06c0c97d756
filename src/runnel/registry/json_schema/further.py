"""The rule for items and properties that have no schema of their own."""

from runnel.registry.json_schema.report import Report, Rule
from runnel.registry.json_schema.schema import Schema


def compare_further(report: Report, theirs: Schema, mine: Schema, prefix: str, path: str) -> Rule:
    """Compare what applies to further items or properties; `prefix` begins the names of differences."""
    if theirs.accepts_all() and mine.accepts_all():
        return
    if theirs.rejects_all != mine.rejects_all:
        if theirs.rejects_all:
            report.add(f"{prefix}_ADDED", "the reader accepts further ones, the writer writes none", path)
        else:
            report.add(
                f"{prefix}_REMOVED", "the writer may write further ones, the reader accepts none", path
            )
    elif mine.accepts_all():
        report.add(f"{prefix}_EXTENDED", "the reader accepts any further ones", path)
    elif theirs.accepts_all():
        report.add(
            f"{prefix}_NARROWED", "the writer may write any further ones, the reader restricts them", path
        )
    else:
        report.nest((yield report.pair(theirs, mine)), path)
