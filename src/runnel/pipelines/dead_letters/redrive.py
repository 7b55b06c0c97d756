"""Sending letters back to where they came from, each once.

A letter goes back in one transaction with its mark, a record in a compacted topic beside the dead letters.
Who starts over takes over the transactional id first, which settles what was open, and then reads the marks:
a letter is either back and marked, or neither.
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
from runnel.pipelines.dead_letters.letter import Letter, headers_back, mark_of
from runnel.pipelines.dead_letters.reading import MARKS
from runnel.pipelines.errors import PipelineError, UnknownTopic

LETTERS_PER_TRANSACTION = 500
TRANSACTION_TIMEOUT_MS = 60_000
NO_ORIGIN = "it does not say where it came from"


@dataclass(slots=True)
class Redriven:
    """What became of the letters of one dead-letter topic."""

    topic: str
    letters: int = 0
    by_target: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    """How many could not go back, by why."""

    def went(self, target: str) -> None:
        """A letter goes back to this topic."""
        self.letters += 1
        self.by_target[target] = self.by_target.get(target, 0) + 1

    def stayed(self, why: str) -> None:
        """A letter cannot go back."""
        self.skipped[why] = self.skipped.get(why, 0) + 1


def going(
    letters: Iterable[Letter], outcome: Redriven, count_of: Callable[[str], int | None]
) -> Iterator[tuple[Letter, str, int | None]]:
    """The letters that can go back, each with its topic and partition; `outcome` counts the others.

    `count_of` returns the number of partitions of a topic, or None if it does not exist.
    """
    for letter in letters:
        target = letter.source_topic
        count = None if target is None else count_of(target)
        if target is None or count is None:
            outcome.stayed(NO_ORIGIN if target is None else f"there is no topic {target} any more")
            continue
        number = letter.source_partition
        # Into its own partition, so that it is where its key is; by its key if that partition does not exist.
        yield letter, target, number if number is not None and number < count else None


class Redriver:
    """The only one who sends the letters of a dead-letter topic back; use as `with`."""

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
        # Fences the previous holder of the id, and ends its open transaction, before marks are read.
        await producer.begin()
        await producer.abort()
        return producer

    def redrive(self, letters: Iterable[Letter], limit: int | None = None) -> Redriven:
        """Send letters back, a few hundred in each transaction, and no more than `limit` in all."""
        outcome = Redriven(self._topic)
        # Those that cannot go do not count: else a few of them, being the oldest, would hold up all others.
        rest = islice(going(letters, outcome, self._count), limit)
        while several := list(islice(rest, LETTERS_PER_TRANSACTION)):
            self._check_topic()
            self._broker.run(partial(self._send, several))
            for _, target, _ in several:
                outcome.went(target)
        return outcome

    def _check_topic(self) -> None:
        """An id that is still the same was so all the while: these letters are its own."""
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

    async def _send(self, several: list[tuple[Letter, str, int | None]], _: Cluster) -> None:
        async with self._producer.transaction():
            for letter, target, partition in several:
                await self._producer.send(
                    target,
                    letter.value,
                    key=letter.key,
                    headers=headers_back(letter.headers),
                    partition=partition,
                    timestamp_ms=letter.source_timestamp_ms,
                )
                note = json.dumps({"topic": target, "partition": partition, "attempt": letter.attempts + 1})
                mark = mark_of(self.topic_id, letter.partition, letter.offset)
                await self._producer.send(self._topic + MARKS, note.encode(), key=mark.encode())


def ensure_marks(broker: BrokerView, topic: str) -> None:
    """Make the topic that remembers what was sent back."""
    broker.ensure_topic(topic + MARKS, partitions=1, settings={"cleanup.policy": "compact"})
