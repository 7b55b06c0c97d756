"""A worker of the chain, killed at any moment: it commits output and input offsets in one transaction.

Two faults of librdkafka 2.16 let a worker wait for ever when a coordinator moves, whatever broker it is of:

* An OffsetFetch that is answered with NOT_COORDINATOR is not repeated: the partition is assigned, heartbeats
  are sent, and nothing is fetched (confluentinc/librdkafka#5586). `consume` returns the error, once.
* send_offsets_to_transaction does not return, whatever its timeout, once FindCoordinator was answered with
  COORDINATOR_NOT_AVAILABLE three times (confluentinc/librdkafka#5456).

The process ends then, and is started again.
"""

import argparse
import faulthandler
import random
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tools.crash.chain.transact import (
    CALL_TIMEOUT_S,
    RETRY_S,
    Intent,
    ProducerUnusable,
    transact,
    transactional_producer,
)
from tools.crash.chain.verification import Journal, transformed
from tools.crash.load import CONNECTION
from tools.settings import read_properties

BATCH_MAX = 150
ABORT_CHANCE = 0.15
SESSION_TIMEOUT_MS = 2000
STUCK_S = RETRY_S + CALL_TIMEOUT_S + 5.0
"""A call of librdkafka that has not returned by then is taken to be stuck."""


class Worker:
    """One process of a worker."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._is_ending = False
        self._random = random.Random(f"{options.seed}-{options.name}")
        self._journal = Journal(options.journals / f"{options.name}.journal")
        self._attempts = 0
        properties = read_properties(options.properties)
        self._producer = transactional_producer(options.bootstrap, options.transactional_id, properties)
        self._consumer = Consumer({**consumer_settings(options), **properties})

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        self._consumer.subscribe([self.options.input])
        try:
            while not self._is_ending:
                # Writes the stacks, and ends the process.
                faulthandler.dump_traceback_later(STUCK_S, exit=True)
                messages = self._consumer.consume(self._random.randint(1, BATCH_MAX), timeout=0.1)
                if batch := [message for message in messages if is_record(message)]:
                    self._copy(batch)
        finally:
            self._consumer.close()

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._is_ending = True

    def _copy(self, batch: list[Message]) -> None:
        self._attempts += 1
        attempt = f"{self.options.name}.{self._attempts}"
        records = [
            (self.options.output, message.key(), transformed(message.value(), attempt)) for message in batch
        ]
        firsts: dict[tuple[str, int], int] = {}
        nexts: dict[tuple[str, int], int] = {}
        for message in batch:
            partition = message.topic(), message.partition()
            firsts.setdefault(partition, message.offset())
            nexts[partition] = message.offset() + 1
        intent = Intent(
            attempt,
            records,
            self._random.random() < ABORT_CHANCE,
            [TopicPartition(*partition, offset) for partition, offset in nexts.items()],
            self._consumer.consumer_group_metadata(),
        )
        if not transact(self._producer, intent, self._journal):
            for partition, offset in firsts.items():
                self._seek(TopicPartition(*partition, offset))

    def _seek(self, partition: TopicPartition) -> None:
        try:
            self._consumer.seek(partition)
        except KafkaException as refused:
            # It is unknown whether the partition is still assigned: a new process starts over.
            raise ProducerUnusable(str(refused)) from refused


def is_record(message: Message) -> bool:
    """Whether a message is a record; an error after which none would come is raised, others are ignored."""
    error = message.error()
    if error is not None and (
        error.fatal()
        or error.code() == KafkaError._FATAL
        or error.str().startswith("Failed to fetch committed offsets")
    ):
        raise ProducerUnusable(str(error))
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
    # For a worker that does not end: see WorkerProcess.end.
    faulthandler.register(signal.SIGUSR1)
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "name", "transactional-id", "group", "protocol", "input", "output", "seed"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--journals", type=Path, required=True)
    parser.add_argument("--instance", default="")
    parser.add_argument("--properties", type=Path, help="a file for TLS")
    try:
        Worker(parser.parse_args()).run()
    except (ProducerUnusable, KafkaException) as end:
        print(end, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
