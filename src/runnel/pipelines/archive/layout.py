"""The layout of an archive: one table per topic, its columns and properties."""

import json
from collections.abc import Mapping
from datetime import date

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from runnel.model.ids import NO_ID, id_text
from runnel.pipelines.errors import TableError
from runnel.pipelines.tables import SparkTable, ensure_table, table_name_of

NAMESPACE = "archive"
TOPIC = "runnel.topic"
"""Table property: the topic. Several topic names map to one table name."""
TOPIC_ID = "runnel.topic-id"
"""Table property: the topic id, which differs for a recreated topic."""
PARTITIONS = "runnel.partitions"
"""Table property: the number of partitions, including empty ones."""
GROUPS = "runnel.groups"
"""Table property: committed offsets of consumer groups as of the last maintenance, as JSON."""
KEPT_FROM = "runnel.kept-from"
"""Table property: the first day that the archive's retention keeps."""
ARCHIVED = "runnel.archived."
"""Prefix of table properties by partition: the first offset not archived."""
READ = "runnel.read."
"""Prefix of table properties by partition: the first offset not read, past markers and aborted records."""
DECODED = "decoded"
DECODE_ERROR = "decode_error"

_DAY_FIRST, _DAY_LAST = -719_162, 2_932_896
"""The days that Python and Iceberg's statistics support: 0001-01-01 to 9999-12-31."""
_DAYS = f"least(greatest(floor(unix_millis(timestamp) / 86400000), {_DAY_FIRST}L), {_DAY_LAST}L)"
_DAY = f"date_add(DATE'1970-01-01', CAST({_DAYS} AS INT))"
"""The day in UTC, independent of the session time zone."""


def archive_rows(frame: DataFrame) -> DataFrame:
    """The records of the source in the columns of an archive."""
    decoded = [name for name in (DECODED, DECODE_ERROR) if name in frame.columns]
    return frame.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        "headers",
        F.expr(_DAY).alias("day"),
        *decoded,
    )


def table_of(namespace: str, topic: str) -> str:
    """The name of the table of a topic."""
    return f"{namespace}.{table_name_of(topic)}"


def ensure_archive(
    catalog: Catalog, namespace: str, topic: str, topic_id: bytes, rows: DataFrame
) -> SparkTable:
    """The table of a topic, created if missing."""
    properties = {TOPIC: topic}
    if topic_id != NO_ID:
        properties[TOPIC_ID] = id_text(topic_id)
    table = ensure_table(
        catalog,
        table_of(namespace, topic),
        rows.schema,
        partition_by=["day"],
        sort_by=["partition", "offset"],
        properties=properties,
    )
    return _checked(table, topic, topic_id)


def open_archive(catalog: Catalog, namespace: str, topic: str, topic_id: bytes = NO_ID) -> SparkTable:
    """The table of a topic; NoSuchTable if it was never archived."""
    return _checked(SparkTable(catalog, table_of(namespace, topic)), topic, topic_id)


def archived_topics(catalog: Catalog, namespace: str) -> list[str]:
    """All topics that have a table in this namespace."""
    if not catalog.namespace_exists(namespace):
        return []
    tables = [catalog.load_table(name) for name in catalog.list_tables(namespace)]
    return sorted(table.properties[TOPIC] for table in tables if TOPIC in table.properties)


def archived_offsets(properties: Mapping[str, str]) -> dict[int, int]:
    """Per partition, the first offset that is not archived."""
    return _offsets(properties, ARCHIVED)


def read_offsets(properties: Mapping[str, str]) -> dict[int, int]:
    """Per partition, the first offset that was not read."""
    read, archived = _offsets(properties, READ), archived_offsets(properties)
    return {number: max(read.get(number, 0), archived.get(number, 0)) for number in read | archived}


def _offsets(properties: Mapping[str, str], prefix: str) -> dict[int, int]:
    return {
        int(name.removeprefix(prefix)): int(value)
        for name, value in properties.items()
        if name.startswith(prefix)
    }


def kept_from(properties: Mapping[str, str]) -> date:
    """The first day that the archive's own retention keeps."""
    return date.fromisoformat(properties.get(KEPT_FROM, date.min.isoformat()))


def groups_text(committed: Mapping[str, Mapping[int, int]]) -> str:
    """The property value for committed offsets, by group and partition."""
    return json.dumps({group: dict(offsets) for group, offsets in sorted(committed.items())})


def archived_groups(properties: Mapping[str, str]) -> dict[str, dict[int, int]]:
    """The committed offsets, by group and partition."""
    committed: dict[str, dict[str, int]] = json.loads(properties.get(GROUPS, "{}"))
    return {
        group: {int(partition): offset for partition, offset in offsets.items()}
        for group, offsets in committed.items()
    }


def check_is_same(table: str, properties: Mapping[str, str], topic: str, topic_id: bytes) -> None:
    """TableError if the topic id differs from that of the table."""
    if topic_id != NO_ID and properties.get(TOPIC_ID, id_text(topic_id)) != id_text(topic_id):
        raise TableError(
            f"topic {topic} was deleted and recreated after table {table} was created, so its offsets "
            "refer to other records: archive it in another namespace"
        )


def _checked(table: SparkTable, topic: str, topic_id: bytes) -> SparkTable:
    properties = table.properties()
    owner = properties.get(TOPIC)
    if owner != topic:
        raise TableError(
            f"table {table.name} archives {'no topic' if owner is None else f'topic {owner}'}, not "
            f"topic {topic}: archive {topic} in another namespace"
        )
    check_is_same(table.name, properties, topic, topic_id)
    return table
