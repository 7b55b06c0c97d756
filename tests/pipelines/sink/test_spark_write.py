"""The sink in Spark: batch and streaming, with failing tasks, replays and broker restarts."""

import os
import threading
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import functions as F

from runnel.client.partitioner import partition_for_key
from runnel.pipelines.data_source import RunnelDataSource
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.ledger import BrokerLedger
from runnel.pipelines.sink.options import write_options
from runnel.pipelines.sink.writers import StreamWriter

ROWS = 200


@pytest.fixture
def broker(runnel_session):
    with runnel_session.client() as client:
        yield Store(runnel_session.bootstrap_servers, client)


class Store:
    """A broker with a client, and the options to connect to it."""

    def __init__(self, bootstrap_servers, client):
        self.options = {"kafka.bootstrap.servers": bootstrap_servers}
        self.client = client

    def topic(self, partitions=3):
        name = f"t-{uuid4().hex}"
        self.client.create_topic(name, partitions=partitions)
        return name

    def messages(self, topic):
        return self.client.read(topic, committed_only=True)

    def values(self, topic):
        return Counter((message.value or b"").decode() for message in self.messages(topic))


def numbers(spark, tasks=2):
    return spark.range(0, ROWS, 1, tasks).selectExpr("cast(id as string) key", "concat('v', id) value")


def expected(count=ROWS):
    return Counter(f"v{number}" for number in range(count))


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_batch_write_is_complete_and_partitioned_by_key(spark, broker, delivery):
    topic = broker.topic()
    writer = numbers(spark).write.format("runnel").options(**broker.options).mode("append")
    writer.option("topic", topic).option("delivery", delivery).option("kafka.compression.type", "zstd").save()
    found = broker.messages(topic)
    assert Counter((message.value or b"").decode() for message in found) == expected()
    assert all(message.partition == partition_for_key(message.key or b"", 3) for message in found)


def test_every_column_of_a_record_is_written(spark, broker):
    topic, other = broker.topic(), broker.topic()
    rows = spark.createDataFrame(
        [
            ("k", "v", topic, 2, 1_700_000_000.123, [("a", b"1"), ("b", None)]),
            (None, None, other, None, None, None),
        ],
        "key string, value string, topic string, partition int, seconds double, "
        "headers array<struct<key:string,value:binary>>",
    ).withColumn("timestamp", F.timestamp_seconds("seconds"))
    rows.write.format("runnel").options(**broker.options).mode("append").save()
    [first] = broker.messages(topic)
    assert (first.key, first.value, first.partition, first.timestamp_ms) == (b"k", b"v", 2, 1_700_000_000_123)
    assert list(first.headers) == [("a", b"1"), ("b", None)]
    [second] = broker.messages(other)
    assert (second.key, second.value, list(second.headers)) == (None, None, [])
    assert second.timestamp_ms > 1_700_000_000_123


def test_a_failed_write_is_invisible_and_leaves_no_open_transaction(spark, broker):
    topic = broker.topic()
    rows = numbers(spark).withColumn("value", F.expr("if(key = '150', raise_error('bad row'), value)"))
    with pytest.raises(Exception, match="bad row"):
        rows.write.format("runnel").options(**broker.options).option("topic", topic).mode("append").save()
    assert not broker.messages(topic)
    numbers(spark).write.format("runnel").options(**broker.options).option("topic", topic).mode(
        "append"
    ).save()
    assert broker.values(topic) == expected()


def test_a_repeated_numbered_batch_write_is_written_once(spark, broker):
    topic = broker.topic()
    numbered = {**broker.options, "topic": topic, "txnAppId": f"app-{uuid4()}", "txnVersion": "7"}
    for tasks in (2, 3):
        numbers(spark, tasks).write.format("runnel").options(**numbered).mode("append").save()
    assert broker.values(topic) == expected()


@pytest.mark.runnel({"auto.create.topics.enable": False})
def test_invalid_writes_are_reported(spark, runnel):
    writer = numbers(spark).write.format("runnel").mode("append").option("topic", "no-such-topic")
    with pytest.raises(Exception, match="topic 'no-such-topic' does not exist"):
        writer.option("kafka.bootstrap.servers", runnel.bootstrap_servers).save()


