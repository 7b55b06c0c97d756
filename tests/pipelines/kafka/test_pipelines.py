"""The built-in jobs with Apache Kafka as the broker."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from runnel.client import SyncClient
from runnel.model.ids import TopicPartition
from runnel.pipelines.archive.job import ArchiveOptions
from runnel.pipelines.archive.job import run as archive
from runnel.pipelines.audit.archive import Archive
from runnel.pipelines.audit.expectations import ExpectedCount
from runnel.pipelines.audit.findings import Kind
from runnel.pipelines.audit.job import AuditOptions
from runnel.pipelines.audit.job import run as audit
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.dead_letters.job import DeadLetterOptions
from runnel.pipelines.dead_letters.job import run as work_on_dead_letters
from runnel.pipelines.insights.job import InsightsOptions
from runnel.pipelines.insights.job import run as gain_insights
from runnel.pipelines.progress import Progress
from runnel.pipelines.restore.job import RestoreOptions
from runnel.pipelines.restore.job import run as restore

RECORDS = 60
STEP_MS = 1000

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def client(apache_kafka: str) -> Iterator[SyncClient]:
    with SyncClient(apache_kafka) as client:
        yield client


@pytest.fixture
def began_ms() -> int:
    return round(time.time() * 1000) - RECORDS * STEP_MS


@pytest.fixture
def orders(client: SyncClient, began_ms: int) -> str:
    """A topic of two partitions with records a second apart, in turn."""
    topic = f"orders-{uuid4().hex[:8]}"
    client.create_topic(topic, partitions=2)
    for number in range(RECORDS):
        client.send(
            topic,
            b"v%d" % number,
            key=b"k%d" % number,
            partition=number % 2,
            timestamp_ms=began_ms + number * STEP_MS,
        )
    return topic


def test_a_topic_is_archived_audited_and_restored_to_a_moment(
    spark, apache_kafka, client, orders, began_ms, tmp_path
):
    with BrokerView(apache_kafka) as broker:
        broker.commit_group_offsets("readers", {TopicPartition(orders, 0): 5, TopicPartition(orders, 1): 30})
    warehouse, checkpoint = str(tmp_path / "warehouse"), str(tmp_path / "checkpoint")
    wanted = ArchiveOptions(
        bootstrap=apache_kafka, warehouse=warehouse, checkpoint=checkpoint, topics=(orders,)
    )
    archived = archive(spark, wanted, Progress())
    assert [(topic.topic, topic.rows) for topic in archived.topics] == [(orders, RECORDS)]

    def audit_of(count: int):
        options = AuditOptions(
            bootstrap=apache_kafka,
            topics=(orders,),
            archive=Archive(warehouse),
            expected=(ExpectedCount(orders, None, count),),
        )
        return audit(spark, options, Progress())

    assert audit_of(RECORDS).is_sound
    assert [finding.kind for finding in audit_of(RECORDS + 1).faults] == [Kind.COUNT]

    target = f"{orders}-again"
    options = RestoreOptions(
        bootstrap=apache_kafka,
        topic=orders,
        target=target,
        warehouse=warehouse,
        until_ms=began_ms + 39 * STEP_MS,
        groups=("readers",),
    )
    assert restore(spark, options, Progress()).records == 40
    messages = client.read(target, committed_only=True)
    assert {(each.partition, each.value) for each in messages} == {
        (number % 2, b"v%d" % number) for number in range(40)
    }
    with BrokerView(apache_kafka) as broker:
        committed = broker.group_offsets("readers")
    assert committed[TopicPartition(target, 0)] == 5
    # It had read all there was, so that nothing is left for it to read now.
    places = [each.offset for each in messages if each.partition == 1]
    assert committed[TopicPartition(target, 1)] > max(places)


def test_insights_match_the_contents(spark, apache_kafka, orders, began_ms, tmp_path):
    with BrokerView(apache_kafka) as broker:
        broker.commit_group_offsets("billing", {TopicPartition(orders, 0): 12})
    options = InsightsOptions(bootstrap=apache_kafka, topics=(orders,), since_ms=began_ms, report=tmp_path)
    outcome = gain_insights(spark, options, Progress())
    assert outcome.traffic[orders].records == RECORDS
    assert {number: found.records for number, found in outcome.traffic[orders].partitions.items()} == {
        0: RECORDS // 2,
        1: RECORDS // 2,
    }
    lags = [(each.partition, each.lag) for each in outcome.lags if each.group == "billing"]
    assert lags == [(0, RECORDS // 2 - 12)]
    assert orders in (tmp_path / "index.html").read_text()


def test_dead_letters_are_sent_back_once(spark, apache_kafka, client, orders):
    dead = f"{orders}.dead-letters"
    client.create_topic(dead, partitions=1)
    reported = {"reason": "not JSON", "topic": orders, "partition": "1", "offset": "7", "timestamp": "1000"}
    headers = [(f"runnel.dead-letter.{name}", text.encode()) for name, text in reported.items()]
    client.send(dead, b"bad", key=b"k", headers=headers, partition=0)
    options = DeadLetterOptions(bootstrap=apache_kafka, topics=(dead,), redrive=True)
    assert work_on_dead_letters(spark, options, Progress()).redriven[0].by_target == {orders: 1}
    # A second time there is nothing left to send.
    outcome = work_on_dead_letters(spark, options, Progress())
    assert sum(each.by_target.get(orders, 0) for each in outcome.redriven) == 0
    back = [each for each in client.read(orders, committed_only=True) if each.value == b"bad"]
    assert [(each.partition, each.key, each.timestamp_ms) for each in back] == [(1, b"k", 1000)]
