"""The streaming queries of sinks, each with its checkpoint, exactly-once by default."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, assert_never

from runnel.pipelines.broker import BrokerView
from runnel.pipelines.declared.declaration import (
    ConsoleTarget,
    Declaration,
    ParquetTarget,
    Sink,
    TableTarget,
    TopicTarget,
    Trigger,
)
from runnel.pipelines.errors import BadOption
from runnel.pipelines.sink.options import write_options
from runnel.pipelines.sink.timeouts import timeout_max_ms, too_long
from runnel.pipelines.sink.writers import with_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType

BATCHES_PER_UPKEEP = 50
"""Each batch adds a snapshot, and the cost of a commit grows with the number of snapshots."""


def start_query(
    declaration: Declaration,
    sink: Sink,
    frame: "DataFrame",
    trigger: Trigger,
    checkpoint: str,
    in_doubt: str,
) -> "StreamingQuery":
    """Start the query that writes a frame to a sink."""
    match sink.target:
        case TopicTarget() as target:
            rows = record_frame(frame, target)
            more = {"inDoubt": in_doubt}
            if target.transaction_timeout_ms is not None:
                more["transactionTimeoutMs"] = str(target.transaction_timeout_ms)
            if target.subject is not None:
                more |= declaration.subject_options(target.subject)
            writer = topic_writer(
                rows, declaration.connection, target.delivery, sink.mode, target.topic, more
            )
        case TableTarget() as target:
            writer = frame.writeStream.foreachBatch(table_batches(frame, target))
        case ParquetTarget() as target:
            writer = frame.writeStream.format("parquet").option("path", target.path)
            if target.partition_by:
                writer = writer.partitionBy(*target.partition_by)
        case ConsoleTarget() as target:
            writer = frame.writeStream.foreachBatch(console_batches(sink.name, target))
        case _:
            assert_never(sink.target)
    return started(writer.outputMode(sink.mode), sink.name, trigger, checkpoint)


def started(writer: "DataStreamWriter", name: str, trigger: Trigger, checkpoint: str) -> "StreamingQuery":
    """Start a query under its name, with its trigger and its checkpoint."""
    named = writer.queryName(name).option("checkpointLocation", checkpoint)
    if trigger.is_once:
        return named.trigger(availableNow=True).start()
    return named.trigger(processingTime=f"{trigger.interval_ms} milliseconds").start()


# Topics.


def check_timeouts(declaration: Declaration, broker: BrokerView) -> None:
    """BadOption if a transaction timeout exceeds the broker's maximum."""
    chosen = {
        sink.name: sink.target.transaction_timeout_ms
        for sink in declaration.sinks.values()
        if isinstance(sink.target, TopicTarget) and sink.target.transaction_timeout_ms is not None
    }
    allowed_ms = broker.run(timeout_max_ms) if chosen else None
    for name, timeout_ms in chosen.items():
        if allowed_ms is not None and timeout_ms > allowed_ms:
            raise BadOption(
                too_long(f"the transaction-timeout of sink {name!r} in ms", timeout_ms, allowed_ms)
            )


def check_subjects(declaration: Declaration) -> None:
    """BadOption if values of a sink cannot be encoded with the subject that it names."""
    for sink in declaration.sinks.values():
        if isinstance(sink.target, TopicTarget) and sink.target.subject is not None:
            options = {
                **declaration.connection,
                **declaration.subject_options(sink.target.subject),
                "topic": sink.target.topic,
            }
            with_schema(write_options(options))


def topic_writer(
    rows: "DataFrame",
    connection: Mapping[str, str],
    delivery: str,
    mode: str,
    topic: str | None,
    more: Mapping[str, str],
) -> "DataStreamWriter":
    """A writer to a topic, or to the topic in the column `topic`."""
    options = {**connection, "delivery": delivery, **more}
    if topic is not None:
        options["topic"] = topic
    if mode == "append":
        return rows.writeStream.format("runnel").options(**options)
    # Spark supports Python sinks in mode append only. Other modes write each batch with the same guarantee.
    return rows.writeStream.foreachBatch(_topic_batches(options))


