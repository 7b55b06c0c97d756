"""Producers and a reader that keep running through every crash of their broker."""

import random
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tools.crash.ledger import CorruptRecord, Ledger, Partition, Stamp, payload, stamp_of

OUTSTANDING_MAX = 400
RECORD_BYTES_MAX = 3000
RENEWAL_TIMEOUT_S = 90.0
CONNECTION = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 10_000}


class Renewal:
    """Lets the thread of a client replace it by a new one, which reads its certificate again."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._done = threading.Event()

    def request(self) -> None:
        """Wait until the thread has done it. Raises TimeoutError."""
        self._done.clear()
        self._wanted.set()
        if not self._done.wait(RENEWAL_TIMEOUT_S):
            raise TimeoutError(f"a client was not replaced in {RENEWAL_TIMEOUT_S:.0f} s")

    def perform(self, replace: Callable[[], None]) -> None:
        """Called by the thread, again and again."""
        if self._wanted.is_set():
            self._wanted.clear()
            replace()
            self._done.set()


class Sender(threading.Thread):
    """One producer with acks=all that sends until it is stopped."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        partitions: list[Partition],
        ledger: Ledger,
        config: Mapping[str, Any],
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        super().__init__(name=f"sender-{number}", daemon=True)
        self.number = number
        self.record_bytes_max = record_bytes_max
        self.partitions = partitions
        self.ledger = ledger
        self.acknowledged = 0
        self.failed = 0
        self.failure_codes: set[str] = set()
        self._sequence = 0
        self._outstanding = 0
        self._random = random.Random(number)
        self._ending = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, **CONNECTION, **config}
        self._settings = {**settings, "error_cb": self._errored, "log_level": 0}
        self._producer = Producer(self._settings)

    def run(self) -> None:
        try:
            self.send_all()
        except Exception as failure:  # noqa: BLE001 - a violation, whatever it is
            self.ledger.fail(f"sender {self.number} has ended: {failure!r}")

    def send_all(self) -> None:
        """Send until the end, and wait for what is in flight."""
        while not self._ending.is_set():
            if self._outstanding < OUTSTANDING_MAX:
                self._send_some(self._random.randint(1, 20))
            self._producer.poll(0.002)
        self._producer.flush(30)

    def end(self) -> None:
        """Send no new records, and wait for those in flight."""
        self._ending.set()
        self.join()

    def abandon(self) -> None:
        """End without waiting for what is in flight."""
        self._ending.set()
        self._producer.purge()
        self.join()

    def _send_some(self, count: int) -> None:
        for _ in range(count):
            topic, partition = self.next_partition()
            stamp = Stamp(self.number, self._sequence)
            self._sequence += 1
            self._outstanding += 1
            value = payload(stamp, self._random.randint(0, self.record_bytes_max))
            self._producer.produce(topic, value, partition=partition, on_delivery=self._reported)

    def next_partition(self) -> Partition:
        """Where the next record is sent to."""
        return self._random.choice(self.partitions)

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        try:
            self._delivered(error, message)
        except Exception as failure:  # noqa: BLE001 - a violation, whatever it is
            # Poll would raise it, but as something else.
            self.ledger.fail(f"sender {self.number}: {failure!r} in the report {error} of {message}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._outstanding -= 1
        if error is not None:
            self.failed += 1
            self.failure_codes.add(error.name())
            return
        self.acknowledged += 1
        partition = (message.topic(), message.partition())
        self.ledger.acknowledge(partition, message.offset(), stamp_of(message.value()))

    def _errored(self, error: KafkaError) -> None:
        if error.fatal():
            self.ledger.fail(f"sender {self.number} met a fatal error: {error}")


class LogReader(threading.Thread):
    """A consumer that reads all partitions from the start until it is stopped."""

    def __init__(
        self,
        name: str,
        new_consumer: Callable[[], Consumer],
        partitions: list[Partition],
        fail: Callable[[str], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.records_read = 0
        self.renewal = Renewal()
        self._fail = fail
        self._ending = threading.Event()
        self._new_consumer = new_consumer
        self._positions = dict.fromkeys(partitions, 0)
        self._consumer = self._assigned()

    def _assigned(self) -> Consumer:
        """A new consumer at the positions that were reached."""
        consumer = self._new_consumer()
        consumer.assign([TopicPartition(*place, offset) for place, offset in self._positions.items()])
        return consumer

    def _renew(self) -> None:
        self._consumer.close()
        self._consumer = self._assigned()

    def run(self) -> None:
        while not self._ending.is_set():
            self.renewal.perform(self._renew)
            for message in self._consumer.consume(500, timeout=0.1):
                self._receive(message)
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join()

    def _receive(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._fail(f"the reader's position is no longer in the log: {error}")
            return
        self.records_read += 1
        partition = (message.topic(), message.partition())
        self._positions[partition] = message.offset() + 1
        self.verify(partition, message.offset(), message.value())

    @abstractmethod
    def verify(self, partition: Partition, offset: int, value: bytes) -> None:
        """Check a record that was read."""


class Reader(LogReader):
    """Checks that offsets are contiguous, and records what it received."""

    def __init__(
        self,
        bootstrap: str,
        partitions: list[Partition],
        ledger: Ledger,
        config: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__("reader", partial(log_consumer, bootstrap, config), partitions, ledger.fail)
        self.ledger = ledger
        self._next = dict.fromkeys(partitions, 0)

    def verify(self, partition: Partition, offset: int, value: bytes) -> None:
        if offset != self._next[partition]:
            expected = self._next[partition]
            self.ledger.fail(f"{partition}: the reader expected {expected} and received {offset}")
        self._next[partition] = offset + 1
        try:
            self.ledger.record_read(partition, offset, stamp_of(value))
        except CorruptRecord as corrupt:
            self.ledger.fail(f"{partition} offset {offset}: {corrupt}")


def log_consumer(bootstrap: str, config: Mapping[str, Any] = MappingProxyType({})) -> Consumer:
    """A consumer that verifies checksums and never resets its position."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        "fetch.queue.backoff.ms": 5,
        "log_level": 0,
        **CONNECTION,
        **config,
    }
    return Consumer(settings)


def read_log(
    bootstrap: str,
    partition: Partition,
    ledger: Ledger,
    config: Mapping[str, Any] = MappingProxyType({}),
    timeout_s: float = 120,
) -> list[tuple[int, Stamp]]:
    """All records of a partition, from its start to its end."""
    consumer = log_consumer(bootstrap, config)
    records: list[tuple[int, Stamp]] = []
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(*partition), timeout=30)
        consumer.assign([TopicPartition(*partition, start)])
        deadline = time.monotonic() + timeout_s
        while start + len(records) < end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{partition}: {len(records)} of {end - start} records in {timeout_s} s")
            # Not more than there are: it would wait for them until its timeout.
            for message in consumer.consume(min(2000, end - start - len(records)), timeout=1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                try:
                    records.append((message.offset(), stamp_of(message.value())))
                except CorruptRecord as corrupt:
                    ledger.fail(f"{partition} offset {message.offset()}: {corrupt}")
                    records.append((message.offset(), Stamp(-1, message.offset())))
    finally:
        consumer.close()
    return records
