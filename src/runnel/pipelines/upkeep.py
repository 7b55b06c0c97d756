"""The maintenance policy of Iceberg tables."""

from dataclasses import dataclass

DAY_MS = 24 * 60 * 60 * 1000
ORPHAN_AGE_MIN_MS = DAY_MS
ORPHAN_AGE_MS = 3 * DAY_MS
"""The default of Iceberg's remove_orphan_files: files of slower writers are not safe."""


@dataclass(frozen=True, slots=True)
class UpkeepPolicy:
    """Which maintenance actions are enabled."""

    is_compacting: bool = True
    is_expiring: bool = True
    """Expire snapshots, by the table's `history.expire.*`."""
    orphan_age_ms: int | None = ORPHAN_AGE_MS
    """The age at which orphaned files are removed; None keeps them."""


FULL_UPKEEP = UpkeepPolicy()
NO_UPKEEP = UpkeepPolicy(is_compacting=False, is_expiring=False, orphan_age_ms=None)
