"""Atomic, idempotent commits to a table, retried on conflicts."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.table import Table, TableProperties, Transaction
from pyspark.sql import DataFrame
from sqlalchemy.exc import OperationalError

from runnel.pipelines.errors import CatalogBusy, CommitConflict, NoSuchTable, TableError

ATTEMPT = "runnel.attempt"
"""Key of the snapshot summary: the attempt that created the snapshot."""
COMMITS_MAX = 30
_PAUSE_FIRST_S = 0.02
_PAUSE_MAX_S = 2.0


@dataclass(frozen=True, slots=True)
class BatchMarker:
    """The micro-batch of a streaming query that rows belong to."""

    query_id: str
    batch_id: int

    @property
    def name(self) -> str:
        """The table property with the last batch of the query."""
        return f"runnel.batch.{self.query_id}"

    def is_in(self, table: Table) -> bool:
        """Does the table contain this batch, or a later one?"""
        seen = table.properties.get(self.name)
        return seen is not None and int(seen) >= self.batch_id


def marker_of(frame: DataFrame, batch_id: int) -> BatchMarker:
    """The marker of a micro-batch, for use inside foreachBatch."""
    # The query id is stable across restarts. Spark has no public API for it inside foreachBatch.
    query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        raise TableError("marker_of can only be called inside foreachBatch")
    return BatchMarker(query_id, batch_id)


class CommitResult(Enum):
    """The result of a commit."""

    DONE = "done"
    NOT_NEEDED = "not needed"
    MAYBE_NOT_NEEDED = "not needed, or committed by an attempt with an unknown result"


def load(catalog: Catalog, name: str) -> Table:
    """The current state of a table."""
    try:
        table = catalog.load_table(name)
    except NoSuchTableError as error:
        raise NoSuchTable(f"there is no table {name} in catalog {catalog.name}") from error
    except OperationalError as error:
        raise CatalogBusy(f"catalog {catalog.name} is not available: {error}") from error
    # Iceberg's own retries would not check the marker again.
    table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
    return table


def attempts() -> Iterator[None]:
    """Yields for each attempt, with exponential back-off."""
    pause_s = _PAUSE_FIRST_S
    for number in range(COMMITS_MAX):
        if number:
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
        yield


def commit(
    catalog: Catalog,
    name: str,
    attempt: str,
    change: Callable[[Table, Transaction], None],
    is_redundant: Callable[[Table], bool] = lambda table: False,
) -> tuple[CommitResult, Table]:
    """Apply a change to the current state, with check and change in one transaction.

    The change must add a snapshot with `attempt` in its summary: the commit then requires that the current
    snapshot is still the one that was checked, and an unknown result can be resolved later.
    """
    is_unknown = False
    error: Exception | None = None
    for _ in attempts():
        table = load(catalog, name)
        if is_unknown and has_attempt(table, attempt):
            return CommitResult.DONE, table
        if is_redundant(table):
            return (CommitResult.MAYBE_NOT_NEEDED if is_unknown else CommitResult.NOT_NEEDED), table
        try:
            with table.transaction() as transaction:
                change(table, transaction)
            return CommitResult.DONE, table
        except CommitFailedException as failure:
            error = failure
        except (OperationalError, CommitStateUnknownException) as failure:
            # The database is locked or unreachable: the commit may have succeeded.
            error, is_unknown = failure, True
    if is_unknown:
        raise CatalogBusy(f"table {name} could not be written to: {error}") from error
    raise CommitConflict(f"table {name} has too many concurrent writers: {error}") from error


def has_attempt(table: Table, attempt: str) -> bool:
    """Did this attempt create one of the snapshots?"""
    return any(
        snapshot.summary is not None and snapshot.summary.additional_properties.get(ATTEMPT) == attempt
        for snapshot in table.snapshots()
    )
