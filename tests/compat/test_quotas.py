"""Client quotas with third-party clients: they are throttled, are informed of it, and exceed no rate.

That they reach their rate is shown with a clock of its own in tests/broker/test_client_quotas.py: on a busy
machine they may be slower.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from runnel.client import SyncClient
from runnel.client.quotas import Quotas
from tools.broker_process import BrokerProcess

RATE = 300_000
"""Bytes per second that each client may produce or fetch."""
MEASURED_SECONDS = 5.0
BURST_SECONDS = 2.0
"""What may come at once: a window, and the part of the next one that has passed."""
VALUE = bytes(5_000)

SETTINGS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
"""Short bursts for a short test."""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker on which every client id has a rate."""
    folder: Path = tmp_path_factory.mktemp("quotas") / "data"
    with BrokerProcess(folder, SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)]).values():
            future.result(20)
        with SyncClient(broker.bootstrap) as client:
            rates = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
            client.run(lambda cluster: Quotas(cluster).alter({"client-id": None}, rates))
            unlimited = {"producer_byte_rate": 10**9}
            client.run(lambda cluster: Quotas(cluster).alter({"client-id": "filler"}, unlimited))
        yield broker.bootstrap


def measured(use: Callable[[], int]) -> float:
    """Bytes per second of what is used, without a burst."""
    begun, used = time.monotonic(), 0
    while (elapsed := time.monotonic() - begun) < MEASURED_SECONDS:
        used += use()
    return used / (elapsed + BURST_SECONDS)


def produce_with_librdkafka(bootstrap: str) -> float:
    delays_ms: list[int] = []
    delivered = 0
    config = {
        "bootstrap.servers": bootstrap,
        "client.id": "librdkafka",
        "batch.size": 20_000,
        "queue.buffering.max.messages": 100,
    }
    producer = Producer({**config, "throttle_cb": lambda event: delays_ms.append(event.throttle_time)})

    def acknowledged(error: object, message: object) -> None:
        nonlocal delivered
        assert error is None
        delivered += len(VALUE)

    def use() -> int:
        before = delivered
        try:
            producer.produce("a", VALUE, on_delivery=acknowledged)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
        return delivered - before

    rate = measured(use)
    producer.flush(30)
    assert max(delays_ms) > 0, "no throttle time was reported to the client"
    return rate


def produce_with_kafka_python(bootstrap: str) -> float:
    settings = {"client_id": "kafka-python", "batch_size": 20_000}
    with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as producer:

        def use() -> int:
            futures = [producer.send("b", VALUE, partition=0) for _ in range(12)]
            producer.flush(60)
            return sum(len(VALUE) for future in futures if future.succeeded())

        return measured(use)


def fetch_with_librdkafka(bootstrap: str) -> float:
    config = {
        "bootstrap.servers": bootstrap,
        "client.id": "librdkafka",
        "group.id": "unused",
        "max.partition.fetch.bytes": 20_000,
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    consumer.assign([Position("a", 0, 0)])

    def use() -> int:
        return sum(len(message.value() or b"") for message in consumer.consume(20, 0.05))

    try:
        return measured(use)
    finally:
        consumer.close()


def fetch_with_kafka_python(bootstrap: str) -> float:
    settings = {"client_id": "kafka-python", "max_partition_fetch_bytes": 20_000, "group_id": None}
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, **settings)) as consumer:
        partition = TopicPartition("b", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)

        def use() -> int:
            batches = consumer.poll(timeout_ms=50, max_records=20)
            return sum(len(record.value) for batch in batches.values() for record in batch)

        return measured(use)


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "filler", "batch.size": 20_000})
    for _ in range(count):
        producer.produce(topic, VALUE)
    assert producer.flush(60) == 0


def test_producers_do_not_exceed_their_rate(limited: str, caplog: pytest.LogCaptureFixture) -> None:
    with ThreadPoolExecutor(2) as threads:
        rates = list(
            threads.map(lambda run: run(limited), (produce_with_librdkafka, produce_with_kafka_python))
        )
    assert max(rates) <= RATE
    assert "ProduceResponse throttled by broker" in caplog.text, "kafka-python"


def test_consumers_do_not_exceed_their_rate(limited: str, caplog: pytest.LogCaptureFixture) -> None:
    count = int(RATE * (MEASURED_SECONDS + 4)) // len(VALUE)
    for topic in ("a", "b"):
        fill(limited, topic, count)
    with ThreadPoolExecutor(2) as threads:
        rates = list(threads.map(lambda run: run(limited), (fetch_with_librdkafka, fetch_with_kafka_python)))
    assert min(rates) > 0 and max(rates) <= RATE
    assert "FetchResponse throttled by broker" in caplog.text, "kafka-python"
