"""Which parts of the upkeep of Iceberg tables are switched on."""

from dataclasses import dataclass

DAY_MS = 24 * 60 * 60 * 1000
ORPHAN_AGE_MIN_MS = DAY_MS
ORPHAN_AGE_MS = 3 * DAY_MS
"""As Iceberg's own procedure has it: files of a writer that takes longer than this are not safe."""


@dataclass(frozen=True, slots=True)
class UpkeepPolicy:
    """What is done for a table every so many batches."""

    is_compacting: bool = True
    is_expiring: bool = True
    """Expire snapshots, by the table's `history.expire.*`."""
    orphan_age_ms: int | None = ORPHAN_AGE_MS
    """At which age files that no snapshot names are removed; None keeps them."""


FULL_UPKEEP = UpkeepPolicy()
NO_UPKEEP = UpkeepPolicy(is_compacting=False, is_expiring=False, orphan_age_ms=None)
