"""One atomic change of a table, tried again when others were quicker, never done twice."""

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
"""In a snapshot's summary: which attempt it came from."""
COMMITS_MAX = 30
_PAUSE_FIRST_S = 0.02
_PAUSE_MAX_S = 2.0


@dataclass(frozen=True, slots=True)
class BatchMarker:
    """Which micro-batch of which streaming query rows come from."""

    query_id: str
    batch_id: int

    @property
    def name(self) -> str:
        """The table property that says how far the query has come."""
        return f"runnel.batch.{self.query_id}"

    def is_in(self, table: Table) -> bool:
        """Has the table taken this batch, or one after it, already?"""
        seen = table.properties.get(self.name)
        return seen is not None and int(seen) >= self.batch_id


def marker_of(frame: DataFrame, batch_id: int) -> BatchMarker:
    """The marker of a micro-batch, inside the function that foreachBatch calls with these two."""
    # The query's id survives restarts from its checkpoint. Spark has no public way to ask for it in here.
    query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        raise TableError("a marker can only be had inside foreachBatch")
    return BatchMarker(query_id, batch_id)


class Ending(Enum):
    """How a change ended."""

    DONE = "done"
    NOT_NEEDED = "not needed"
    MAYBE_NOT_NEEDED = "not needed, or done by a try whose answer was lost"


def load(catalog: Catalog, name: str) -> Table:
    """The table as it is now."""
    try:
        table = catalog.load_table(name)
    except NoSuchTableError as error:
        raise NoSuchTable(f"there is no table {name} in catalog {catalog.name}") from error
    except OperationalError as error:
        raise CatalogBusy(f"catalog {catalog.name} does not answer: {error}") from error
    # Iceberg's own retries put a change on top of whatever others did, without a look at the marker.
    table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
    return table


def tries() -> Iterator[None]:
    """Once for each try of a change, with a longer pause before each."""
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
    is_needless: Callable[[Table], bool] = lambda table: False,
) -> tuple[Ending, Table]:
    """Apply a change to the newest state, with the check and the change in one transaction.

    The change must add a snapshot whose summary carries `attempt`: the commit then requires that the table's
    newest snapshot is still the one that was checked, and an answer that was lost can be found out.
    """
    is_unsure = False
    error: Exception | None = None
    for _ in tries():
        table = load(catalog, name)
        if is_unsure and has_attempt(table, attempt):
            return Ending.DONE, table
        if is_needless(table):
            return (Ending.MAYBE_NOT_NEEDED if is_unsure else Ending.NOT_NEEDED), table
        try:
            with table.transaction() as transaction:
                change(table, transaction)
            return Ending.DONE, table
        except CommitFailedException as failure:
            error = failure
        except (OperationalError, CommitStateUnknownException) as failure:
            # A database that is locked or unreachable: the change may have been made all the same.
            error, is_unsure = failure, True
    if is_unsure:
        raise CatalogBusy(f"table {name} could not be written to: {error}") from error
    raise CommitConflict(f"table {name} has too many concurrent writers: {error}") from error


def has_attempt(table: Table, attempt: str) -> bool:
    """Did this attempt make one of the table's snapshots?"""
    return any(
        snapshot.summary is not None and snapshot.summary.additional_properties.get(ATTEMPT) == attempt
        for snapshot in table.snapshots()
    )
