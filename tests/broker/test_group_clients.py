"""Third-party consumers in groups: crashes of the broker, restarts, and Kafka's tools on our records."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer

from tools.broker_process import BrokerProcess
from tools.kafka.commands import tool

TIMEOUT_S = 40
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "5",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as process:
        yield process


def confluent(broker: BrokerProcess, **more: Any) -> Consumer:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "reconnect.backoff.max.ms": 100,
            **settings,
        }
    )


def produce(broker: BrokerProcess, values: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for value in values:
        producer.produce("t", str(value).encode())
    assert producer.flush(TIMEOUT_S) == 0


class Worker(threading.Thread):
    """A consumer that commits everything it reads, until it is stopped."""

    def __init__(self, broker: BrokerProcess, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.consumer = confluent(broker, **settings)
        self.seen: list[int] = []
        self.acknowledged: dict[int, int] = {}
        self.is_stopped = threading.Event()

    def run(self) -> None:
        self.consumer.subscribe(["t"])
        while not self.is_stopped.is_set():
            message = self.consumer.poll(0.1)
            if message is None or message.error():
                continue
            self.seen.append(int(message.value()))
            try:
                for done in self.consumer.commit(message, asynchronous=False):
                    if done.error is None:
                        self.acknowledged[done.partition] = done.offset
            except KafkaException:
                # The broker is down or the group rebalanced: the next owner consumes the records again.
                continue
        self.consumer.close()


def wait_for(workers: list[Worker], values: range) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not set(values) <= {value for worker in workers for value in worker.seen}:
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.05)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_group_survives_a_crash_of_the_broker(broker: BrokerProcess, strategy: str) -> None:
    produce(broker, range(200))
    workers = [Worker(broker, partition_assignment_strategy=strategy) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        wait_for(workers, range(200))
        for round_ in range(1, 4):
            broker.kill()
            broker.start()
            produce(broker, range(200 * round_, 200 * (round_ + 1)))
            wait_for(workers, range(200 * (round_ + 1)))
    finally:
        for worker in workers:
            worker.is_stopped.set()
        for worker in workers:
            worker.join(TIMEOUT_S)
    acknowledged: dict[int, int] = {}
    for worker in workers:
        for partition, offset in worker.acknowledged.items():
            acknowledged[partition] = max(offset, acknowledged.get(partition, 0))
    with closing(confluent(broker)) as reader:
        committed = reader.committed([TopicPartition("t", index) for index in range(4)], timeout=TIMEOUT_S)
    # A commit without acknowledgement may have been stored before the crash.
    for mark in committed:
        assert mark.offset >= acknowledged.get(mark.partition, 0), f"a commit in {mark.partition} was lost"


def test_aiokafka_and_confluent_in_one_group(broker: BrokerProcess) -> None:
    produce(broker, range(100))

    async def consume() -> None:
        settings = dict(
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
        )
        async with AIOKafkaConsumer("t", **settings) as first:
            assert len(first.assignment()) == 4
            async with AIOKafkaConsumer("t", **settings) as second:
                async with asyncio.timeout(TIMEOUT_S):
                    while len(first.assignment()) != 2 or len(second.assignment()) != 2:
                        await asyncio.gather(first.getmany(timeout_ms=50), second.getmany(timeout_ms=50))
                assert first.assignment().isdisjoint(second.assignment())
            async with asyncio.timeout(TIMEOUT_S):
                while len(first.assignment()) != 4:
                    await first.getmany(timeout_ms=50)

    asyncio.run(consume())


def test_static_member_restarts_without_rebalance(broker: BrokerProcess) -> None:
    def started() -> KafkaConsumer:
        produce(broker, range(20))
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            group_instance_id="one",
            auto_offset_reset="earliest",
            session_timeout_ms=30_000,
            heartbeat_interval_ms=200,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while not consumer.assignment():
            assert time.monotonic() < deadline
            # Poll until the first record: a short poll may end during the rejoin after a metadata update,
            # and kafka-python 3.0.12 then drops that join.
            consumer.poll(timeout_ms=10_000)
        return consumer

    def generation(consumer: KafkaConsumer) -> int:
        number: int = consumer._coordinator._generation.generation_id
        return number

    first = started()
    before = generation(first)
    first.close(autocommit=True)
    second = started()
    assert len(second.assignment()) == 4
    assert generation(second) == before
    second.close()


@pytest.mark.long
@pytest.mark.java
@pytest.mark.usefixtures("kafka_jars")
def test_kafka_reads_our_records(broker: BrokerProcess) -> None:
    produce(broker, range(20))
    worker = Worker(broker, group_instance_id="one")
    worker.start()
    try:
        wait_for([worker], range(20))
    finally:
        worker.is_stopped.set()
        worker.join(TIMEOUT_S)

    def read(formatter: str, expected: list[str]) -> None:
        command = tool("kafka-console-consumer", "--bootstrap-server", broker.bootstrap)
        command += ["--topic", "__consumer_offsets", "--from-beginning"]
        command += ["--formatter", f"org.apache.kafka.tools.consumer.{formatter}"]
        # The tool ends after a timeout, which on a busy machine may precede the first record.
        for silence_ms in (3000, 30_000):
            said = [*command, "--timeout-ms", str(silence_ms)]
            printed = subprocess.run(said, capture_output=True, text=True, timeout=200, check=False).stdout
            missing = [text for text in expected if text not in printed]
            if not missing:
                return
        raise AssertionError(f"{missing} not in {printed}")

    offsets = [f'"offset":{offset}' for offset in worker.acknowledged.values()]
    partitions = [f'"group":"g","topic":"t","partition":{partition}' for partition in worker.acknowledged]
    read("OffsetsMessageFormatter", partitions + offsets)
    groups = ['"group":"g"', '"groupInstanceId":"one"', '"protocolType":"consumer"']
    read("GroupMetadataMessageFormatter", groups)
