"""An Iceberg table written by Spark, each batch once."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, TimestampType, TimestamptzType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlalchemy.exc import OperationalError

from runnel.pipelines.errors import CatalogBusy, CommitConflict, TableError
from runnel.pipelines.tables.catalog import ensure_namespace
from runnel.pipelines.tables.commit import ATTEMPT, BatchMarker, CommitResult, attempts, commit, load
from runnel.pipelines.tables.schema import arrow_schema, fitted, merged, spark_schema
from runnel.pipelines.tables.staging import Staged, discard, write_files

SORT_BY = "runnel.sort-by"
"""Table property: the sort columns within a file."""
Where = str | BooleanExpression
"""An Iceberg filter: an expression, or a string such as day < '2026-05-01'."""
EVERYTHING = AlwaysTrue()
_NAME_MAPPING = "schema.name-mapping.default"
_PROPERTIES = {
    "format-version": "2",
    # A commit writes all snapshots and reads all manifests: keep their number low.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    # A stream adds a snapshot per batch: keep an hour of history, and at least the last twenty.
    TableProperties.MAX_SNAPSHOT_AGE_MS: "3600000",
    TableProperties.MIN_SNAPSHOTS_TO_KEEP: "20",
}


@dataclass(slots=True)
class Written:
    """The result of writing a batch."""

    is_new: bool
    """False if the table already contained the batch."""
    rows: int
    files: int
    size_bytes: int


class SparkTable:
    """A table in a catalog, read and written by Spark."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        """The table must exist: see `ensure_table`."""
        self.catalog = catalog
        self.name = name
        self.latest()

    def latest(self) -> Table:
        """The current state of the table."""
        return load(self.catalog, self.name)

    def columns(self) -> StructType:
        """The Spark schema of the table."""
        return spark_schema(self.latest().schema())

    def properties(self) -> dict[str, str]:
        """The table properties, including batch markers."""
        return dict(self.latest().properties)

    # Writing.

    def append(
        self, frame: DataFrame, marker: BatchMarker | None = None, properties: Mapping[str, str] | None = None
    ) -> Written:
        """Append rows and the marker in one snapshot; a batch that the table contains is skipped."""
        if marker is not None and marker.is_in(self.latest()):
            return Written(False, 0, 0, 0)
        return self.commit(self.stage(frame), marker, properties=properties)

    def replace(
        self, frame: DataFrame, marker: BatchMarker | None = None, properties: Mapping[str, str] | None = None
    ) -> Written:
        """Replace all rows in one snapshot."""
        if marker is not None and marker.is_in(self.latest()):
            return Written(False, 0, 0, 0)
        return self.commit(self.stage(frame), marker, properties=properties, is_replacing=True)

    def stage(self, frame: DataFrame) -> Staged:
        """Write rows to staged files; new columns are added on commit."""
        table = self.latest()
        columns = merged(spark_schema(table.schema()), frame.schema)
        return write_files(
            fitted(frame, columns), table, partition_columns(table), sort_columns(table), "batch"
        )

    def commit(
        self,
        staged: Staged,
        marker: BatchMarker | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        expected: Mapping[str, str | None] | None = None,
        is_replacing: bool = False,
    ) -> Written:
        """Commit staged files in one snapshot with the marker and the properties.

        TableError if the table properties in `expected` have other values.
        """
        change = _Append(staged, marker, dict(properties or {}), is_replacing)

        def is_redundant(table: Table) -> bool:
            if marker is not None and marker.is_in(table):
                return True
            _check_expected(table, expected or {})
            return False

        try:
            result, table = commit(self.catalog, self.name, staged.attempt, change, is_redundant)
        except ValueError as error:
            raise TableError(f"the files for table {self.name} do not match its schema: {error}") from error
        if result is CommitResult.DONE:
            return change.written()
        if result is CommitResult.NOT_NEEDED:
            discard(table.io, staged)
        return Written(False, 0, 0, 0)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties without a snapshot. This does not fence other writers: see `commit`."""
        error: Exception | None = None
        for _ in attempts():
            try:
                self.latest().transaction().set_properties(dict(properties)).commit_transaction()
                return
            except (CommitFailedException, CommitStateUnknownException, OperationalError) as failure:
                # Idempotent: it does not matter whether a failed attempt took effect.
                error = failure
        if isinstance(error, CommitFailedException):
            raise CommitConflict(f"table {self.name} has too many concurrent writers: {error}") from error
        raise CatalogBusy(f"table {self.name} could not be written to: {error}") from error

    def ensure_properties(self, wanted: Mapping[str, str]) -> None:
        """Set the properties that differ."""
        present = self.properties()
        changed = {name: value for name, value in wanted.items() if present.get(name) != value}
        if changed:
            self.set_properties(changed)

    def remove(
        self,
        where: Where,
        new_properties: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda properties: {},
    ) -> int:
        """Remove the rows of `where` in one snapshot and return their number; cheapest by partition column.

        `new_properties` returns the properties to set in the same commit, given the current ones.
        """
        if not self.files(where):
            return 0
        attempt = uuid4().hex

        def change(table: Table, transaction: Transaction) -> None:
            changed = dict(new_properties(table.properties))
            if changed:
                transaction.set_properties(changed)
            transaction.delete(where, snapshot_properties={ATTEMPT: attempt})

        commit(
            self.catalog,
            self.name,
            attempt,
            change,
            lambda table: not list(table.scan(row_filter=where).plan_files()),
        )
        return self._removed_by(attempt)

    def _removed_by(self, attempt: str) -> int:
        removed = 0
        for snapshot in self.latest().snapshots():
            summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if summary.get(ATTEMPT) == attempt:
                removed += int(summary.get("deleted-records", 0)) - int(summary.get("added-records", 0))
        return removed

    def discard(self, staged: Staged) -> None:
        """Remove staged files that will not be committed."""
        discard(self.latest().io, staged)

    # Reading.

    def files(self, where: Where = EVERYTHING) -> list[DataFile]:
        """The files of the current snapshot that may have rows of `where`."""
        return files_of(self.latest(), where)

    def read(self, session: SparkSession, where: Where = EVERYTHING) -> DataFrame:
        """The rows of the current snapshot. `where` prunes files, not rows: filter rows as well."""
        return read_files(session, self.columns(), self.files(where))


