"""Batch reads through a real Spark session from a real broker."""

import pytest
from pyspark.errors import AnalysisException

from runnel.testing import Broker

pytestmark = pytest.mark.timeout(400)
"""The first job of a session is slow, in particular on a busy machine."""

ORDER = "id BIGINT, name STRING"


def read(spark, broker: Broker, **options: object):
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", **options}
    return spark.read.format("runnel").options(**given)


def test_all_columns_of_a_record(spark, runnel: Broker) -> None:
    with runnel.client() as client:
        client.create_topic("orders", partitions=2, settings={"retention.ms": "-1"})
        client.send(
            "orders",
            b"tea",
            key=b"anna",
            partition=1,
            timestamp_ms=1_700_000_000_123,
            headers=[("a", b"1"), ("b", None)],
        )
        client.send("orders", None, key=None, partition=0, timestamp_ms=1_700_000_000_456)
    frame = read(spark, runnel).load()
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    first, second = frame.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("partition").collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (
        None, None, "orders", 0, 0,
    )  # fmt: skip
    assert first.headers is None and first.timestampType == 0 and first.ms == 1_700_000_000_456
    assert (bytes(second.key), bytes(second.value), second.partition) == (b"anna", b"tea", 1)
    assert [(header.key, header.value) for header in second.headers] == [("a", bytearray(b"1")), ("b", None)]
    assert second.ms == 1_700_000_000_123


def test_decoded_values_and_chosen_columns(spark, runnel: Broker) -> None:
    with runnel.client() as client:
        client.create_topic("orders", partitions=1)
        client.send_all("orders", [(None, b'{"id": 1, "name": "tea"}'), (None, b"{"), (None, None)])
    frame = read(spark, runnel, valueFormat="json", valueSchema=ORDER).load()
    rows = frame.select("value.*", "valueError", "rawValue").collect()
    assert [(row.id, row.name) for row in rows] == [(1, "tea"), (None, None), (None, None)]
    assert [row.valueError is None for row in rows] == [True, False, True]
    assert [row.rawValue for row in rows] == [None, bytearray(b"{"), None]
    chosen = read(spark, runnel, minPartitions=3).schema("offset BIGINT, value BINARY").load()
    assert chosen.columns == ["offset", "value"] and chosen.rdd.getNumPartitions() == 3
    assert sorted(row.offset for row in chosen.collect()) == [0, 1, 2]


def test_an_empty_topic_and_mistakes(spark, runnel: Broker) -> None:
    with runnel.client() as client:
        client.create_topic("orders", partitions=2)
    assert read(spark, runnel).load().count() == 0
    with pytest.raises(AnalysisException, match="did you mean 'startingOffsets'"):
        read(spark, runnel, startingOffset="earliest").load()
    with pytest.raises(AnalysisException, match=r"UnknownTopic: .*topic 'nothing' does not exist"):
        read(spark, runnel, subscribe="nothing").load().count()
