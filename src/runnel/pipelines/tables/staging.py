"""Staged files: written by Spark, not referenced by a snapshot yet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow.fs as arrow_files
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from runnel.pipelines.errors import TableError
from runnel.pipelines.tables.durable import make_durable

DATA_FOLDER = "data"
_COPY = "__partition_"
_WRITE_OPTIONS = {
    # The snapshot commits the files; Spark's _SUCCESS file is not needed.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "compression": "zstd",
}


@dataclass(slots=True)
class Staged:
    """The files of one write attempt."""

    attempt: str
    folder: str
    paths: list[str]
    columns: StructType


@dataclass(slots=True)
class Listed:
    """A file in a listing."""

    location: str
    modified_ms: int
    size_bytes: int


def write_files(
    frame: DataFrame, table: Table, partition_by: Sequence[str], sort_by: Sequence[str], label: str
) -> Staged:
    """Write rows to a new folder of the table, each file with one value per partition column."""
    attempt, columns = uuid4().hex, frame.schema
    folder = f"{table.location()}/{DATA_FOLDER}/{label}-{attempt}"
    # Spark omits partition columns from the files, where Iceberg needs their values: partition by copies.
    copies = [f"{_COPY}{name}" for name in partition_by]
    for name, copy in zip(partition_by, copies, strict=True):
        frame = frame.withColumn(copy, F.col(f"`{name}`"))
    if copies or sort_by:
        frame = frame.sortWithinPartitions(*copies, *(f"`{name}`" for name in sort_by))
    writer = frame.write.options(**_WRITE_OPTIONS)
    if copies:
        writer = writer.partitionBy(*copies)
    writer.parquet(folder)
    listed = [file.location for file in list_files(table.io, folder)]
    paths = [path for path in listed if is_data_file(path.removeprefix(folder))]
    make_durable(paths, table.location())
    return Staged(attempt, folder, sorted(paths), columns)


def discard(files: FileIO, staged: Staged) -> None:
    """Remove the files of a failed attempt."""
    file_system, path, _ = _file_system(files, staged.folder)
    if file_system.get_file_info(path).type == arrow_files.FileType.Directory:
        file_system.delete_dir(path)


def list_files(files: FileIO, folder: str) -> Iterable[Listed]:
    """All files below a folder; none if it does not exist."""
    file_system, path, prefix = _file_system(files, folder)
    selector = arrow_files.FileSelector(path, recursive=True, allow_not_found=True)
    for info in file_system.get_file_info(selector):
        if info.type == arrow_files.FileType.File:
            modified_ms = (info.mtime_ns or 0) // 1_000_000
            yield Listed(f"{prefix}{info.path}", modified_ms, info.size)


def is_data_file(path: str) -> bool:
    """Is this path in an attempt's folder a data file, not a checksum or a Spark marker file?"""
    name = path.rpartition("/")[2]
    # Unfinished task output is rewritten by another attempt, or orphaned.
    is_of_task = "/_temporary/" in path
    return name.endswith(".parquet") and not name.startswith((".", "_")) and not is_of_task


def _file_system(files: FileIO, location: str) -> tuple[Any, str, str]:
    """The file system of a location, the path in it, and the URI prefix."""
    if not isinstance(files, PyArrowFileIO):
        raise TableError(f"unsupported FileIO {type(files).__name__}: set py-io-impl to PyArrowFileIO")
    scheme, host, path = files.parse_location(location, files.properties)
    prefix = location.removesuffix(path)
    return files.fs_by_scheme(scheme, host), path, prefix
