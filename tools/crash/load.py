"""Producers and a reader that live through every crash of their broker."""

import random
import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tools.crash.ledger import Changed, Ledger, Place, Stamp, payload, stamp_of

OUTSTANDING_MAX = 400
RECORD_BYTES_MAX = 3000
CONNECTION = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 10_000}


class Sender(threading.Thread):
    """One producer with acks=all that sends for as long as it is let."""

    def __init__(
        self, number: int, bootstrap: str, places: list[Place], ledger: Ledger, config: Mapping[str, Any]
    ) -> None:
        super().__init__(name=f"sender-{number}", daemon=True)
        self.number = number
        self.places = places
        self.ledger = ledger
        self.acknowledged = 0
        self.failed = 0
        self.failure_codes: set[str] = set()
        self._sequence = 0
        self._outstanding = 0
        self._random = random.Random(number)
        self._ending = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, **CONNECTION, **config}
        self._producer = Producer({**settings, "error_cb": self._errored, "log_level": 0})

    def run(self) -> None:
        while not self._ending.is_set():
            if self._outstanding < OUTSTANDING_MAX:
                self._send_some()
            self._producer.poll(0.002)
        self._producer.flush(30)

    def end(self) -> None:
        """No new records; those under way are waited for."""
        self._ending.set()
        self.join()

    def _send_some(self) -> None:
        for _ in range(self._random.randint(1, 20)):
            topic, partition = self._random.choice(self.places)
            stamp = Stamp(self.number, self._sequence)
            self._sequence += 1
            self._outstanding += 1
            value = payload(stamp, self._random.randint(0, RECORD_BYTES_MAX))
            self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._outstanding -= 1
        if error is not None:
            self.failed += 1
            self.failure_codes.add(error.name())
            return
        self.acknowledged += 1
        place = (message.topic(), message.partition())
        self.ledger.acknowledge(place, message.offset(), stamp_of(message.value()))

    def _errored(self, error: KafkaError) -> None:
        if error.fatal():
            self.ledger.accuse(f"sender {self.number} was told to give up: {error}")


class Reader(threading.Thread):
    """A consumer that reads all partitions from the start, and remembers what it was shown."""

    def __init__(self, bootstrap: str, places: list[Place], ledger: Ledger) -> None:
        super().__init__(name="reader", daemon=True)
        self.ledger = ledger
        self.shown = 0
        self._next = dict.fromkeys(places, 0)
        self._ending = threading.Event()
        self._consumer = reading_consumer(bootstrap)
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
                self.ledger.accuse(f"the reader's position is no longer in the log: {error}")
            return
        place = (message.topic(), message.partition())
        if message.offset() != self._next[place]:
            expected = self._next[place]
            self.ledger.accuse(f"{place}: the reader stood at {expected} and was given {message.offset()}")
        self._next[place] = message.offset() + 1
        self.shown += 1
        try:
            self.ledger.show(place, message.offset(), stamp_of(message.value()))
        except Changed as changed:
            self.ledger.accuse(f"{place} offset {message.offset()}: {changed}")


def reading_consumer(bootstrap: str) -> Consumer:
    """A consumer that checks checksums and never jumps."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 5,
        "log_level": 0,
        **CONNECTION,
    }
    return Consumer(settings)


def read_log(bootstrap: str, place: Place, ledger: Ledger, timeout_s: float = 120) -> list[tuple[int, Stamp]]:
    """A partition from its start to its end, as it stands now."""
    consumer = reading_consumer(bootstrap)
    records: list[tuple[int, Stamp]] = []
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(*place), timeout=30)
        consumer.assign([TopicPartition(*place, start)])
        deadline = time.monotonic() + timeout_s
        while start + len(records) < end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{place}: {len(records)} of {end - start} records in {timeout_s} s")
            for message in consumer.consume(2000, timeout=1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                try:
                    records.append((message.offset(), stamp_of(message.value())))
                except Changed as changed:
                    ledger.accuse(f"{place} offset {message.offset()}: {changed}")
                    records.append((message.offset(), Stamp(-1, message.offset())))
    finally:
        consumer.close()
    return records
