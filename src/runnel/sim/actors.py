"""Clients of a simulated broker. Each remembers what it was promised, and goes on after every crash."""

import asyncio
from abc import ABC, abstractmethod

from runnel.batch.build import build_batch
from runnel.batch.header import walk_headers
from runnel.batch.records import Record, iterate_records
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.messages.metadata import MetadataRequest, MetadataResponse
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from runnel.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from runnel.model.errors import ErrorCode
from runnel.sim.history import Anomaly, History
from runnel.sim.network import Line, LineCut
from runnel.sim.world import Life

TOPIC = "orders"
PAUSE_SECONDS = 0.02


async def found_topic(life: Life, partitions: int, name: str = TOPIC) -> None:
    """Create a topic that everybody talks about, however often lines break meanwhile."""
    request = CreateTopicsRequest([CreatableTopic(name, num_partitions=partitions, replication_factor=1)])
    while True:
        try:
            answer = await (await life.line()).ask(request, CreateTopicsResponse)
        except LineCut:
            continue
        if answer.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS.code):
            return


class Actor(ABC):
    """Somebody who talks to the broker in every one of its lives."""

    is_classic = False
    """Writes transactions as clients did before KIP-890: one epoch for many."""

    async def act(self, life: Life) -> None:
        """Talk until the broker dies; a cut line is replaced by a new one."""
        while True:
            try:
                line = await life.line(is_classic=self.is_classic)
                while True:
                    await self.speak(line, life)
                    await asyncio.sleep(life.random.random() * PAUSE_SECONDS)
            except LineCut:
                await asyncio.sleep(life.random.random() * PAUSE_SECONDS)

    @abstractmethod
    async def speak(self, line: Line, life: Life) -> None:
        """One exchange, or a few."""


class Producer(Actor):
    """Sends numbered values to one partition; an idempotent one repeats a batch until it is acknowledged."""

    def __init__(self, name: str, partition: int, history: History, *, is_idempotent: bool) -> None:
        self.name = name.encode()
        self.partition = partition
        self.history = history
        self.is_idempotent = is_idempotent
        self.sent = 0
        self._identity: tuple[int, int] | None = None
        self._unacknowledged: tuple[int, list[bytes]] | None = None
        """(sequence, values) of a batch whose fate is unknown."""

    async def speak(self, line: Line, life: Life) -> None:
        if self.is_idempotent and self._identity is None:
            answer = await line.ask(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse)
            if answer.error_code == 0:
                self._identity = answer.producer_id, answer.producer_epoch
            return
        sequence, values = self._unacknowledged or self._next_values(life)
        self._unacknowledged = (sequence, values) if self.is_idempotent else None
        error, base_offset = await self._send(line, life, sequence, values)
        if error is ErrorCode.NONE:
            self.history.wrote(self.partition, base_offset, values)
            self._unacknowledged = None
        elif not error.retriable:
            raise Anomaly(f"{self.name!r} was refused with {error.name} at sequence {sequence}")

    def _next_values(self, life: Life) -> tuple[int, list[bytes]]:
        count = life.random.randint(1, 8)
        padding = b"x" * life.random.randint(0, 200)
        sequence = self.sent
        self.sent += count
        return sequence, [b"%s:%d:%s" % (self.name, sequence + index, padding) for index in range(count)]

    async def _send(
        self, line: Line, life: Life, sequence: int, values: list[bytes]
    ) -> tuple[ErrorCode, int]:
        now_ms = life.clock.now_ms()
        producer_id, producer_epoch = self._identity or (-1, -1)
        batch = build_batch(
            (Record(0, now_ms, None, value) for value in values),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence if self._identity else -1,
        )
        data = PartitionProduceData(self.partition, batch)
        request = ProduceRequest(None, -1, 30_000, [TopicProduceData(name=TOPIC, partition_data=[data])])
        answer = await line.ask(request, ProduceResponse)
        outcome = answer.responses[0].partition_responses[0]
        return ErrorCode.from_code(outcome.error_code), outcome.base_offset


