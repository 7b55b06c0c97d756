"""The same source and sink with Apache Kafka as the broker: they speak Kafka's protocol, not ours."""

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from runnel.client import SyncClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 2_000

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def topic(apache_kafka: str) -> str:
    name = f"t-{uuid4().hex[:8]}"
    with SyncClient(apache_kafka) as client:
        client.create_topic(name, partitions=3)
    return name


def rows(spark: "SparkSession") -> "DataFrame":
    """Keys, values, tombstones and headers."""
    return spark.range(0, RECORDS, 1, 2).selectExpr(
        "cast(id AS string) AS key",
        "if(id % 100 = 7, null, concat('value ', id)) AS value",
        "array(struct('n' AS key, cast(cast(id AS string) AS binary) AS value)) AS headers",
    )


def read(spark: "SparkSession", apache_kafka: str, topic: str) -> "DataFrame":
    return (
        spark.read.format("runnel")
        .option("kafka.bootstrap.servers", apache_kafka)
        .option("subscribe", topic)
        .load()
    )


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_is_written_is_read(spark: "SparkSession", apache_kafka: str, topic: str, delivery: str) -> None:
    writer = rows(spark).write.format("runnel").mode("append").option("kafka.bootstrap.servers", apache_kafka)
    writer.option("topic", topic).option("delivery", delivery).save()
    found = read(spark, apache_kafka, topic).selectExpr(
        "cast(key AS string)", "cast(value AS string)", "cast(headers[0].value AS string)"
    )
    expected = {
        (str(number), None if number % 100 == 7 else f"value {number}", str(number))
        for number in range(RECORDS)
    }
    reported = [tuple(row) for row in found.collect()]
    assert len(reported) == RECORDS
    assert set(reported) == expected


def test_a_stream_that_repeats_its_last_batch_writes_it_once(
    spark: "SparkSession", apache_kafka: str, topic: str, tmp_path: Path
) -> None:
    rows(spark).write.format("runnel").mode("append").option("kafka.bootstrap.servers", apache_kafka).option(
        "topic", topic
    ).save()
    target = f"{topic}-copy"
    with SyncClient(apache_kafka) as client:
        client.create_topic(target, partitions=3)
    checkpoint = tmp_path / "checkpoint"

    def copy() -> None:
        query = (
            spark.readStream.format("runnel")
            .option("kafka.bootstrap.servers", apache_kafka)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", RECORDS // 3)
            .load()
            .select("key", "value", "headers")
            .writeStream.format("runnel")
            .option("kafka.bootstrap.servers", apache_kafka)
            .option("topic", target)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)

    copy()
    # As if Spark had died right before it could note down that its last batch is done.
    commits = checkpoint / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    copy()
    keys = [row["key"] for row in read(spark, apache_kafka, target).select("key").collect()]
    assert sorted(map(int, keys)) == list(range(RECORDS))
