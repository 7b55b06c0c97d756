"""Topic to table: the archive job, adding a snapshot several times a second."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as parquet
from pyarrow import ArrowInvalid
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tools.crash.chain.verification import Log
from tools.crash.spark.run import EXECUTORS, INPUT, RUNNEL

TABLE = "archive.spark_in"
EVERY_S = 0.3
RECORDS_PER_BATCH = 1000

ArchivedRecord = tuple[int, int, bytes]
"""Partition, offset, value."""


class ArchiveToTable:
    """The archive's table, read by Iceberg's own library."""

    def __init__(self, bootstrap: str, master: str, folder: Path) -> None:
        self.topics: list[str] = []
        self._warehouse = folder / "warehouse"
        settings = [word for pair in EXECUTORS.items() for word in ("--set", "=".join(pair))]
        self.command = [
            *RUNNEL,
            *("pipeline", "run", "archive", INPUT, "--continuous", "--every", str(EVERY_S)),
            *("--batch-records", str(RECORDS_PER_BATCH), "--warehouse", str(self._warehouse)),
            *("--checkpoint", str(folder / "checkpoint"), "--bootstrap-server", bootstrap),
            *("--master", master, *settings),
        ]

    def shown(self) -> int:
        table = self._table()
        snapshot = table.current_snapshot() if table is not None else None
        return int(snapshot.summary["total-records"] or 0) if snapshot and snapshot.summary else 0

    def wanted(self, inputs: Log) -> Counter[ArchivedRecord]:
        return Counter(
            (partition, offset, value)
            for (_, partition), records in inputs.items()
            for offset, value in records
        )

    def found(self) -> Counter[ArchivedRecord]:
        table = self._table()
        if table is None:
            return Counter()
        columns = table.scan(selected_fields=("partition", "offset", "value")).to_arrow()
        return Counter(zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True))

    def undone(self) -> int:
        """Rows in files that no snapshot ever had: those of killed tasks and drivers."""
        table = self._table()
        known = set(table.inspect.all_files()["file_path"].to_pylist()) if table is not None else set()
        left = (path for path in self._warehouse.rglob("*.parquet") if f"file://{path}" not in known)
        return sum(map(rows_in, left))

    def wait_until_closed(self) -> None:
        """Nothing to wait for: what was not committed is in no snapshot."""

    def audit_options(self, count: int) -> list[str]:
        return ["--archive", str(self._warehouse)]

    def _table(self) -> Table | None:
        if not (self._warehouse / "catalog.db").exists():
            return None
        address = f"sqlite:///{self._warehouse}/catalog.db?timeout=60"
        try:
            return load_catalog("runnel", type="sql", uri=address).load_table(TABLE)
        except NoSuchTableError:
            return None


def rows_in(path: Path) -> int:
    """How many rows a file holds; none if its writer was killed before it was complete."""
    try:
        return int(parquet.read_metadata(path).num_rows)
    except ArrowInvalid:
        return 0
