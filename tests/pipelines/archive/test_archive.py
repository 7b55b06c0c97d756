"""The archive of a topic holds every committed record once, whatever happens between two of its steps."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from runnel.client.cluster import Cluster
from runnel.client.transactional import TransactionalProducer
from runnel.pipelines.archive import batches as archive_batches
from runnel.pipelines.archive import job
from runnel.pipelines.archive.job import ArchiveOptions, ArchiveOutcome, run
from runnel.pipelines.archive.layout import archived_topics, open_archive
from runnel.pipelines.errors import BadCheckpoint, PipelineError, TableError
from runnel.pipelines.progress import Progress
from runnel.pipelines.tables import SparkTable, open_catalog
from runnel.testing import Broker

DAY_MS = 24 * 60 * 60 * 1000


class Archive:
    """An archive in a folder, and the broker that it is of."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark = spark
        self.options = ArchiveOptions(
            bootstrap=broker.bootstrap_servers,
            warehouse=str(folder / "warehouse"),
            checkpoint=str(folder / "checkpoint"),
            topics=("orders",),
        )
        self.catalog = open_catalog(self.options.warehouse)

    def run(self, **changes) -> ArchiveOutcome:
        return run(self.spark, replace(self.options, **changes), Progress())

    def table(self, topic: str = "orders") -> SparkTable:
        return open_archive(self.catalog, "archive", topic)

    def values(self, topic: str = "orders") -> list[str | None]:
        rows = self.table(topic).read(self.spark).orderBy("partition", "offset").collect()
        return [row.value.decode() if row.value is not None else None for row in rows]


@pytest.fixture
def archive(spark: SparkSession, runnel: Broker, tmp_path: Path) -> Iterator[Archive]:
    with runnel.client() as client:
        client.create_topic("orders", partitions=2, settings={"retention.ms": "-1"})
    archive = Archive(spark, runnel, tmp_path)
    yield archive
    archive.catalog.close()


def send(broker: Broker, *values: bytes | None, topic: str = "orders", partition: int = 0, **more) -> None:
    with broker.client() as client:
        for value in values:
            client.send(topic, value, partition=partition, **more)


def test_everything_of_a_record_is_kept(archive, runnel):
    send(runnel, b"plain", key=b"k", timestamp_ms=DAY_MS + 5, headers=[("a", b"1"), ("b", None)])
    send(runnel, None, key=b"gone", timestamp_ms=3 * DAY_MS, partition=1)
    outcome = archive.run()
    (topic,) = outcome.topics
    assert (topic.topic, topic.table, topic.rows, topic.next_offsets) == (
        "orders",
        "archive.orders",
        2,
        {0: 1, 1: 1},
    )
    plain, gone = archive.table().read(archive.spark).orderBy("partition").collect()
    assert (plain.topic, plain.partition, plain.offset, plain.timestamp_type) == ("orders", 0, 0, 0)
    assert (bytes(plain.key), bytes(plain.value)) == (b"k", b"plain")
    assert plain.timestamp.timestamp() == (DAY_MS + 5) / 1000
    assert [(header.key, header.value) for header in plain.headers] == [("a", b"1"), ("b", None)]
    assert (str(plain.day), str(gone.day)) == ("1970-01-02", "1970-01-04")
    assert (bytes(gone.key), gone.value, gone.headers) == (b"gone", None, None)
    assert archive.table().properties()["runnel.archived.1"] == "1"


def test_the_next_run_adds_what_is_new_and_nothing_else(archive, runnel):
    send(runnel, b"a", b"b")
    archive.run()
    send(runnel, b"c")
    assert archive.run().topics[0].rows == 1
    assert archive.run().batches == 0
    assert archive.values() == ["a", "b", "c"]


def test_a_batch_is_not_doubled_if_the_driver_dies_between_snapshot_and_checkpoint(
    archive, runnel, monkeypatch
):
    send(runnel, b"a", b"b")
    archiver = archive_batches.BatchArchiver.__call__

    def archive_and_die(self, frame, batch_id):
        archiver(self, frame, batch_id)
        raise PipelineError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(archive_batches.BatchArchiver, "__call__", archive_and_die)
        with pytest.raises(PipelineError, match="killed"):
            archive.run()
    assert archive.values() == ["a", "b"]
    send(runnel, b"c")
    archive.run()
    assert archive.values() == ["a", "b", "c"]


def test_a_batch_is_not_lost_if_the_driver_dies_between_files_and_snapshot(archive, runnel, monkeypatch):
    send(runnel, b"a", b"b")

    def die(self, *arguments, **named):
        raise PipelineError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(SparkTable, "commit", die)
        with pytest.raises(PipelineError, match="killed"):
            archive.run()
    assert archive.values() == []
    archive.run()
    assert archive.values() == ["a", "b"]


def test_without_its_checkpoint_it_goes_on_from_the_tables(archive, runnel):
    send(runnel, b"a", b"b")
    archive.run()
    shutil.rmtree(archive.options.checkpoint)
    send(runnel, b"c", b"d", partition=1)
    assert archive.run().topics[0].rows == 2
    assert archive.values() == ["a", "b", "c", "d"]


