"""What an archive looks like: one table per topic, by name and by its columns."""

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
"""The table property that says whose archive it is: several names of topics give one name of a table."""
TOPIC_ID = "runnel.topic-id"
"""The table property that distinguishes a topic from a later one of the same name."""
PARTITIONS = "runnel.partitions"
"""The table property that says how many partitions the topic had, also such as never held a record."""
GROUPS = "runnel.groups"
"""The table property that says how far consumer groups had read when the archive last looked, as JSON."""
KEPT_FROM = "runnel.kept-from"
"""The table property that says from which day on records are kept, if the archive's retention took any."""
ARCHIVED = "runnel.archived."
"""Followed by a partition's number: the table property that holds the first offset not archived."""
READ = "runnel.read."
"""Likewise: how far the archive has read, where nothing but markers and aborted records came since."""
DECODED = "decoded"
DECODE_ERROR = "decode_error"

_DAY_FIRST, _DAY_LAST = -719_162, 2_932_896
"""The days that Python, and so Iceberg's statistics, can name: 0001-01-01 and 9999-12-31."""
_DAYS = f"least(greatest(floor(unix_millis(timestamp) / 86400000), {_DAY_FIRST}L), {_DAY_LAST}L)"
_DAY = f"date_add(DATE'1970-01-01', CAST({_DAYS} AS INT))"
"""The day in UTC, whatever time zone Spark's session has."""


def archive_rows(frame: DataFrame) -> DataFrame:
    """Records as the source gives them, in the columns of an archive."""
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
    """The name of the table that a topic is archived in."""
    return f"{namespace}.{table_name_of(topic)}"


def ensure_archive(
    catalog: Catalog, namespace: str, topic: str, topic_id: bytes, rows: DataFrame
) -> SparkTable:
    """The table of a topic, made if it is not there."""
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
    """Per partition, the first offset of which is not known whether there was anything to archive."""
    read, archived = _offsets(properties, READ), archived_offsets(properties)
    return {number: max(read.get(number, 0), archived.get(number, 0)) for number in read | archived}


def _offsets(properties: Mapping[str, str], prefix: str) -> dict[int, int]:
    return {
        int(name.removeprefix(prefix)): int(value)
        for name, value in properties.items()
        if name.startswith(prefix)
    }


def kept_from(properties: Mapping[str, str]) -> date:
    """The first day whose records the archive's own retention has left in it."""
    return date.fromisoformat(properties.get(KEPT_FROM, date.min.isoformat()))


def groups_text(places: Mapping[str, Mapping[int, int]]) -> str:
    """The property of groups: offsets by group and partition."""
    return json.dumps({group: dict(offsets) for group, offsets in sorted(places.items())})


def archived_groups(properties: Mapping[str, str]) -> dict[str, dict[int, int]]:
    """How far groups had read, by group and partition."""
    places: dict[str, dict[str, int]] = json.loads(properties.get(GROUPS, "{}"))
    return {
        group: {int(partition): offset for partition, offset in offsets.items()}
        for group, offsets in places.items()
    }


def check_is_same(table: str, properties: Mapping[str, str], topic: str, topic_id: bytes) -> None:
    """TableError if the topic of this id is not the one that the table began with."""
    if topic_id != NO_ID and properties.get(TOPIC_ID, id_text(topic_id)) != id_text(topic_id):
        raise TableError(
            f"topic {topic} was deleted and recreated after table {table} began, so that its offsets "
            "mean other records now: archive it in another namespace"
        )


def _checked(table: SparkTable, topic: str, topic_id: bytes) -> SparkTable:
    properties = table.properties()
    owner = properties.get(TOPIC)
    if owner != topic:
        raise TableError(
            f"table {table.name} archives {'no topic' if owner is None else f'topic {owner}'}, not "
            f"topic {topic}: archive {topic} in a namespace of its own"
        )
    check_is_same(table.name, properties, topic, topic_id)
    return table
