"""Redrives letters to their source topic, exactly once.

A letter is redriven in one transaction with its mark, a record in a compacted topic. A new run first
initializes the transactional id, which aborts an open transaction, and then reads the marks: a letter is
either redriven and marked, or neither.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import TracebackType

from runnel.client.cluster import Cluster
from runnel.client.transactional import TransactionalProducer
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.dead_letters.letter import MARKS, Letter, headers_back, mark_of
from runnel.pipelines.errors import PipelineError, UnknownTopic

LETTERS_PER_TRANSACTION = 500
TRANSACTION_TIMEOUT_MS = 60_000
NO_ORIGIN = "its source topic is unknown"


@dataclass(slots=True)
class Redriven:
    """The result for one dead-letter topic."""

    topic: str
    letters: int = 0
    by_target: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    """The number of letters not redriven, by reason."""

    def count_redriven(self, target: str) -> None:
        """Count a letter redriven to this topic."""
        self.letters += 1
        self.by_target[target] = self.by_target.get(target, 0) + 1

    def count_skipped(self, why: str) -> None:
        """Count a letter that cannot be redriven."""
        self.skipped[why] = self.skipped.get(why, 0) + 1


def redrivable(
    letters: Iterable[Letter], outcome: Redriven, count_of: Callable[[str], int | None]
) -> Iterator[tuple[Letter, str, int | None]]:
    """The letters that can be redriven, each with its topic and partition; `outcome` counts the others.

    `count_of` returns the number of partitions of a topic, or None if it does not exist.
    """
    for letter in letters:
        target = letter.source_topic
        count = None if target is None else count_of(target)
        if target is None or count is None:
            outcome.count_skipped(NO_ORIGIN if target is None else f"topic {target} does not exist")
            continue
        number = letter.source_partition
        # To the original partition, where its key is; by key if the partition does not exist.
        yield letter, target, number if number is not None and number < count else None


class Redriver:
    """Redrives the letters of one dead-letter topic, fencing other runs; a context manager."""

    def __init__(self, broker: BrokerView, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self.topic_id = broker.topic(topic).topic_id
        self._partitions: dict[str, int | None] = {}
        self._producer = broker.run(self._open)

    def __enter__(self) -> "Redriver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.run(lambda _: self._producer.close())

    async def _open(self, cluster: Cluster) -> TransactionalProducer:
        producer = TransactionalProducer(
            cluster, f"runnel-redrive-{self._topic}", timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        # Fence the previous holder and abort its open transaction before marks are read.
        await producer.begin()
        await producer.abort()
        return producer

    def redrive(self, letters: Iterable[Letter], limit: int | None = None) -> Redriven:
        """Redrive letters, a few hundred per transaction, and at most `limit`."""
        outcome = Redriven(self._topic)
        # Skipped letters do not count towards the limit: they are the oldest and would block all others.
        rest = islice(redrivable(letters, outcome, self._count), limit)
        while batch := list(islice(rest, LETTERS_PER_TRANSACTION)):
            self._check_topic()
            self._broker.run(partial(self._send, batch))
            for _, target, _ in batch:
                outcome.count_redriven(target)
        return outcome

    def _check_topic(self) -> None:
        """Check that the topic was not recreated since its letters were read."""
        if self._broker.topic(self._topic).topic_id != self.topic_id:
            raise PipelineError(
                f"topic {self._topic} was deleted and recreated while its letters were read: run this again"
            )

    def _count(self, topic: str) -> int | None:
        if topic not in self._partitions:
            try:
                self._partitions[topic] = len(self._broker.topic(topic).partitions)
            except UnknownTopic:
                self._partitions[topic] = None
        return self._partitions[topic]

    async def _send(self, batch: list[tuple[Letter, str, int | None]], _: Cluster) -> None:
        async with self._producer.transaction():
            for letter, target, partition in batch:
                await self._producer.send(
                    target,
                    letter.value,
                    key=letter.key,
                    headers=headers_back(letter.headers),
                    partition=partition,
                    timestamp_ms=letter.source_timestamp_ms,
                )
                value = json.dumps({"topic": target, "partition": partition, "attempt": letter.attempts + 1})
                mark = mark_of(self.topic_id, letter.partition, letter.offset)
                await self._producer.send(self._topic + MARKS, value.encode(), key=mark.encode())


def ensure_marks(broker: BrokerView, topic: str) -> None:
    """Create the topic of redriven letters."""
    broker.ensure_topic(topic + MARKS, partitions=1, settings={"cleanup.policy": "compact"})
