"""Checks that the data files of an archive's table exist, are complete and can be read."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as parquet
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.failures import is_spark_error
from runnel.pipelines.tables.schema import spark_schema
from runnel.pipelines.tables.table import files_of, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


class ArchiveFiles:
    """The data files of one snapshot; missing and damaged ones are reported and excluded."""

    def __init__(self, table: Table, topic: str) -> None:
        self._table = table
        self._topic = topic
        self.present: list[DataFile] = []
        self.findings: list[Finding] = []
        for file in files_of(table):
            source = table.io.new_input(file.file_path)
            if source.exists() and len(source) == file.file_size_in_bytes:
                self.present.append(file)
            elif source.exists():
                self._report(file, "has a different size than when it was written")
            else:
                self._report(file, "is missing")

    def read(self, session: "SparkSession", use: "Callable[[DataFrame], T]") -> T:
        """The result of `use` on the rows. If a file cannot be read, `use` is called again without it."""
        while True:
            try:
                return use(read_files(session, spark_schema(self._table.schema()), self.present))
            except Exception as error:
                if not is_spark_error(error) or not self._exclude_unreadable(str(error)):
                    raise

    def _exclude_unreadable(self, failure: str) -> bool:
        """If Spark's error names a file, report unreadable files. False if there are none."""
        # Spark spells URIs differently, and files of different days have the same name: check them all.
        if not any(_name(file) in failure for file in self.present):
            return False
        faults = [self._fault(file) for file in self.present]
        for file, reason in zip(self.present, faults, strict=True):
            if reason is not None:
                self._report(file, f"cannot be read ({reason})")
        self.present = [file for file, reason in zip(self.present, faults, strict=True) if reason is None]
        return any(reason is not None for reason in faults)

    def _fault(self, file: DataFile) -> str | None:
        """The error of reading a file to the end; None if there is none."""
        try:
            with self._table.io.new_input(file.file_path).open() as stream:
                reader = parquet.ParquetFile(stream, page_checksum_verification=True)
                for _ in reader.iter_batches():
                    pass
        except (OSError, pa.ArrowException) as error:
            return str(error).partition("\n")[0]
        return None

    def _report(self, file: DataFile, state: str) -> None:
        text = f"{file.file_path} {state}: it contains {count_text(file.record_count, 'record')}"
        location = self._topic, *_bounds(self._table, file)
        self.findings.append(Finding(Level.FAULT, Kind.ARCHIVE_FILE, *location, text))


def _name(file: DataFile) -> str:
    """The last component of its path, which is the same in Spark's messages."""
    return file.file_path.rpartition("/")[2]


def _bounds(table: Table, file: DataFile) -> tuple[int, int, int]:
    """(partition, first offset, last offset) of a file from its statistics, -1 for several partitions."""

    def bound(column: str, bounds: dict[int, bytes] | None) -> int:
        field = table.schema().find_field(column)
        raw, kind = (bounds or {}).get(field.field_id), field.field_type
        return int(from_bytes(kind, raw)) if raw is not None and isinstance(kind, PrimitiveType) else -1

    low, high = bound("partition", file.lower_bounds), bound("partition", file.upper_bounds)
    if low != high:
        return -1, -1, -1
    return low, bound("offset", file.lower_bounds), bound("offset", file.upper_bounds)
