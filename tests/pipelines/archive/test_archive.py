"""The archive has every committed record once, with failures between any two steps."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from runnel.client.cluster import Cluster
from runnel.client.transactional import TransactionalProducer
from runnel.pipelines.archive.layout import archived_topics, open_archive
from runnel.pipelines.errors import TableError
from runnel.pipelines.tables import SparkTable, open_catalog
from runnel.pipelines.tables.compaction import compact
from runnel.testing import Broker
from tests.pipelines.archive.steps import Steps

pytestmark = pytest.mark.timeout(300)  # the first test of a process waits for Spark to start

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(str(tmp_path / "warehouse")) as catalog:
        yield catalog


@pytest.fixture
def orders(runnel: Broker) -> Broker:
    with runnel.client() as client:
        settings = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
        client.create_topic("orders", partitions=3, settings=settings)
    return runnel


@pytest.fixture
def steps(spark: SparkSession, catalog: Catalog, orders: Broker) -> Steps:
    return Steps(spark, catalog, orders.bootstrap_servers)


def send(broker: Broker, *values: bytes | None, topic: str = "orders", partition: int = 0, **more) -> None:
    with broker.client() as client:
        for value in values:
            client.send(topic, value, partition=partition, **more)


def values(spark: SparkSession, catalog: Catalog, topic: str = "orders") -> list[bytes | None]:
    table = open_archive(catalog, "archive", topic)
    rows = table.read(spark).orderBy("partition", "offset").select("value").collect()
    return [None if row.value is None else bytes(row.value) for row in rows]


def test_everything_of_a_record_is_kept(spark, catalog, orders, steps):
    send(orders, b"plain", key=b"k", timestamp_ms=DAY_MS + 5, headers=[("a", b"1"), ("b", None)])
    send(orders, None, key=b"gone", timestamp_ms=3 * DAY_MS, partition=1)
    steps.batch(0)
    topic = steps.archiver.topics["orders"]
    assert (topic.table, topic.rows, topic.next_offsets) == ("archive.orders", 2, {0: 1, 1: 1})
    table = open_archive(catalog, "archive", "orders")
    plain, gone = table.read(spark).orderBy("partition").collect()
    assert (plain.topic, plain.partition, plain.offset, plain.timestamp_type) == ("orders", 0, 0, 0)
    assert (bytes(plain.key), bytes(plain.value)) == (b"k", b"plain")
    assert plain.timestamp.timestamp() == (DAY_MS + 5) / 1000
    assert [(header.key, header.value) for header in plain.headers] == [("a", b"1"), ("b", None)]
    assert (str(plain.day), str(gone.day)) == ("1970-01-02", "1970-01-04")
    assert (bytes(gone.key), gone.value, gone.headers) == (b"gone", None, None)
    properties = table.properties()
    assert (properties["runnel.archived.1"], properties["runnel.partitions"]) == ("1", "3")


def test_times_beyond_all_calendars_do_not_stop_an_archive(spark, catalog, orders, steps):
    far_ms = 300_000_000_000_000  # the year 11476
    send(orders, b"far", timestamp_ms=far_ms)
    send(orders, b"none", timestamp_ms=-1)
    steps.batch(0)
    send(orders, b"more", timestamp_ms=far_ms + 1)
    steps.batch(1)
    table = open_archive(catalog, "archive", "orders")
    assert compact(spark, table).files_before == 2
    rows = table.read(spark).selectExpr("unix_millis(timestamp) AS at_ms", "string(day) AS day", "offset")
    assert [tuple(row) for row in rows.orderBy("offset").collect()] == [
        (far_ms, "9999-12-31", 0),
        (-1, "1969-12-31", 1),
        (far_ms + 1, "9999-12-31", 2),
    ]


def test_a_batch_that_comes_again_after_its_snapshot_is_not_doubled(spark, catalog, orders, steps):
    send(orders, b"a", b"b")
    steps.batch(0)
    # The driver died before Spark noted that the batch was done.
    steps.batch(0, archiver=steps.new_archiver())
    send(orders, b"c", partition=1)
    steps.batch(1)
    # A new checkpoint, so that all comes again under another name.
    steps.batch(0, query="other")
    assert values(spark, catalog) == [b"a", b"b", b"c"]
    assert len(open_archive(catalog, "archive", "orders").latest().snapshots()) == 2


def test_a_batch_whose_writer_died_before_the_snapshot_is_not_lost(
    spark, catalog, orders, steps, monkeypatch
):
    send(orders, b"a", b"b")

    def die(self, *arguments, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(SparkTable, "commit", die)
        steps.batch(0)
    assert values(spark, catalog) == []
    steps.batch(0, archiver=steps.new_archiver())
    assert values(spark, catalog) == [b"a", b"b"]


def test_two_archives_of_a_topic_at_once_do_not_double_it(spark, catalog, orders, steps, monkeypatch):
    send(orders, b"a")
    stage = SparkTable.stage

    def stage_after_another(self, frame):
        monkeypatch.setattr(SparkTable, "stage", stage)
        staged = stage(self, frame)
        steps.batch(0, query="other")
        return staged

    monkeypatch.setattr(SparkTable, "stage", stage_after_another)
    with pytest.raises(TableError, match="another writer has changed"):
        steps.batch(0)
    assert values(spark, catalog) == [b"a"]


def test_a_topic_that_was_recreated_is_not_mixed_with_the_old_one(orders, steps):
    send(orders, b"a")
    steps.batch(0)
    with orders.client() as client:
        client.delete_topic("orders")
        client.create_topic("orders", partitions=3)
    send(orders, b"other")
    with pytest.raises(TableError, match="recreated"):
        steps.batch(1, archiver=steps.new_archiver())
    # An archive that ran on meanwhile would take the first new records for those that it has.
    with pytest.raises(TableError, match="recreated"):
        steps.batch(1)


async def _transactions(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster, TransactionalProducer(cluster, "t") as producer:
        for value, is_committed in ((b"yes", True), (b"no", False)):
            await producer.begin()
            await producer.send("orders", value, partition=0)
            await producer.flush()
            await (producer.commit() if is_committed else producer.abort())


def test_several_topics_have_a_table_each_without_aborted_records(spark, catalog, orders):
    with orders.client() as client:
        client.create_topic("shop.payments-eu", partitions=1)
    asyncio.run(_transactions(orders.bootstrap_servers))
    send(orders, b"p", topic="shop.payments-eu")
    steps = Steps(spark, catalog, orders.bootstrap_servers, subscribePattern="orders|shop.*")
    steps.batch(0)
    assert sorted(topic.table for topic in steps.archiver.topics.values()) == [
        "archive.orders",
        "archive.shop_payments_eu",
    ]
    assert archived_topics(catalog, "archive") == ["orders", "shop.payments-eu"]
    assert values(spark, catalog) == [b"yes"]
    assert values(spark, catalog, "shop.payments-eu") == [b"p"]
    with pytest.raises(TableError, match=r"archives topic shop.payments-eu, not topic shop-payments.eu"):
        open_archive(catalog, "archive", "shop-payments.eu")


def test_decoded_values_stand_beside_the_bytes_and_malformed_ones_say_why(spark, catalog, orders):
    def archive(batch: int, schema: str) -> None:
        formats = {"valueFormat": "json", "valueSchema": schema}
        Steps(spark, catalog, orders.bootstrap_servers, **formats).batch(batch)

    send(orders, json.dumps({"id": 7, "item": "tea"}).encode(), b"not json", None)
    archive(0, "id INT, item STRING")
    # A field that comes later becomes a column of the same table.
    send(orders, json.dumps({"id": 8, "price": 2.5}).encode())
    archive(1, "id INT, item STRING, price DOUBLE")
    rows = open_archive(catalog, "archive", "orders").read(spark).orderBy("offset").collect()
    good, bad, none, later = rows
    assert (good.decoded.id, good.decoded.item, good.decoded.price, good.decode_error) == (
        7,
        "tea",
        None,
        None,
    )
    assert (bytes(bad.value), bad.decoded, bool(bad.decode_error)) == (b"not json", None, True)
    assert (none.value, none.decoded, none.decode_error) == (None, None, None)
    assert (later.decoded.id, later.decoded.item, later.decoded.price) == (8, None, 2.5)