class Stream:
    """A topic-to-topic query that runs repeatedly on one checkpoint."""

    def __init__(self, spark, broker, checkpoint: Path):
        self.spark, self.broker, self.checkpoint = spark, broker, checkpoint
        self.source, self.sink = broker.topic(2), broker.topic(3)
        self.format = "runnel"

    def feed(self, first, end):
        self.broker.client.send_all(self.source, [(b"%d" % n, b"v%d" % n) for n in range(first, end)])

    def run(self, change=lambda rows: rows, **options):
        rows = self.spark.readStream.format("runnel").options(**self.broker.options)
        rows = rows.option("subscribe", self.source).option("startingOffsets", "earliest").load()
        rows = rows.selectExpr("key", "cast(value as string) value")
        query = change(rows).writeStream.format(self.format).options(**self.broker.options, **options)
        query = query.option("topic", self.sink).option("checkpointLocation", str(self.checkpoint))
        started = query.trigger(availableNow=True).start()
        try:
            assert started.awaitTermination(300), "the query does not end"
        finally:
            # In a thread, as the connection of this one to Java may still wait for a response.
            stopping = threading.Thread(target=started.stop, daemon=True)
            stopping.start()
            stopping.join(60)

    def forget_last(self, kind):
        """Without the last file of `commits`, as if the driver had failed before it committed the batch."""
        folder = self.checkpoint / kind
        last = max(int(file.name) for file in folder.iterdir() if file.name.isdigit())
        (folder / str(last)).unlink()
        (folder / f".{last}.crc").unlink()


@pytest.fixture
def stream(spark, broker, tmp_path):
    return Stream(spark, broker, tmp_path / "checkpoint")


def test_a_stream_writes_each_row_once_when_a_batch_is_replayed_with_more_tasks(stream):
    stream.feed(0, 100)
    stream.run()
    stream.forget_last("commits")
    stream.run(lambda rows: rows.repartition(3))
    assert stream.broker.values(stream.sink) == expected(100)
    stream.feed(100, 150)
    stream.run()
    assert stream.broker.values(stream.sink) == expected(150)
    # A checkpoint that was reset to an earlier state is reported, not written twice.
    stream.forget_last("commits")
    stream.forget_last("commits")
    stream.forget_last("offsets")
    with pytest.raises(Exception, match="batch 1 is already committed"):
        stream.run()
    assert stream.broker.values(stream.sink) == expected(150)


def failing_source(switch: str) -> type[RunnelDataSource]:
    """The data source with a commit that fails right after the commit point while a file exists.

    Commits run in a process of their own, so nothing can be patched from here.
    """

    class FailingWriter(StreamWriter):
        def commit(self, messages, batchId):
            decide = BrokerLedger.write

            async def decide_and_fail(ledger, claim, marker):
                claim = await decide(ledger, claim, marker)
                if os.path.exists(switch):
                    raise PipelineError("asked to fail")
                return claim

            BrokerLedger.write = decide_and_fail  # type: ignore[method-assign]
            try:
                super().commit(messages, batchId)
            finally:
                BrokerLedger.write = decide  # type: ignore[method-assign]

    class FailingSource(RunnelDataSource):
        @classmethod
        def name(cls):
            return "failing"

        def streamWriter(self, schema, overwrite):
            return FailingWriter(write_options(self.options), schema)

    return FailingSource


def test_a_commit_that_fails_midway_is_completed_by_the_next_run(spark, stream, tmp_path):
    switch = tmp_path / "fail"
    spark.dataSource.register(failing_source(str(switch)))
    stream.format = "failing"
    stream.feed(0, 60)
    switch.touch()
    with pytest.raises(Exception, match="asked to fail"):
        stream.run()
    assert not stream.broker.values(stream.sink)
    switch.unlink()
    stream.run()
    assert stream.broker.values(stream.sink) == expected(60)


def test_a_broker_restart_during_a_stream_neither_loses_nor_duplicates_rows(spark, runnel, tmp_path):
    with runnel.client() as client:
        stream = Stream(spark, Store(runnel.bootstrap_servers, client), tmp_path / "checkpoint")
        stream.feed(0, 80)
        stream.run()
        runnel.restart()
        stream.feed(80, 120)
        stream.run()
        stream.forget_last("commits")
        runnel.restart()
        stream.run()
        assert stream.broker.values(stream.sink) == expected(120)
