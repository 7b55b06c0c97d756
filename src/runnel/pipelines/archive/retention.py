"""The archive's own retention: old days go, and the table says so."""

from datetime import date

from runnel.pipelines.archive.layout import KEPT_FROM, kept_from
from runnel.pipelines.tables import SparkTable


def remove_before(table: SparkTable, day: date) -> int:
    """Remove the records of all days before this one, and return how many."""
    where = f"day < '{day}'"
    if not table.files(where):
        return 0
    # First this: an audit must not miss what was removed on purpose. Longer retention brings nothing back.
    if day > kept_from(table.properties()):
        table.set_properties({KEPT_FROM: day.isoformat()})
    return table.remove(where)
