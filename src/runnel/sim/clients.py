"""Clients of a simulated broker. Each records acknowledgements and continues after every crash."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

from runnel.batch.build import build_batch
from runnel.batch.header import walk_headers
from runnel.batch.records import IDEMPOTENCY_KEY_HEADER, Record, iterate_records
from runnel.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
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
from runnel.sim.world import Connection, ConnectionLost, World

TOPIC = "orders"


async def create_topic(
    world: World,
    partitions: int,
    name: str = TOPIC,
    replicas: int = 1,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic, with retries when connections are lost."""
    given = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name, num_partitions=partitions, replication_factor=replicas, configs=given)
    request = CreateTopicsRequest([topic])
    while True:
        try:
            answer = await (await world.connect()).ask(request, CreateTopicsResponse)
        except ConnectionLost:
            continue
        if answer.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS.code):
            return


async def find_coordinators(world: World) -> None:
    """Find a coordinator of groups and one of transactions, which creates their topics."""
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
        while True:
            try:
                answer = await (await world.connect()).ask(request, FindCoordinatorResponse)
            except ConnectionLost:
                continue
            if not answer.coordinators[0].error_code:
                break
            await asyncio.sleep(world.random.random() * world.pause_seconds)


class SimClient(ABC):
    """A client that sends requests to every incarnation of the broker."""

    is_classic = False
    """Uses transactions as before KIP-890: one epoch for many transactions."""

    async def run(self, world: World) -> None:
        """Send requests until the broker crashes; reconnect when the connection is lost."""
        while True:
            try:
                connection = await world.connect(is_classic=self.is_classic)
                while True:
                    await self.run_once(connection, world)
                    await asyncio.sleep(world.random.random() * world.pause_seconds)
            except ConnectionLost:
                await asyncio.sleep(world.random.random() * world.pause_seconds)

    @abstractmethod
    async def run_once(self, connection: Connection, world: World) -> None:
        """Send one or a few requests."""


class Producer(SimClient):
    """Produces numbered values to one partition; if idempotent, retries a batch until it is acknowledged."""

    def __init__(self, name: str, partition: int, history: History, *, is_idempotent: bool) -> None:
        self.name = name.encode()
        self.partition = partition
        self.history = history
        self.is_idempotent = is_idempotent
        self.sent = 0
        self._identity: tuple[int, int] | None = None
        self._unacknowledged: tuple[int, list[bytes]] | None = None
        """(sequence, values) of a batch whose outcome is unknown."""

    async def run_once(self, connection: Connection, world: World) -> None:
        if self.is_idempotent and self._identity is None:
            answer = await connection.ask(
                InitProducerIdRequest(transactional_id=None), InitProducerIdResponse
            )
            if answer.error_code == 0:
                self._identity = answer.producer_id, answer.producer_epoch
            return
        sequence, values = self._unacknowledged or self._next_values(world)
        self._unacknowledged = (sequence, values) if self.is_idempotent else None
        error, base_offset = await self._send(connection, world, sequence, values)
        if error is ErrorCode.NONE:
            self.history.record_write(self.partition, base_offset, values)
            self._unacknowledged = None
        elif not error.retriable:
            raise Anomaly(f"{self.name!r} failed with {error.name} at sequence {sequence}")

    def _next_values(self, world: World) -> tuple[int, list[bytes]]:
        count = world.random.randint(1, 8)
        padding = b"x" * world.random.randint(0, 200)
        sequence = self.sent
        self.sent += count
        return sequence, [b"%s:%d:%s" % (self.name, sequence + index, padding) for index in range(count)]

    async def _send(
        self, connection: Connection, world: World, sequence: int, values: list[bytes]
    ) -> tuple[ErrorCode, int]:
        now_ms = world.clock.now_ms()
        producer_id, producer_epoch = self._identity or (-1, -1)
        batch = build_batch(
            (Record(0, now_ms, None, value) for value in values),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence if self._identity else -1,
        )
        data = PartitionProduceData(self.partition, batch)
        request = ProduceRequest(None, -1, 30_000, [TopicProduceData(name=TOPIC, partition_data=[data])])
        answer = await connection.ask(request, ProduceResponse)
        outcome = answer.responses[0].partition_responses[0]
        return ErrorCode.from_code(outcome.error_code), outcome.base_offset


