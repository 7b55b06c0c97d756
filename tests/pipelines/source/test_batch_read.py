"""Batch reads through a real Spark session from a real broker."""

from runnel.testing import Broker


def test_all_columns_of_a_record(spark, runnel: Broker) -> None:
    with runnel.client() as client:
        client.create_topic("orders", partitions=2)
        client.send(
            "orders",
            b"tea",
            key=b"anna",
            partition=1,
            timestamp_ms=1_700_000_000_123,
            headers=[("a", b"1"), ("b", None)],
        )
        client.send("orders", None, key=None, partition=0, timestamp_ms=1_700_000_000_456)
    frame = (
        spark.read.format("runnel")
        .option("kafka.bootstrap.servers", runnel.bootstrap_servers)
        .option("subscribe", "orders")
        .load()
    )
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    first, second = frame.orderBy("partition").collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (
        None, None, "orders", 0, 0,
    )  # fmt: skip
    assert first.headers is None and first.timestampType == 0
    assert (bytes(second.key), bytes(second.value), second.partition) == (b"anna", b"tea", 1)
    assert [(header.key, header.value) for header in second.headers] == [("a", bytearray(b"1")), ("b", None)]
    moments = frame.selectExpr("unix_millis(timestamp) AS ms").orderBy("ms").collect()
    assert [row.ms for row in moments] == [1_700_000_000_123, 1_700_000_000_456]
