"""Iceberg tables without jars: Spark writes data files, and an atomic snapshot adds them to the table.

catalog = open_catalog("warehouse")                     # SQLite in that folder, or any catalog by properties
table = ensure_table(catalog, "shop.orders", frame.schema, partition_by=["day"], sort_by=["id"])

def each_batch(frame, batch_id):
    table.append(frame, marker_of(frame, batch_id))     # a replayed batch changes nothing

table.read(session).show()
"""

from runnel.pipelines.errors import (
    CatalogBusy,
    CommitConflict,
    NoSuchTable,
    SchemaChanged,
    TableError,
)
from runnel.pipelines.tables.catalog import open_catalog, table_name_of
from runnel.pipelines.tables.commit import BatchMarker, marker_of
from runnel.pipelines.tables.table import SparkTable, Written, ensure_table

__all__ = [
    "BatchMarker",
    "CatalogBusy",
    "CommitConflict",
    "NoSuchTable",
    "SchemaChanged",
    "SparkTable",
    "TableError",
    "Written",
    "ensure_table",
    "marker_of",
    "open_catalog",
    "table_name_of",
]
