"""The archive's own retention: old days go, and the table says so."""

from collections.abc import Mapping
from datetime import date

from runnel.pipelines.archive.layout import KEPT_FROM, kept_from
from runnel.pipelines.tables import SparkTable

FIRST_DAY = date(1970, 1, 1)
"""A record without a timestamp says -1, which is the day before: its age is unknown, so it stays."""


def remove_before(table: SparkTable, day: date) -> int:
    """Remove the records of all days before this one, and return how many."""

    def note(properties: Mapping[str, str]) -> dict[str, str]:
        # Longer retention brings nothing back, and another run may have removed more than this one.
        return {KEPT_FROM: day.isoformat()} if day > kept_from(properties) else {}

    # In one step with the removal: an audit must not miss what was removed on purpose.
    return table.remove(f"day < '{day}' and day >= '{FIRST_DAY}'", note)