class KeyedProducer(SimClient):
    """Produces numbered values with idempotency keys, each until it is acknowledged, and some again.

    Others may send the same values at the same time.
    """

    def __init__(self, name: str, partition: int, history: History) -> None:
        self.name = name.encode()
        self.partition = partition
        self.history = history
        self.sent = 0

    async def run_once(self, connection: Connection, world: World) -> None:
        value = b"%s:%d:%s" % (self.name, self.sent, b"x" * (self.sent * 37 % 200))
        is_other = self.sent > 0 and world.random.random() < 0.1
        if is_other:
            value = b"%s:%d:another record with the key of an earlier one" % (self.name, self.sent - 1)
        error, offset = await self._send(connection, world, value)
        if error is ErrorCode.DUPLICATE_RESOURCE and is_other:
            return
        if error is ErrorCode.NONE:
            if is_other:
                raise Anomaly(f"{value!r} was acknowledged at {offset}")
            self.history.record_write(self.partition, offset, [value])
            self.sent += world.random.random() < 0.8
        elif not error.retriable:
            raise Anomaly(f"{value!r} failed with {error.name}")

    async def _send(self, connection: Connection, world: World, value: bytes) -> tuple[ErrorCode, int]:
        key = b":".join(value.split(b":")[:2])
        record = Record(0, world.clock.now_ms(), None, value, [(IDEMPOTENCY_KEY_HEADER, key)])
        data = PartitionProduceData(self.partition, build_batch([record]))
        request = ProduceRequest(None, -1, 30_000, [TopicProduceData(name=TOPIC, partition_data=[data])])
        answer = await connection.ask(request, ProduceResponse)
        outcome = answer.responses[0].partition_responses[0]
        return ErrorCode.from_code(outcome.error_code), outcome.base_offset


class Reader(SimClient):
    """Consumes one partition from its start and verifies that no record is duplicated, missing or changed."""

    def __init__(self, partition: int, history: History) -> None:
        self.partition = partition
        self.history = history
        self.position = 0

    async def run_once(self, connection: Connection, world: World) -> None:
        wanted = FetchPartition(self.partition, fetch_offset=self.position, partition_max_bytes=4096)
        request = FetchRequest(
            max_wait_ms=50, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
        )
        answer = await connection.ask(request, FetchResponse)
        data = answer.responses[0].partitions[0]
        error = ErrorCode.from_code(data.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Anomaly(
                f"partition {self.partition} lost records that were read: {self.position} is out of range"
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
                    raise Anomaly(f"a reader at offset {self.position} received {record.offset}")
                self.history.record_read(self.partition, record.offset, bytes(record.value or b""))
                self.position += 1


class Committer(SimClient):
    """Commits increasing offsets for its group; a fetched offset is never older than an acknowledged one."""

    def __init__(self, group_id: str, history: History) -> None:
        self.group_id = group_id
        self.history = history
        self.attempted = 0
        self.acknowledged = 0

    async def run_once(self, connection: Connection, world: World) -> None:
        # The first FindCoordinator creates __consumer_offsets.
        await connection.ask(
            FindCoordinatorRequest(coordinator_keys=[self.group_id]), FindCoordinatorResponse
        )
        if world.random.random() < 0.3:
            await self._check(connection)
            return
        self.attempted += 1
        partition = OffsetCommitRequestPartition(0, committed_offset=self.attempted)
        request = OffsetCommitRequest(
            self.group_id, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        attempted = self.attempted
        answer = await connection.ask(request, OffsetCommitResponse)
        error = ErrorCode.from_code(answer.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            self.acknowledged = attempted
            self.history.commits += 1
        elif not error.retriable:
            raise Anomaly(f"{self.group_id} failed to commit: {error.name}")

    async def _check(self, connection: Connection) -> None:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group_id, topics=topics)])
        answer = (await connection.ask(request, OffsetFetchResponse)).groups[0]
        if answer.error_code != 0:
            return
        found = answer.topics[0].partitions[0].committed_offset
        if not self.acknowledged <= max(found, 0) <= self.attempted:
            raise Anomaly(
                f"{self.group_id}: fetched {found}, expected {self.acknowledged} to {self.attempted}"
            )


class Administrator(SimClient):
    """Creates and deletes topics; acknowledged changes persist, unacknowledged ones may or may not."""

    def __init__(self) -> None:
        self.created = 0
        self.present: set[str] = set()
        self.absent: set[str] = set()

    async def run_once(self, connection: Connection, world: World) -> None:
        await asyncio.sleep(0.1)
        draw = world.random.random()
        if draw < 0.4:
            await self._create(connection)
        elif draw < 0.7 and self.present:
            await self._delete(connection, world.random.choice(sorted(self.present)))
        else:
            await self._check(connection)

    async def _create(self, connection: Connection) -> None:
        name = f"created-{self.created}"
        self.created += 1
        request = CreateTopicsRequest([CreatableTopic(name, num_partitions=2, replication_factor=1)])
        answer = await connection.ask(request, CreateTopicsResponse)
        if answer.topics[0].error_code == 0:
            self.present.add(name)

    async def _delete(self, connection: Connection, name: str) -> None:
        self.present.discard(name)
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=30_000)
        answer = await connection.ask(request, DeleteTopicsResponse)
        if answer.responses[0].error_code == 0:
            self.absent.add(name)

    async def _check(self, connection: Connection) -> None:
        answer = await connection.ask(MetadataRequest(topics=None), MetadataResponse)
        names = {topic.name for topic in answer.topics}
        if not self.present <= names or self.absent & names:
            raise Anomaly(f"lost topics {self.present - names}, deleted ones {self.absent & names}")
