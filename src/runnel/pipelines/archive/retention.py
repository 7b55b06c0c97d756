"""The archive's own retention: removes old days and records the first day kept."""

from collections.abc import Mapping
from datetime import date

from runnel.pipelines.archive.layout import KEPT_FROM, kept_from
from runnel.pipelines.tables import SparkTable

FIRST_DAY = date(1970, 1, 1)
"""Records without a timestamp (-1) are in the day before: their age is unknown, so they are kept."""


def remove_before(table: SparkTable, day: date) -> int:
    """Remove the records of all days before this one, and return how many."""

    def new_properties(properties: Mapping[str, str]) -> dict[str, str]:
        # Never move it back: a longer retention restores nothing, and another run may have removed more.
        return {KEPT_FROM: day.isoformat()} if day > kept_from(properties) else {}

    # In the same commit, so that an audit does not report the removed records as lost.
    return table.remove(f"day < '{day}' and day >= '{FIRST_DAY}'", new_properties)
