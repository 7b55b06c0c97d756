"""Idempotency keys of Kafka's clients, with the settings that docs/DELIVERY.md asks for."""

import os

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.compat.conftest import Named

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("RUNNEL_COMPAT_BOOTSTRAP")), reason="a feature of Runnel, not of the protocol"
)

BY_THE_RULES = {"enable.idempotence": False, "acks": "all", "batch.num.messages": 1}


def send(bootstrap: str, topic: str, *records: tuple[str, str], **settings: object) -> list[int | str]:
    """The offset or the error of each record, given by its key and its value."""
    answers: list[int | str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        answers.append(message.offset() if error is None else error.name())

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    for key, value in records:
        headers = {"runnel-idempotency-key": key, "traceparent": os.urandom(4).hex()}
        producer.produce(topic, value, headers=headers, on_delivery=delivered)
    assert producer.flush(30) == 0
    return answers


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_records_of_two_producers(bootstrap: str, make_topic: Named, compression: str) -> None:
    topic = make_topic(dedup_window_ms="600000")
    settings = {**BY_THE_RULES, "compression.type": compression}
    records = [(f"k{number}", f"value {number}") for number in range(20)]
    assert send(bootstrap, topic, *records, **settings) == list(range(20))
    assert send(bootstrap, topic, *records, ("k20", "x"), ("k0", "y"), **settings) == [
        *range(21),
        "DUPLICATE_RESOURCE",
    ]


def test_producers_that_do_not_follow_the_rules(bootstrap: str, make_topic: Named) -> None:
    topic = make_topic(dedup_window_ms="600000")
    batch = {**BY_THE_RULES, "batch.num.messages": 10}
    assert send(bootstrap, topic, ("a", "1"), ("b", "1"), **batch) == ["INVALID_RECORD"] * 2
    idempotent = {**BY_THE_RULES, "enable.idempotence": True}
    assert send(bootstrap, topic, ("a", "1"), **idempotent) == ["INVALID_RECORD"]
    assert send(bootstrap, topic, ("a", "1"), **BY_THE_RULES) == [0]
