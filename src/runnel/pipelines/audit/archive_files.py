"""The files of an archive's table: are they there, whole, and can they be read?"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as parquet
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.failures import is_of_spark
from runnel.pipelines.tables.schema import spark_schema
from runnel.pipelines.tables.table import files_of, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


class ArchiveFiles:
    """The files of one state of a table; those that are not as they should be are told, and left out."""

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
                self._tell(file, "has another size than when it was written")
            else:
                self._tell(file, "is not there")

    def read(self, session: "SparkSession", use: "Callable[[DataFrame], T]") -> T:
        """What `use` makes of the rows. If a file cannot be read, it is called again without it."""
        while True:
            try:
                return use(read_files(session, spark_schema(self._table.schema()), self.present))
            except Exception as error:
                if not is_of_spark(error) or not self._leave_out_unreadable(str(error)):
                    raise

    def _leave_out_unreadable(self, failure: str) -> bool:
        """If Spark named a file when it failed: tell of all that cannot be read. False if there are none."""
        # Addresses are written in several ways, and files of different days have the same name: look again.
        if not any(_name(file) in failure for file in self.present):
            return False
        faults = [self._fault(file) for file in self.present]
        for file, reason in zip(self.present, faults, strict=True):
            if reason is not None:
                self._tell(file, f"cannot be read ({reason})")
        self.present = [file for file, reason in zip(self.present, faults, strict=True) if reason is None]
        return any(reason is not None for reason in faults)

    def _fault(self, file: DataFile) -> str | None:
        """Why a file cannot be read whole; None if it can."""
        try:
            with self._table.io.new_input(file.file_path).open() as stream:
                whole = parquet.ParquetFile(stream, page_checksum_verification=True)
                for _ in whole.iter_batches():
                    pass
        except (OSError, pa.ArrowException) as error:
            return str(error).partition("\n")[0]
        return None

    def _tell(self, file: DataFile, state: str) -> None:
        words = f"{file.file_path} {state}: {count_text(file.record_count, 'record')} are in it"
        place = self._topic, *_bounds(self._table, file)
        self.findings.append(Finding(Level.FAULT, Kind.ARCHIVE_FILE, *place, words))


def _name(file: DataFile) -> str:
    """The last part of its address, which is the same in Spark's messages."""
    return file.file_path.rpartition("/")[2]


def _bounds(table: Table, file: DataFile) -> tuple[int, int, int]:
    """(partition, first offset, last offset) of a file by its statistics, -1 where it holds several."""

    def bound(column: str, bounds: dict[int, bytes] | None) -> int:
        field = table.schema().find_field(column)
        raw, kind = (bounds or {}).get(field.field_id), field.field_type
        return int(from_bytes(kind, raw)) if raw is not None and isinstance(kind, PrimitiveType) else -1

    low, high = bound("partition", file.lower_bounds), bound("partition", file.upper_bounds)
    if low != high:
        return -1, -1, -1
    return low, bound("offset", file.lower_bounds), bound("offset", file.upper_bounds)