class Reader(Actor):
    """Follows one partition from its beginning and never sees anything twice, missing or changed."""

    def __init__(self, partition: int, history: History) -> None:
        self.partition = partition
        self.history = history
        self.position = 0

    async def speak(self, line: Line, life: Life) -> None:
        wanted = FetchPartition(self.partition, fetch_offset=self.position, partition_max_bytes=4096)
        request = FetchRequest(
            max_wait_ms=50, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
        )
        answer = await line.ask(request, FetchResponse)
        data = answer.responses[0].partitions[0]
        error = ErrorCode.from_code(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Anomaly(
                f"partition {self.partition} lost what a reader saw: {self.position} is out of range"
            )
        if error is ErrorCode.NONE and data.records:
            self._take(data.records)

    def _take(self, records: bytes | memoryview) -> None:
        view = memoryview(records)
        for position, header in walk_headers(view):
            for record in iterate_records(view[position : position + header.size_bytes]):
                if record.offset < self.position:
                    continue
                if record.offset != self.position:
                    raise Anomaly(f"a reader at {self.position} was given {record.offset}")
                self.history.read(self.partition, record.offset, bytes(record.value or b""))
                self.position += 1


class Committer(Actor):
    """Commits rising offsets for a group of its own; what it fetches is never older than acknowledged."""

    def __init__(self, group_id: str, history: History) -> None:
        self.group_id = group_id
        self.history = history
        self.tried = 0
        self.acknowledged = 0

    async def speak(self, line: Line, life: Life) -> None:
        # Whoever looks for the coordinator first has the topic of offsets made.
        await line.ask(FindCoordinatorRequest(coordinator_keys=[self.group_id]), FindCoordinatorResponse)
        if life.random.random() < 0.3:
            await self._check(line)
            return
        self.tried += 1
        partition = OffsetCommitRequestPartition(0, committed_offset=self.tried)
        request = OffsetCommitRequest(
            self.group_id, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        tried = self.tried
        answer = await line.ask(request, OffsetCommitResponse)
        error = ErrorCode.from_code(answer.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            self.acknowledged = tried
            self.history.commits += 1
        elif not error.retriable:
            raise Anomaly(f"{self.group_id} could not commit: {error.name}")

    async def _check(self, line: Line) -> None:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group_id, topics=topics)])
        answer = (await line.ask(request, OffsetFetchResponse)).groups[0]
        if answer.error_code != 0:
            return
        found = answer.topics[0].partitions[0].committed_offset
        if not self.acknowledged <= max(found, 0) <= self.tried:
            raise Anomaly(
                f"{self.group_id} fetched {found}, acknowledged {self.acknowledged}, tried {self.tried}"
            )


class Administrator(Actor):
    """Makes and deletes topics; what was acknowledged holds, what is unknown may go either way."""

    def __init__(self) -> None:
        self.made = 0
        self.present: set[str] = set()
        self.absent: set[str] = set()

    async def speak(self, line: Line, life: Life) -> None:
        await asyncio.sleep(0.1)
        luck = life.random.random()
        if luck < 0.4:
            await self._make(line)
        elif luck < 0.7 and self.present:
            await self._delete(line, life.random.choice(sorted(self.present)))
        else:
            await self._check(line)

    async def _make(self, line: Line) -> None:
        name = f"made-{self.made}"
        self.made += 1
        request = CreateTopicsRequest([CreatableTopic(name, num_partitions=2, replication_factor=1)])
        answer = await line.ask(request, CreateTopicsResponse)
        if answer.topics[0].error_code == 0:
            self.present.add(name)

    async def _delete(self, line: Line, name: str) -> None:
        self.present.discard(name)
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=30_000)
        answer = await line.ask(request, DeleteTopicsResponse)
        if answer.responses[0].error_code == 0:
            self.absent.add(name)

    async def _check(self, line: Line) -> None:
        answer = await line.ask(MetadataRequest(topics=None), MetadataResponse)
        names = {topic.name for topic in answer.topics}
        if not self.present <= names or self.absent & names:
            raise Anomaly(f"lost topics {self.present - names}, deleted ones {self.absent & names}")
