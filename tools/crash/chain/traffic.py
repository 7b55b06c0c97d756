"""Two producers of the chain's input, one with transactions, and a reader of its output."""

import random
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tools.crash.chain.transact import Intent, ProducerUnusable, transact, transactional_producer
from tools.crash.chain.verification import Journal, Log, Verifier, original, value_of
from tools.crash.ledger import Partition
from tools.crash.load import CONNECTION, LogReader, Renewal, log_consumer

KEYS = 20
PAUSE_S = 0.1
RECORDS_PER_PAUSE_MAX = 40
ABORT_CHANCE = 0.25
INPUT_IDS = "id-"
"""The beginning of the transactional ids of producers of the input."""
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
"""Of clients in clear text."""


class InputProducer(threading.Thread):
    """Writes numbered records for its own keys, at a bounded rate, until it is stopped."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, seed: int, properties: Mapping[str, str]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.properties = properties
        self.renewal = Renewal()
        self.topic = topic
        self.sent = 0
        self._random = random.Random(f"{seed}-{name}")
        self._numbers: dict[str, int] = defaultdict(int)
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.is_set():
            self.renewal.perform(self.renew)
            self.produce_some()
            time.sleep(PAUSE_S)
        self.finish()

    def end(self) -> None:
        self._ending.set()
        self.join()

    @abstractmethod
    def produce_some(self) -> None:
        """Write a few records."""

    @abstractmethod
    def renew(self) -> None:
        """Replace the producer by a new one."""

    def finish(self) -> None:
        """Wait for what is in flight."""

    def next_records(self) -> list[tuple[str, int]]:
        chosen = []
        for _ in range(self._random.randint(1, RECORDS_PER_PAUSE_MAX)):
            key = f"{self.name}{self._random.randrange(KEYS)}"
            self._numbers[key] += 1
            chosen.append((key, self._numbers[key]))
        self.sent += len(chosen)
        return chosen


class IdempotentInput(InputProducer):
    """An idempotent producer without transactions."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        seed: int,
        verifier: Verifier,
        properties: Mapping[str, str] = NO_PROPERTIES,
    ) -> None:
        super().__init__(name, bootstrap, topic, seed, properties)
        self.acknowledged: list[tuple[str, int]] = []
        self._verifier = verifier
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "log_level": 0,
            **CONNECTION,
            **self.properties,
        }
        return Producer({**settings, "error_cb": self._errored})

    def renew(self) -> None:
        self.finish()
        self._producer = self._new_producer()

    def produce_some(self) -> None:
        for key, number in self.next_records():
            try:
                self._producer.produce(self.topic, value_of(key, number), key, on_delivery=self._delivered)
            except KafkaException as refused:
                self._verifier.fail(f"{self.name} could not send: {refused}")
        self._producer.poll(0)

    def finish(self) -> None:
        if self._producer.flush(60):
            self._verifier.fail(f"{self.name}: {len(self._producer)} records were never acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._verifier.fail(f"{self.name} could not send: {error}")
            return
        key, number, _ = message.value().decode().split(":")
        self.acknowledged.append((key, int(number)))

    def _errored(self, error: KafkaError) -> None:
        if error.fatal():
            self._verifier.fail(f"{self.name}: fatal error: {error}")


class TransactionalInput(InputProducer):
    """A transactional producer that aborts every fourth transaction."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        seed: int,
        journals: Path,
        properties: Mapping[str, str] = NO_PROPERTIES,
    ) -> None:
        super().__init__(name, bootstrap, topic, seed, properties)
        self._journal = Journal(journals / f"{name}.journal")
        self._producer: Producer | None = None
        self._attempts = 0

    def produce_some(self) -> None:
        self._attempts += 1
        attempt = f"{self.name}.{self._attempts}"
        records = [
            (self.topic, key.encode(), value_of(key, number, attempt)) for key, number in self.next_records()
        ]
        intent = Intent(attempt, records, self._random.random() < ABORT_CHANCE)
        try:
            self._producer = self._producer or transactional_producer(
                self.bootstrap, f"{INPUT_IDS}{self.name}", self.properties
            )
            transact(self._producer, intent, self._journal)
        except (ProducerUnusable, KafkaException):
            self._producer = None

    def renew(self) -> None:
        self._producer = None


class OutputReader(LogReader):
    """Reads the committed output of the chain while all other processes are killed."""

    def __init__(
        self,
        bootstrap: str,
        partitions: list[Partition],
        verifier: Verifier,
        properties: Mapping[str, str] = NO_PROPERTIES,
    ) -> None:
        new_consumer = partial(isolated_consumer, bootstrap, "read_committed", properties)
        super().__init__("output_reader", new_consumer, partitions, verifier.fail)
        self.seen: dict[Partition, list[tuple[int, bytes]]] = defaultdict(list)
        self._originals: set[bytes] = set()

    def verify(self, partition: Partition, offset: int, value: bytes) -> None:
        self.seen[partition].append((offset, value))
        if original(value) in self._originals:
            self._fail(f"duplicate: {partition} offset {offset} holds {value!r} again")
        self._originals.add(original(value))


def isolated_consumer(bootstrap: str, isolation: str, properties: Mapping[str, str]) -> Consumer:
    """A consumer that also reports the ends of partitions."""
    config = {"enable.partition.eof": True, "isolation.level": isolation, "error_cb": lambda _error: None}
    return log_consumer(bootstrap, {**config, **properties})


def read_partitions(
    bootstrap: str,
    partitions: list[Partition],
    isolation: str,
    properties: Mapping[str, str] = NO_PROPERTIES,
    timeout_s: float = 60.0,
) -> Log:
    """All records of the partitions, as a new reader receives them."""
    consumer = isolated_consumer(bootstrap, isolation, properties)
    log: dict[Partition, list[tuple[int, bytes]]] = {partition: [] for partition in partitions}
    unfinished = set(partitions)
    deadline = time.monotonic() + timeout_s
    try:
        consumer.assign([TopicPartition(*partition, 0) for partition in partitions])
        while unfinished:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sorted(unfinished)} could not be read to their ends in {timeout_s} s")
            for message in consumer.consume(2000, timeout=0.1):
                partition = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    log[partition].append((message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition)
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    return log
