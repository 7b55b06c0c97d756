"""One transaction with confluent-kafka, journalled at each step, through crashes of the broker."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tools.crash.chain.verification import Journal
from tools.crash.load import CONNECTION

CALL_TIMEOUT_S = 10.0
RETRY_S = 30.0
TRANSACTION_TIMEOUT_MS = 4000


class ProducerUnusable(Exception):
    """The producer cannot be used any more: its owner creates a new one, or ends."""


@dataclass(slots=True)
class Intent:
    """What one transaction is to do."""

    attempt: str
    records: list[tuple[str, bytes, bytes]]
    """Topic, key, value."""
    is_abort: bool
    offsets: list[TopicPartition] = field(default_factory=list)
    group: Any = None


def transactional_producer(bootstrap: str, transactional_id: str, properties: Mapping[str, str]) -> Producer:
    """A producer that has fenced all earlier ones with its transactional id."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        # Not longer than the transaction timeout.
        "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "linger.ms": 1,
        # The partitioner of Java: a key's partition is the same for all clients.
        "partitioner": "murmur2_random",
        "log_level": 0,
        **CONNECTION,
        "socket.timeout.ms": TRANSACTION_TIMEOUT_MS,
        # When its only broker is down, librdkafka 2.16 drops it and rediscovers it, but keeps waiting for the
        # group coordinator at the dropped handle: offsets of a transaction would then never be sent.
        "metadata.recovery.strategy": "none",
        **properties,
    }
    producer = Producer({**settings, "error_cb": lambda _error: None})
    retry(producer.init_transactions, CALL_TIMEOUT_S)
    return producer


def retry(call: Callable[..., None], *arguments: Any) -> None:
    """Call until it succeeds or fails with an error that is not retriable.

    After `RETRY_S` the owner of the producer begins again.
    """
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            return call(*arguments)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            if error.fatal() or time.monotonic() > deadline:
                raise ProducerUnusable(str(error)) from refused
            if not error.retriable():
                raise


def transact(producer: Producer, intent: Intent, journal: Journal) -> bool:
    """Run a transaction; False if it was aborted. Raises ProducerUnusable if its outcome is unknown."""
    journal.write("try", intent.attempt, len(intent.records))
    try:
        retry(producer.begin_transaction)
        for topic, key, value in intent.records:
            producer.produce(topic, value, key)
        if intent.is_abort:
            # Only records that reached the log can be returned by mistake.
            producer.flush(CALL_TIMEOUT_S)
            _abort(producer, intent, journal)
            return False
        if intent.offsets:
            retry(producer.send_offsets_to_transaction, intent.offsets, intent.group, CALL_TIMEOUT_S)
        journal.write("commit", intent.attempt)
        retry(producer.commit_transaction, CALL_TIMEOUT_S)
        journal.write("committed", intent.attempt)
        return True
    except KafkaException as refused:
        error: KafkaError = refused.args[0]
        if error.fatal() or not error.txn_requires_abort():
            raise ProducerUnusable(str(error)) from refused
    _abort(producer, intent, journal)
    return False


def _abort(producer: Producer, intent: Intent, journal: Journal) -> None:
    try:
        retry(producer.abort_transaction, CALL_TIMEOUT_S)
    except KafkaException as refused:
        raise ProducerUnusable(str(refused)) from refused
    journal.write("aborted", intent.attempt)
