"""Streams through a real Spark session from a real broker."""

import pytest
from pyspark.errors import StreamingQueryException

from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView
from runnel.testing import Broker

pytestmark = pytest.mark.timeout(400)
"""The first job of a session is slow, in particular on a busy machine."""


def run_once(spark, broker: Broker, folder, **options: object) -> list[list[tuple[int, int]]]:
    """The rows of each batch of a query that reads all available records."""
    batches: list[list[tuple[int, int]]] = []
    frame = (
        spark.readStream.format("runnel")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )

    def take(rows, _number: int) -> None:
        batches.append(sorted((row.partition, row.offset) for row in rows.collect()))

    query = (
        frame.select("partition", "offset")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300), "a query that reads what is there comes to an end"
    return batches


def send(broker: Broker, partition: int, count: int) -> None:
    with broker.client() as client:
        for _ in range(count):
            client.send("orders", b"tea", partition=partition)


def test_a_stream_resumes_from_its_checkpoint(spark, runnel: Broker, tmp_path) -> None:
    with BrokerView(runnel.bootstrap_servers) as broker:
        broker.create_topic("orders", partitions=1)
        send(runnel, 0, 5)
        first = run_once(spark, runnel, tmp_path, maxOffsetsPerTrigger=3)
        assert first == [[(0, 0), (0, 1), (0, 2)], [(0, 3), (0, 4)]]
        assert broker.group_offsets("spark-orders") == {TopicPartition("orders", 0): 5}
        broker.add_partitions("orders", 2)
        send(runnel, 0, 1)
        send(runnel, 1, 2)
        assert run_once(spark, runnel, tmp_path) == [[(0, 5), (1, 0), (1, 1)]]
        with runnel.client() as client:
            client.delete_topic("orders")
        broker.create_topic("orders", partitions=2)
        with pytest.raises(StreamingQueryException, match=r"DataLost: .*failOnDataLoss"):
            run_once(spark, runnel, tmp_path)
