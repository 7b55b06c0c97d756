"""The chain's input and its audience: two producers, one with transactions, and a reader of the output."""

import random
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tools.crash.chain.book import Book, Journal, Log, original, value_of
from tools.crash.chain.transact import Intent, StartOver, transact, transactional_producer
from tools.crash.ledger import Place
from tools.crash.load import CONNECTION

KEYS = 20
PAUSE_S = 0.1
RECORDS_PER_PAUSE_MAX = 40
ABORT_CHANCE = 0.25


class Feeder(threading.Thread):
    """Writes numbered records for keys of its own, at a bounded pace, until it is told to end."""

    def __init__(self, name: str, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.sent = 0
        self._chance = random.Random(f"{seed}-{name}")
        self._numbers: dict[str, int] = defaultdict(int)
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.is_set():
            self.feed()
            time.sleep(PAUSE_S)
        self.finish()

    def end(self) -> None:
        self._ending.set()
        self.join()

    @abstractmethod
    def feed(self) -> None:
        """Write a few records."""

    def finish(self) -> None:
        """Wait for what is under way."""

    def some(self) -> list[tuple[str, int]]:
        chosen = []
        for _ in range(self._chance.randint(1, RECORDS_PER_PAUSE_MAX)):
            key = f"{self.name}{self._chance.randrange(KEYS)}"
            self._numbers[key] += 1
            chosen.append((key, self._numbers[key]))
        self.sent += len(chosen)
        return chosen


class PlainFeeder(Feeder):
    """An idempotent producer without transactions."""

    def __init__(self, name: str, bootstrap: str, topic: str, seed: int, book: Book) -> None:
        super().__init__(name, bootstrap, topic, seed)
        self.acknowledged: list[tuple[str, int]] = []
        self._book = book
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "log_level": 0,
            **CONNECTION,
        }
        self._producer = Producer({**settings, "error_cb": self._errored})

    def feed(self) -> None:
        for key, number in self.some():
            self._producer.produce(self.topic, value_of(key, number), key, on_delivery=self._delivered)
        self._producer.poll(0)

    def finish(self) -> None:
        if self._producer.flush(60):
            self._book.accuse(f"{self.name}: {len(self._producer)} records were never acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._book.accuse(f"{self.name} could not send: {error}")
            return
        key, number, _ = message.value().decode().split(":")
        self.acknowledged.append((key, int(number)))

    def _errored(self, error: KafkaError) -> None:
        if error.fatal():
            self._book.accuse(f"{self.name} was told to give up: {error}")


class TransactionalFeeder(Feeder):
    """A transactional producer that changes its mind about every fourth transaction."""

    def __init__(self, name: str, bootstrap: str, topic: str, seed: int, journals: Path) -> None:
        super().__init__(name, bootstrap, topic, seed)
        self._journal = Journal(journals / f"{name}.journal")
        self._producer: Producer | None = None
        self._attempts = 0

    def feed(self) -> None:
        self._attempts += 1
        attempt = f"{self.name}.{self._attempts}"
        records = [(self.topic, key.encode(), value_of(key, number, attempt)) for key, number in self.some()]
        intent = Intent(attempt, records, self._chance.random() < ABORT_CHANCE)
        try:
            self._producer = self._producer or transactional_producer(self.bootstrap, f"id-{self.name}")
            transact(self._producer, intent, self._journal)
        except (StartOver, KafkaException):
            self._producer = None


class Watcher(threading.Thread):
    """Follows the committed output of the whole chain while everybody else is killed."""

    def __init__(self, bootstrap: str, places: list[Place], book: Book) -> None:
        super().__init__(name="watcher", daemon=True)
        self.seen: dict[Place, list[tuple[int, bytes]]] = defaultdict(list)
        self.shown = 0
        self._book = book
        self._originals: set[bytes] = set()
        self._ending = threading.Event()
        self._consumer = log_consumer(bootstrap, "read_committed")
        self._consumer.assign([TopicPartition(*place, 0) for place in places])

    def run(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                self._take(message)
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._book.accuse(f"the watcher's position is no longer in the log: {error}")
            return
        place = (message.topic(), message.partition())
        value = message.value()
        self.seen[place].append((message.offset(), value))
        self.shown += 1
        if original(value) in self._originals:
            self._book.accuse(f"doubled: {place} offset {message.offset()} shows {value!r} again")
        self._originals.add(original(value))


def log_consumer(bootstrap: str, isolation: str) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 5,
        "log_level": 0,
        **CONNECTION,
    }
    return Consumer({**settings, "error_cb": lambda _error: None})


def whole_log(bootstrap: str, places: list[Place], isolation: str, timeout_s: float = 60.0) -> Log:
    """Partitions from start to end, as somebody who comes now is shown them."""
    consumer = log_consumer(bootstrap, isolation)
    log: dict[Place, list[tuple[int, bytes]]] = {place: [] for place in places}
    unfinished = set(places)
    deadline = time.monotonic() + timeout_s
    try:
        consumer.assign([TopicPartition(*place, 0) for place in places])
        while unfinished:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sorted(unfinished)} could not be read to their ends in {timeout_s} s")
            for message in consumer.consume(2000, timeout=0.5):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    log[place].append((message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(place)
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    return log
