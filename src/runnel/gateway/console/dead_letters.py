"""Dead letters: records that could not be processed, by reason and source; and redriving them.

A letter is redriven as `runnel pipeline run dead-letters --redrive` does it: in one transaction with its
mark, under the same transactional id, so that both fence each other and no letter is redriven twice.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from runnel.client.cluster import Cluster, TopicView
from runnel.client.errors import BrokerError
from runnel.client.offsets import READ_COMMITTED, end_offsets, start_offsets
from runnel.client.transactional import TransactionalProducer
from runnel.gateway.console.dialogs import Done, Form
from runnel.gateway.console.message_reading import Source, newest
from runnel.gateway.console.message_view import PREVIEW
from runnel.gateway.console.pages import Content, Refused, Visit
from runnel.gateway.console.text import shown_bytes
from runnel.gateway.console.topic import find_topic
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.pipelines.dead_letters.letter import (
    DEAD_LETTERS,
    MARKS,
    Letter,
    headers_back,
    kind_of,
    mark_of,
    read_letter,
)

LETTERS_MAX = 2000
"""The newest letters, which the page reads; the command reads all."""

REDRIVEN_MAX = 500
MARKS_MAX = 200_000
SAMPLES = 3
TIMEOUT_MS = 60_000


@dataclass(slots=True)
class LetterGroup:
    """Letters with the same reason and source."""

    kind: str
    source: str
    letters: list[Letter] = field(default_factory=list)
    redriven: int = 0

    @property
    def waiting(self) -> int:
        return len(self.letters) - self.redriven

    @property
    def samples(self) -> list[tuple[Letter, str]]:
        return [(letter, shown_bytes(letter.value, PREVIEW)) for letter in self.letters[:SAMPLES]]


async def dead_letters(visit: Visit) -> Content:
    """All topics of dead letters."""
    catalogue = await visit.data.catalogue.get()
    found = [topic for topic in catalogue.topics if topic.name.endswith(DEAD_LETTERS)]
    partitions = [TopicPartition(topic.name, view.partition) for topic in found for view in topic.partitions]
    starts, ends = await visit.data.bounds(partitions[:LETTERS_MAX])
    letters: Counter[str] = Counter()
    for partition, end in ends.items():
        letters[partition.topic] += end - starts[partition]
    rows = [
        {
            "topic": topic.name,
            "source": topic.name.removesuffix(DEAD_LETTERS),
            "letters": letters[topic.name],
            "rate": visit.data.throughput.by_topic.get(topic.name),
        }
        for topic in found
    ]
    rows.sort(key=lambda row: (-int(str(row["letters"])), str(row["topic"])))
    return Content("dead_letters.html", {"rows": rows})


async def letters(visit: Visit) -> Content:
    """The newest letters of a topic, by reason and source."""
    topic = await find_topic(visit)
    found, total = await _newest_letters(visit.cluster, topic)
    marks = await _marks(visit, topic.name)
    groups = _grouped(found, topic, marks or set())
    values = {"topic": topic, "groups": groups, "looked_at": len(found), "total": total}
    return Content("letters.html", values)


def _grouped(found: list[Letter], topic: TopicView, marks: set[str]) -> list[LetterGroup]:
    groups: dict[tuple[str, str], LetterGroup] = {}
    for letter in found:
        key = kind_of(letter.reason), letter.source_topic or ""
        group = groups.setdefault(key, LetterGroup(*key))
        group.letters.append(letter)
        group.redriven += mark_of(topic.topic_id, letter.partition, letter.offset) in marks
    return sorted(groups.values(), key=lambda group: (-group.waiting, -len(group.letters), group.kind))


async def _newest_letters(cluster: Cluster, topic: TopicView) -> tuple[list[Letter], int]:
    partitions = [TopicPartition(topic.name, view.partition) for view in topic.partitions if view.leader >= 0]
    if not partitions:
        return [], 0
    low = await start_offsets(cluster, partitions)
    high = await end_offsets(cluster, partitions, isolation=READ_COMMITTED)
    found = await newest(Source(cluster, READ_COMMITTED), low, high, LETTERS_MAX)
    total = sum(high[each] - low[each] for each in high)
    return [
        read_letter(
            each.topic, each.partition, each.offset, each.timestamp_ms, each.key, each.value, each.headers
        )
        for each in found.messages
    ], total


async def _marks(visit: Visit, topic: str) -> set[str] | None:
    """The keys of redriven letters; None if there are too many to read here."""
    if topic + MARKS not in (await visit.data.catalogue.get()).by_name:
        return set()
    cluster, partition = visit.cluster, TopicPartition(topic + MARKS, 0)
    starts = await start_offsets(cluster, [partition])
    ends = await end_offsets(cluster, [partition], isolation=READ_COMMITTED)
    first, after = starts[partition], ends[partition]
    if after - first > MARKS_MAX:
        return None
    source = Source(cluster, READ_COMMITTED)
    found = await source.read({partition: (first, after)})
    if source.unread:
        return None
    return {each.key.decode("utf-8", "replace") for each in found[partition] if each.key is not None}


async def show_redrive(visit: Visit, form: Form) -> dict[str, Any]:
    """The letters that would be redriven."""
    topic = await find_topic(visit)
    kind, source = form.get("kind", ""), form.get("source", "")
    chosen = await _chosen(visit, topic, kind, source)
    return {"topic": topic.name, "kind": kind, "source": source, "count": len(chosen), "most": REDRIVEN_MAX}


async def _chosen(visit: Visit, topic: TopicView, kind: str, source: str) -> list[Letter]:
    """Letters of one group that are not redriven yet, the oldest first."""
    marks = await _marks(visit, topic.name)
    if marks is None:
        raise Refused("too many letters were redriven already: use `runnel pipeline run dead-letters`")
    found, _ = await _newest_letters(visit.cluster, topic)
    chosen = [
        letter
        for letter in found
        if kind_of(letter.reason) == kind
        and (letter.source_topic or "") == source
        and mark_of(topic.topic_id, letter.partition, letter.offset) not in marks
    ]
    return chosen[::-1][:REDRIVEN_MAX]


async def redrive(visit: Visit, form: Form) -> Done:
    """Redrive letters to their topic, exactly once."""
    topic = await find_topic(visit)
    kind, source = form.get("kind", ""), form.get("source", "")
    if not source:
        raise Refused("the source topic of these letters is unknown")
    count = len((await visit.cluster.topic(source)).partitions)
    await _ensure_marks(visit, topic.name)
    producer = TransactionalProducer(visit.cluster, f"runnel-redrive-{topic.name}", timeout_ms=TIMEOUT_MS)
    async with producer:
        # Fence another run, and end its transaction, before marks are read.
        await producer.begin()
        await producer.abort()
        chosen = await _chosen(visit, topic, kind, source)
        if chosen:
            async with producer.transaction():
                for letter in chosen:
                    await _send_back(producer, topic, letter, source, count)
    return Done(f"redriven: {len(chosen)} letters of {topic.name} to {source}")


async def _send_back(
    producer: TransactionalProducer, topic: TopicView, letter: Letter, source: str, count: int
) -> None:
    number = letter.source_partition
    # To the original partition, where its key is; by key if the partition does not exist.
    partition = number if number is not None and number < count else None
    await producer.send(
        source,
        letter.value,
        key=letter.key,
        headers=headers_back(letter.headers),
        partition=partition,
        timestamp_ms=letter.source_timestamp_ms,
    )
    value = json.dumps({"topic": source, "partition": partition, "attempt": letter.attempts + 1})
    mark = mark_of(topic.topic_id, letter.partition, letter.offset)
    await producer.send(topic.name + MARKS, value.encode(), key=mark.encode())


async def _ensure_marks(visit: Visit, topic: str) -> None:
    try:
        await visit.data.admin.create_topic(
            topic + MARKS, partitions=1, settings={"cleanup.policy": "compact"}
        )
    except BrokerError as error:
        if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    # Marks of another run are seen from here on.
    visit.data.catalogue.invalidate()