def _topic_batches(options: dict[str, str]) -> "Callable[[DataFrame, int], None]":
    def write(batch: "DataFrame", batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        # Batches are numbered from 0: a later batch without a commit marker is in doubt, not the first.
        marker = {"txnAppId": query_id or "", "txnVersion": str(batch_id), "txnFirstVersion": "0"}
        batch.write.format("runnel").mode("append").options(**options, **marker).save()

    return write


def record_frame(frame: "DataFrame", target: TopicTarget) -> "DataFrame":
    """Rows as records. The value is JSON, a struct if it has a subject, or a column."""
    columns = [_value(frame, target).alias("value")]
    if target.key is not None:
        columns.append(as_text(_column(target.key), frame.schema[target.key].dataType).alias("key"))
    for name in ("headers", "partition", "timestamp"):
        chosen = getattr(target, name)
        if chosen is not None:
            columns.append(_column(chosen).alias(name))
    return frame.select(*columns)


def _value(frame: "DataFrame", target: TopicTarget) -> "Column":
    from pyspark.sql import functions as F

    if isinstance(target.value, str):
        return _column(target.value)
    names = target.value or tuple(frame.columns)
    if target.subject is not None:
        return F.struct(*(_column(name) for name in names))
    # Consumers distinguish a field that is absent from one that is null.
    return F.to_json(F.struct(*(_column(name) for name in names)), {"ignoreNullFields": "false"})


def _column(name: str) -> "Column":
    from pyspark.sql import functions as F

    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


def as_text(column: "Column", kind: "DataType") -> "Column":
    """A column as a key: strings and binary unchanged, nested types as JSON, others cast to string."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    if isinstance(kind, BinaryType | StringType):
        return column
    if isinstance(kind, StructType | ArrayType | MapType):
        return F.to_json(column, {"ignoreNullFields": "false"})
    return column.cast("string")


# Tables.


def table_batches(frame: "DataFrame", target: TableTarget) -> "Callable[[DataFrame, int], None]":
    """Appends batches to an Iceberg table, which is created if it does not exist."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from runnel.pipelines.tables import ensure_table, marker_of, open_catalog
    from runnel.pipelines.tables.upkeep import maintain

    catalog = open_catalog(target.warehouse, target.catalog)
    table = ensure_table(
        catalog,
        target.table,
        frame.schema,
        partition_by=target.partition_by,
        properties=target.properties,
    )
    table.ensure_properties(target.properties)

    def write(batch: "DataFrame", batch_id: int) -> None:
        marker = marker_of(batch, batch_id)
        if marker.is_in(table.latest()):
            # The table has the batch, but stateful operators commit their state only when rows are consumed.
            batch.write.format("noop").mode("overwrite").save()
            return
        counted = Observation()
        staged = table.stage(batch.observe(counted, F.count(F.lit(1)).alias("rows")))
        if counted.get["rows"]:
            table.commit(staged, marker)
        else:
            # Batches are empty while windows are open.
            table.discard(staged)
        if batch_id % BATCHES_PER_UPKEEP == BATCHES_PER_UPKEEP - 1:
            maintain(batch.sparkSession, table, target.upkeep)

    return write


# Console.


def console_batches(name: str, target: ConsoleTarget) -> "Callable[[DataFrame, int], None]":
    """Prints batches as tables."""

    def write(batch: "DataFrame", batch_id: int) -> None:
        # Cached, because it is evaluated twice: all rows, for stateful operators, and the rows to show.
        kept = batch.persist()
        try:
            count = kept.count()
            if count:
                print(f"{name}, batch {batch_id}: {count} {'row' if count == 1 else 'rows'}")
                kept.show(target.rows, truncate=False)
        finally:
            kept.unpersist()

    return write
