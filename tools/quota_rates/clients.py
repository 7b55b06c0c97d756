"""librdkafka clients that use all they get, until they are killed, and print how much that was so far.

python -m tools.quota_rates.clients KIND BOOTSTRAP TOPIC SIZE THREADS
"""

import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

REPORT_S = 0.2


class Used:
    """A count that threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = 0

    def add(self, count: int) -> None:
        with self._lock:
            self.total += count


def produce(config: dict[str, Any], topic: str, size: int, used: Used, batch_bytes: int) -> None:
    def stored(error: object, _: object) -> None:
        if error is None:
            used.add(size)

    limits = {"batch.size": batch_bytes, "linger.ms": 0, "queue.buffering.max.messages": 100, "acks": 1}
    producer, value = Producer({**config, **limits}), bytes(size)
    while True:
        try:
            producer.produce(topic, value, partition=0, on_delivery=stored)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)


def fetch(config: dict[str, Any], topic: str, size: int, used: Used) -> None:
    limits = {"max.partition.fetch.bytes": size, "queued.max.messages.kbytes": 1000}
    consumer = Consumer({**config, **limits, "group.id": "unused", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while True:
        for message in consumer.consume(10, 0.1):
            used.add(len(message.value() or b""))
            if (message.offset() or 0) + 1 >= end:
                consumer.seek(TopicPartition(topic, 0, 0))


def mutate(config: dict[str, Any], partitions: int, used: Used) -> None:
    admin = AdminClient(config)
    while True:
        name = f"librdkafka-{uuid.uuid4()}"
        try:
            admin.create_topics([NewTopic(name, partitions)])[name].result(60)
        except KafkaException:
            # Refused; the broker reads the next request after the throttle time.
            continue
        used.add(partitions)


class Opened(logging.Handler):
    """Counts the connections that the broker has read from: a client does not notice that one is held."""

    def __init__(self, used: Used) -> None:
        super().__init__()
        self._used = used

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().endswith(" -> UP"):
            self._used.add(1)


def connect(config: dict[str, Any], used: Used) -> None:
    # By default it waits for up to 10 seconds before it connects again.
    settings = {**config, "reconnect.backoff.max.ms": 100, "enable.metrics.push": False, "debug": "broker"}
    logger = logging.Logger("librdkafka")
    logger.addHandler(Opened(used))
    while True:
        client = Producer({**settings, "logger": logger})
        with suppress(KafkaException):
            # So that it connects again at once. That may take two connections: the first is closed by the
            # client when it knows the id of the broker.
            client.list_topics(timeout=60)
        # Logs are delivered here.
        client.poll(0)


def main() -> None:
    kind, bootstrap, topic, size, threads = sys.argv[1:]
    used, count = Used(), int(size)
    config = {"bootstrap.servers": bootstrap, "client.id": f"{kind}-librdkafka"}
    kinds: dict[str, Callable[[], None]] = {
        "produce": lambda: produce(config, topic, count, used, count * 2),
        "time": lambda: produce(config, topic, count, used, 1),
        "fetch": lambda: fetch(config, topic, count, used),
        "mutate": lambda: mutate(config, count, used),
        "connect": lambda: connect(config, used),
    }
    for _ in range(int(threads)):
        threading.Thread(target=kinds[kind], daemon=True).start()
    while True:
        time.sleep(REPORT_S)
        print(time.monotonic(), used.total, flush=True)


if __name__ == "__main__":
    main()
