"""Periodic maintenance of a table."""

from dataclasses import dataclass

from pyspark.sql import SparkSession

from runnel.pipelines.tables.compaction import compact
from runnel.pipelines.tables.expiry import sweep
from runnel.pipelines.tables.table import SparkTable
from runnel.pipelines.upkeep import UpkeepPolicy


@dataclass(slots=True)
class Maintained:
    """The result of maintenance."""

    files_merged: int = 0
    files_removed: int = 0


def maintain(
    session: SparkSession, table: SparkTable, policy: UpkeepPolicy, *, small_files_min: int = 2
) -> Maintained:
    """Compact a table, expire its snapshots and remove orphaned files, according to the policy."""
    done = Maintained()
    if policy.is_compacting:
        done.files_merged = compact(session, table, files_min=small_files_min).files_before
    if policy.is_expiring or policy.orphan_age_ms is not None:
        swept = sweep(table, is_expiring=policy.is_expiring, orphan_age_ms=policy.orphan_age_ms)
        done.files_removed = swept.files
    return done
