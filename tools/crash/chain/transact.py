"""One transaction with confluent-kafka, journalled at each step, whatever the broker is going through."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tools.crash.chain.book import Journal
from tools.crash.load import CONNECTION

CALL_TIMEOUT_S = 10.0
TRANSACTION_TIMEOUT_MS = 4000


class StartOver(Exception):
    """This producer is of no more use: whoever holds it makes a new one, or ends."""


@dataclass(slots=True)
class Intent:
    """What one transaction shall do."""

    attempt: str
    records: list[tuple[str, bytes, bytes]]
    """Topic, key, value."""
    is_abort: bool
    offsets: list[TopicPartition] = field(default_factory=list)
    group: Any = None


def transactional_producer(bootstrap: str, transactional_id: str) -> Producer:
    """A producer that has fenced all that had this id before it."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        # Not longer than a transaction lives.
        "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "linger.ms": 1,
        # The partitioner of Java: a key's partition is the same for all clients.
        "partitioner": "murmur2_random",
        "log_level": 0,
        **CONNECTION,
        "socket.timeout.ms": TRANSACTION_TIMEOUT_MS,
        # When its only broker is down, librdkafka 2.16 forgets it and learns it anew, but goes on to wait for
        # the group's coordinator under its old name: offsets of a transaction would then never be sent.
        "metadata.recovery.strategy": "none",
    }
    producer = Producer({**settings, "error_cb": lambda _error: None})
    insist(producer.init_transactions, CALL_TIMEOUT_S)
    return producer


def insist(call: Callable[..., None], *arguments: Any) -> None:
    """Call again for as long as that may help."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            if error.fatal():
                raise StartOver(str(error)) from refused
            if not error.retriable():
                raise


def transact(producer: Producer, intent: Intent, journal: Journal) -> bool:
    """Do it; False if it was undone again. StartOver if its fate is out of our hands."""
    journal.note("try", intent.attempt, len(intent.records))
    try:
        insist(producer.begin_transaction)
        for topic, key, value in intent.records:
            producer.produce(topic, value, key)
        if intent.is_abort:
            # Only what has reached the log can leak out of it.
            producer.flush(CALL_TIMEOUT_S)
            _abort(producer, intent, journal)
            return False
        if intent.offsets:
            insist(producer.send_offsets_to_transaction, intent.offsets, intent.group, CALL_TIMEOUT_S)
        journal.note("commit", intent.attempt)
        insist(producer.commit_transaction, CALL_TIMEOUT_S)
        journal.note("committed", intent.attempt)
        return True
    except KafkaException as refused:
        error: KafkaError = refused.args[0]
        if error.fatal() or not error.txn_requires_abort():
            raise StartOver(str(error)) from refused
    _abort(producer, intent, journal)
    return False


def _abort(producer: Producer, intent: Intent, journal: Journal) -> None:
    try:
        insist(producer.abort_transaction, CALL_TIMEOUT_S)
    except KafkaException as refused:
        raise StartOver(str(refused)) from refused
    journal.note("aborted", intent.attempt)
