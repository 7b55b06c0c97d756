"""Compaction: rewrites small files into larger ones in an atomic commit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import PrimitiveType
from pyspark.sql import SparkSession

from runnel.pipelines.errors import TableError
from runnel.pipelines.tables.commit import ATTEMPT, CommitResult, commit
from runnel.pipelines.tables.schema import fitted, spark_schema
from runnel.pipelines.tables.staging import Staged, discard, write_files
from runnel.pipelines.tables.table import (
    SparkTable,
    data_files,
    partition_columns,
    read_files,
    sort_columns,
)

TARGET_BYTES = 128 * 2**20
_SMALL = 0.75
"""Files of at least this share of the target size are not rewritten."""


@dataclass(slots=True)
class Compacted:
    """The result of a compaction."""

    files_before: int = 0
    files_after: int = 0
    rows: int = 0


def compact(
    session: SparkSession, table: SparkTable, *, target_bytes: int = TARGET_BYTES, files_min: int = 2
) -> Compacted:
    """Merge small files in each partition with at least `files_min` of them, one snapshot per partition."""
    result = Compacted()
    metadata = table.latest()
    for bins in plan(table.files(), metadata.schema(), sort_columns(metadata), target_bytes, files_min):
        done = _compact_partition(session, table, bins)
        result.files_before += done.files_before
        result.files_after += done.files_after
        result.rows += done.rows
    return result


def plan(
    files: Iterable[DataFile],
    schema: Schema,
    sort_by: Sequence[str],
    target_bytes: int,
    files_min: int = 2,
) -> Iterator[list[list[DataFile]]]:
    """For each partition to compact, the groups of files to merge."""

    def partition_of(file: DataFile) -> str:
        return f"{file.spec_id} {file.partition}"

    small = [file for file in files if file.file_size_in_bytes < target_bytes * _SMALL]
    for _, same in groupby(sorted(small, key=partition_of), key=partition_of):
        # Merge files that are adjacent in the last sort column, which for an archive is the offset.
        in_order = sorted(same, key=lambda file: _first_value(file, schema, sort_by))
        bins = [group for group in _packed(in_order, target_bytes) if len(group) > 1]
        if bins and len(in_order) >= files_min:
            yield bins


def _packed(files: Iterable[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    size_bytes = 0
    for file in files:
        if group and size_bytes + file.file_size_in_bytes > target_bytes:
            yield group
            group, size_bytes = [], 0
        group.append(file)
        size_bytes += file.file_size_in_bytes
    if group:
        yield group


def _first_value(file: DataFile, schema: Schema, sort_by: Sequence[str]) -> tuple[bool, Any, str]:
    if sort_by:
        field = schema.find_field(sort_by[-1])
        bound = (file.lower_bounds or {}).get(field.field_id)
        if bound is not None and isinstance(field.field_type, PrimitiveType):
            return True, from_bytes(field.field_type, bound), file.file_path
    return False, 0, file.file_path


def _compact_partition(
    session: SparkSession, table: SparkTable, bins: Sequence[Sequence[DataFile]]
) -> Compacted:
    # After a crash, orphan removal deletes the new files if no snapshot refers to them.
    staged = [_rewrite(session, table, group) for group in bins]
    change = _Replacement(staged, bins)
    try:
        result, _ = commit(table.catalog, table.name, staged[0].attempt, change)
    except ValidationException:
        # Some of these files were removed or rewritten concurrently: skip this partition.
        for attempt in staged:
            table.discard(attempt)
        return Compacted()
    assert result is CommitResult.DONE
    return change.done


def _rewrite(session: SparkSession, table: SparkTable, group: Sequence[DataFile]) -> Staged:
    latest = table.latest()
    columns = spark_schema(latest.schema())
    frame = fitted(read_files(session, columns, group), columns).coalesce(1)
    return write_files(frame, latest, partition_columns(latest), sort_columns(latest), "compaction")


class _Replacement:
    """The change that replaces files with their rewritten version."""

    def __init__(self, staged: Sequence[Staged], bins: Sequence[Sequence[DataFile]]) -> None:
        self._staged = staged
        self._old = [file for group in bins for file in group]
        self.done = Compacted()

    def __call__(self, table: Table, transaction: Transaction) -> None:
        paths = [path for attempt in self._staged for path in attempt.paths]
        new = data_files(table, transaction, paths)
        rows, rows_before = (sum(file.record_count for file in files) for files in (new, self._old))
        if rows != rows_before:
            for attempt in self._staged:
                discard(table.io, attempt)
            raise TableError(
                f"{len(self._old)} files of table {'.'.join(table.name())} have {rows_before} rows, but "
                f"{rows} were read: nothing was changed"
            )
        properties = {ATTEMPT: self._staged[0].attempt}
        with transaction.update_snapshot(snapshot_properties=properties).overwrite() as snapshot:
            for file in self._old:
                snapshot.delete_data_file(file)
            for file in new:
                snapshot.append_data_file(file)
        self.done = Compacted(len(self._old), len(new), rows)
