"""Helpers of the librdkafka tests."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

TIMEOUT_S = 30.0


def send(
    bootstrap: str, topic: str, values: Iterable[bytes], partition: int = -1, **config: Any
) -> list[Message]:
    """Produce, wait for all acknowledgements, and return the delivery reports in order."""
    reports: list[Message] = []

    def delivered(error: Any, message: Message) -> None:
        assert error is None, error
        reports.append(message)

    settings = {key.replace("_", "."): value for key, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    target = {} if partition < 0 else {"partition": partition}
    for value in values:
        producer.produce(topic, value=value, on_delivery=delivered, **target)
    assert producer.flush(TIMEOUT_S) == 0
    return reports


@contextmanager
def consumer(bootstrap: str, group: str, **config: Any) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 200,
        "fetch.wait.max.ms": 100,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    with closing(Consumer(settings)) as opened:
        yield opened


def take(source: Consumer, count: int) -> list[Message]:
    """Poll until `count` messages are received."""
    messages: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"only {len(messages)} of {count} messages came"
        for message in source.consume(count - len(messages), timeout=0.5):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def read_all(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[Message]:
    """The first `count` messages of a partition, without a group."""
    with consumer(bootstrap, "unused") as reader:
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        return take(reader, count)


def poll_until(sources: list[Consumer], condition: Callable[[], bool]) -> None:
    """Poll all consumers until the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        for source in sources:
            source.poll(0.05)
