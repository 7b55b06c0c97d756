"""A worker of the chain, to be killed at any moment: input and output move together in transactions."""

import argparse
import random
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tools.crash.chain.book import Journal, transformed
from tools.crash.chain.transact import Intent, StartOver, transact, transactional_producer
from tools.crash.load import CONNECTION

BATCH_MAX = 150
ABORT_CHANCE = 0.15
SESSION_TIMEOUT_MS = 2000


class Worker:
    """One life of a worker."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._is_ending = False
        self._chance = random.Random(f"{options.seed}-{options.name}")
        self._journal = Journal(options.journals / f"{options.name}.journal")
        self._attempts = 0
        self._producer = transactional_producer(options.bootstrap, options.transactional_id)
        self._consumer = Consumer(consumer_settings(options))

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        self._consumer.subscribe([self.options.input])
        try:
            while not self._is_ending:
                messages = self._consumer.consume(self._chance.randint(1, BATCH_MAX), timeout=0.1)
                if batch := [message for message in messages if is_record(message)]:
                    self._pass_on(batch)
        finally:
            self._consumer.close()

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._is_ending = True

    def _pass_on(self, batch: list[Message]) -> None:
        self._attempts += 1
        attempt = f"{self.options.name}.{self._attempts}"
        records = [
            (self.options.output, message.key(), transformed(message.value(), attempt)) for message in batch
        ]
        firsts: dict[tuple[str, int], int] = {}
        nexts: dict[tuple[str, int], int] = {}
        for message in batch:
            place = message.topic(), message.partition()
            firsts.setdefault(place, message.offset())
            nexts[place] = message.offset() + 1
        intent = Intent(
            attempt,
            records,
            self._chance.random() < ABORT_CHANCE,
            [TopicPartition(*place, offset) for place, offset in nexts.items()],
            self._consumer.consumer_group_metadata(),
        )
        if not transact(self._producer, intent, self._journal):
            for place, offset in firsts.items():
                self._go_back(TopicPartition(*place, offset))

    def _go_back(self, place: TopicPartition) -> None:
        try:
            self._consumer.seek(place)
        except KafkaException as refused:
            # Whether the partition is still ours is unknown: a new life finds out.
            raise StartOver(str(refused)) from refused


def is_record(message: Message) -> bool:
    """Or an event, of which only the fatal ones matter."""
    error = message.error()
    if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
        raise StartOver(str(error))
    return error is None


def consumer_settings(options: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "group.protocol": options.protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        "error_cb": lambda _error: None,
        "log_level": 0,
        **CONNECTION,
    }
    if options.protocol == "classic":
        settings |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 200}
    if options.instance:
        settings["group.instance.id"] = options.instance
    return settings


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "name", "transactional-id", "group", "protocol", "input", "output", "seed"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--journals", type=Path, required=True)
    parser.add_argument("--instance", default="")
    try:
        Worker(parser.parse_args()).run()
    except (StartOver, KafkaException) as end:
        print(end, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