def test_a_checkpoint_that_is_ahead_of_the_tables_is_refused(archive, runnel):
    send(runnel, b"a", b"b")
    archive.run()
    shutil.rmtree(archive.options.warehouse)
    with pytest.raises(BadCheckpoint, match="remove that folder"):
        archive.run()
    shutil.rmtree(archive.options.checkpoint)
    archive.catalog.close()
    archive.catalog = open_catalog(archive.options.warehouse)
    archive.run()
    assert archive.values() == ["a", "b"]


def test_a_topic_that_was_made_anew_is_not_mixed_with_the_old_one(archive, runnel):
    send(runnel, b"a", b"b")
    archive.run()
    with runnel.client() as client:
        client.delete_topic("orders")
        client.create_topic("orders", partitions=2)
    send(runnel, b"other")
    with pytest.raises(TableError, match="made anew"):
        archive.run()


async def _transactions(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster, TransactionalProducer(cluster, "t") as producer:
        for value, is_committed in ((b"yes", True), (b"no", False)):
            await producer.begin()
            await producer.send("orders", value, partition=0)
            await producer.flush()
            await (producer.commit() if is_committed else producer.abort())


def test_aborted_records_are_left_out_and_their_end_is_no_gap(archive, runnel):
    asyncio.run(_transactions(runnel.bootstrap_servers))
    archive.run()
    assert archive.values() == ["yes"]
    assert archive.run().batches == 0


def test_topics_by_pattern_have_a_table_each(archive, runnel):
    with runnel.client() as client:
        client.create_topic("shop.payments-eu", partitions=1)
    send(runnel, b"o")
    send(runnel, b"p", topic="shop.payments-eu")
    outcome = archive.run(topics=(), pattern="orders|shop.*")
    assert [(topic.table, topic.rows) for topic in outcome.topics] == [
        ("archive.orders", 1),
        ("archive.shop_payments_eu", 1),
    ]
    assert archived_topics(archive.catalog, "archive") == ["orders", "shop.payments-eu"]
    assert archive.values("shop.payments-eu") == ["p"]


def test_decoded_values_stand_beside_the_bytes_and_malformed_ones_say_why(archive, runnel):
    send(runnel, json.dumps({"id": 7, "item": "tea"}).encode(), b"not json", None)
    archive.run(value_format="json", value_schema="id INT, item STRING")
    good, bad, none = archive.table().read(archive.spark).orderBy("offset").collect()
    assert (good.decoded.id, good.decoded.item, good.decode_error) == (7, "tea", None)
    assert (bytes(bad.value), bad.decoded) == (b"not json", None)
    assert bad.decode_error
    assert (none.value, none.decoded, none.decode_error) == (None, None, None)
    # A field that comes later becomes a column of the same table.
    send(runnel, json.dumps({"id": 8, "price": 2.5}).encode())
    archive.run(value_format="json", value_schema="id INT, item STRING, price DOUBLE")
    rows = archive.table().read(archive.spark).orderBy("offset").collect()
    assert [row.decoded.price if row.decoded else None for row in rows] == [None, None, None, 2.5]


def test_retention_and_merging_keep_the_archive_small(archive, runnel, monkeypatch):
    send(runnel, b"old", timestamp_ms=DAY_MS)
    archive.run()
    for value in (b"a", b"b", b"c"):
        send(runnel, value)
        archive.run()
    (topic,) = archive.run(retention_days=30, is_compacting=True).topics
    assert topic.rows_removed == 1
    assert topic.files_merged == 3
    assert archive.values() == ["a", "b", "c"]
    assert len(archive.table().files()) == 1
    assert topic.next_offsets == {0: 4}


def test_two_archives_of_a_topic_at_once_do_not_double_it(archive, runnel, monkeypatch):
    send(runnel, b"a")
    stage = SparkTable.stage

    def stage_after_another(self, frame):
        monkeypatch.setattr(SparkTable, "stage", stage)
        staged = stage(self, frame)
        archive.run(checkpoint=f"{archive.options.checkpoint}-2")
        return staged

    monkeypatch.setattr(SparkTable, "stage", stage_after_another)
    with pytest.raises(PipelineError, match="another writer has moved"):
        archive.run()
    archive.run()
    assert archive.values() == ["a"]


def test_which_topics_must_be_said(archive):
    with pytest.raises(PipelineError, match="which topics"):
        archive.run(topics=())
    with pytest.raises(PipelineError, match="nothing"):
        archive.run(topics=("nothing",))


def test_upkeep_happens_while_it_runs(archive, runnel, monkeypatch):
    monkeypatch.setattr(job, "BATCHES_PER_UPKEEP", 1)
    monkeypatch.setattr(job, "SMALL_FILES_MIN", 2)
    send(runnel, b"a", b"b", b"c")
    (topic,) = archive.run(records_per_batch=1).topics
    assert topic.files_merged >= 2
    assert archive.values() == ["a", "b", "c"]