def ensure_table(
    catalog: Catalog,
    name: str,
    columns: StructType,
    *,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> SparkTable:
    """The table `namespace.name`, created with these columns if it does not exist."""
    namespace, _, last = name.rpartition(".")
    if not namespace or not last:
        raise TableError(f"{name} is not a table name with a namespace, as in archive.orders")
    known = {field.name for field in columns.fields}
    for column in (*partition_by, *sort_by):
        if column not in known:
            raise TableError(f"table {name} has no column {column} to be partitioned or sorted by")
    if not catalog.table_exists(name):
        ensure_namespace(catalog, namespace)
        # Created concurrently: open that table.
        with suppress(TableAlreadyExistsError, CommitFailedException):
            _create(catalog, name, columns, partition_by, sort_by, dict(properties or {}))
    return SparkTable(catalog, name)


def files_of(table: Table, where: Where = EVERYTHING) -> list[DataFile]:
    """The files of a table that may have rows of `where`."""
    tasks = list(table.scan(row_filter=where).plan_files())
    if any(task.delete_files for task in tasks):
        raise TableError(
            f"table {'.'.join(table.name())} has delete files: compact it with the engine that wrote them"
        )
    return [task.file for task in tasks]


def partition_columns(table: Table) -> list[str]:
    """The columns that the table is partitioned by, one value per file."""
    spec = table.spec()
    for field in spec.fields:
        if not isinstance(field.transform, IdentityTransform):
            raise TableError(
                f"table {'.'.join(table.name())} is partitioned by {field.transform}({field.name}): only "
                "plain columns can be written"
            )
    return [table.schema().find_column_name(field.source_id) or field.name for field in spec.fields]


def sort_columns(table: Table) -> list[str]:
    """The columns that rows are sorted by within a file."""
    return [name for name in table.properties.get(SORT_BY, "").split(",") if name]


def read_files(session: SparkSession, columns: StructType, files: Sequence[DataFile]) -> DataFrame:
    """The rows of files; columns missing in older files are null."""
    if not files:
        return session.createDataFrame([], columns)
    return session.read.schema(columns).parquet(*(file.file_path for file in files))


def data_files(table: Table, transaction: Transaction, paths: Sequence[str]) -> list[DataFile]:
    """Manifest entries for files, from their footers."""
    metadata = transaction.table_metadata
    files = []
    for path in paths:
        try:
            file = parquet_file_to_data_file(table.io, metadata, path)
        except OverflowError:
            # A timestamp after the year 9999, which Python cannot represent: omit the bounds.
            file = parquet_file_to_data_file(table.io, _without_time_bounds(metadata), path)
        files.append(file)
    return files


def _without_time_bounds(metadata: TableMetadata) -> TableMetadata:
    """The metadata with column bounds disabled for dates and timestamps."""
    # Iceberg derives partition values from the bounds.
    needed = {field.source_id for field in metadata.spec().fields}
    modes = {
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{field.name}": "counts"
        for field in metadata.schema().fields
        if isinstance(field.field_type, DateType | TimestampType | TimestamptzType)
        and field.field_id not in needed
    }
    return metadata.model_copy(update={"properties": {**metadata.properties, **modes}})


class _Append:
    """The change that adds staged files to a table."""

    def __init__(
        self, staged: Staged, marker: BatchMarker | None, properties: dict[str, str], is_replacing: bool
    ) -> None:
        self._staged = staged
        self._marker = marker
        self._properties = properties
        self._is_replacing = is_replacing
        self._added: list[DataFile] = []

    def __call__(self, table: Table, transaction: Transaction) -> None:
        properties = dict(self._properties)
        if self._marker is not None:
            properties[self._marker.name] = str(self._marker.batch_id)
        if properties:
            transaction.set_properties(properties)
        self._evolve(transaction)
        self._added = data_files(table, transaction, self._staged.paths)
        update = transaction.update_snapshot(snapshot_properties={ATTEMPT: self._staged.attempt})
        producer: Any = update.overwrite() if self._is_replacing else update.merge_append()
        with producer as snapshot:
            if self._is_replacing:
                for task in table.scan().plan_files():
                    snapshot.delete_data_file(task.file)
            for file in self._added:
                snapshot.append_data_file(file)

    def _evolve(self, transaction: Transaction) -> None:
        """Add new columns of the files to the table."""
        if not self._staged.paths:
            return
        before = spark_schema(transaction.table_metadata.schema())
        after = merged(before, self._staged.columns)
        if after != before:
            with transaction.update_schema() as update:
                update.union_by_name(arrow_schema(after))

    def written(self) -> Written:
        sizes = [file.file_size_in_bytes for file in self._added]
        return Written(True, sum(file.record_count for file in self._added), len(self._added), sum(sizes))


def _check_expected(table: Table, expected: Mapping[str, str | None]) -> None:
    for name, value in expected.items():
        if table.properties.get(name) != value:
            raise TableError(
                f"another writer has changed {name} of table {'.'.join(table.name())} from {value} to "
                f"{table.properties.get(name)}: this writer is stale"
            )


def _create(
    catalog: Catalog,
    name: str,
    columns: StructType,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
    properties: dict[str, str],
) -> None:
    chosen = {**_PROPERTIES, **properties}
    if sort_by:
        chosen[SORT_BY] = ",".join(sort_by)
    # One commit, so that the table is never visible without its partitioning.
    with catalog.create_table_transaction(name, arrow_schema(columns), properties=chosen) as transaction:
        transaction.set_properties(
            {_NAME_MAPPING: transaction.table_metadata.schema().name_mapping.model_dump_json()}
        )
        if partition_by:
            with transaction.update_spec() as update:
                for column in partition_by:
                    update.add_identity(column)
