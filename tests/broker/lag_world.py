"""A simulated broker in virtual time, whose groups are compared with what is in its logs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from runnel.batch.build import build_batch
from runnel.batch.header import read_header
from runnel.batch.records import Record, iterate_records
from runnel.broker.runtime.promise import settled
from runnel.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.messages.offset_commit import OffsetCommitResponse
from runnel.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from runnel.model.errors import ErrorCode
from runnel.sim.network import SimConnection
from runnel.sim.simulation import Incarnation, Simulation
from runnel.wire import Request, Response
from tests.broker.group_calls import commit_request

TOPIC = "t"
TRANSACTION_KEY = 1
READ_BYTES = 1 << 24
RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.code,
    ErrorCode.NOT_COORDINATOR.code,
    ErrorCode.CONCURRENT_TRANSACTIONS.code,
}


class LagWorld:
    """Requests to a broker, and the time of every append to one partition."""

    def __init__(self, incarnation: Incarnation, connection: SimConnection) -> None:
        self.incarnation = incarnation
        self.broker = incarnation.broker
        self.appended_ms: dict[int, int] = {}
        """Offset → when the broker had appended it, at most some milliseconds later."""
        self._connection = connection

    @property
    def now_ms(self) -> int:
        return self.incarnation.clock.monotonic_ms()

    async def ask(self, request: Request, answer: type[Response]) -> Any:
        return await self._connection.ask(request, answer)

    async def create(self, topic: str = TOPIC, **configs: str) -> None:
        # Some records are old.
        configs = {"retention_ms": "-1", **configs}
        settings = [CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items()]
        request = CreateTopicsRequest([CreatableTopic(topic, 1, 1, configs=settings)])
        response = await self.ask(request, CreateTopicsResponse)
        assert response.topics[0].error_code == 0

    async def find(self, key: str, kind: int = 0) -> None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        await self._until_accepted(
            request, FindCoordinatorResponse, lambda answer: answer.coordinators[0].error_code
        )

    async def _until_accepted(
        self, request: Request, answer: type[Response], code: Callable[[Any], int]
    ) -> Any:
        while code(response := await self.ask(request, answer)) in RETRIED:
            await asyncio.sleep(0.05)
        assert code(response) == 0, ErrorCode.from_code(code(response))
        return response

    async def produce(
        self, records: Iterable[Record], topic: str = TOPIC, transaction: str | None = None, **fields: Any
    ) -> int:
        """Append a batch; returns its first offset."""
        batch = build_batch(records, **fields)
        count = read_header(batch).record_count
        topic_id = self.broker.metadata.image.topics[topic].id
        data = TopicProduceData(topic, topic_id, [PartitionProduceData(0, memoryview(batch))])
        request = ProduceRequest(transaction, -1, 30_000, [data])
        response = await self._until_accepted(
            request, ProduceResponse, lambda answer: answer.responses[0].partition_responses[0].error_code
        )
        first: int = response.responses[0].partition_responses[0].base_offset
        self.appended_ms.update(dict.fromkeys(range(first, first + count), self.now_ms))
        return first

    async def commit(self, offset: int, group: str = "g", topic: str = TOPIC, **member: Any) -> None:
        topic_id = self.broker.metadata.image.topics[topic].id
        await self._until_accepted(
            commit_request({0: offset}, group=group, topic=topic, topic_id=topic_id, **member),
            OffsetCommitResponse,
            lambda answer: answer.topics[0].partitions[0].error_code,
        )

    def lag(self, group: str = "g") -> dict[str, Any]:
        """A group as the admin listener reports it."""
        status, _, body = self.broker.groups.lags.answer({"group": [group]})
        assert status == 200
        groups: list[dict[str, Any]] = json.loads(b"".join(body))["groups"]
        [found] = groups
        return found

    async def reference_ms(self, committed: int, aborted: Iterable[int] = ()) -> int:
        """The lag in time, from a walk over the whole log; `aborted` are the producers not to be read."""
        log = self.broker.partition(TOPIC, 0)
        batches = await settled(log.read_batches(log.log.log_start_offset, READ_BYTES))
        unread = [
            record.offset
            for batch in batches
            if not read_header(batch).is_control and read_header(batch).producer_id not in set(aborted)
            for record in iterate_records(batch)
            if committed <= record.offset < log.last_stable_offset
        ]
        return self.now_ms - self.appended_ms[min(unread)] if unread else 0


class Transactions:
    """A transactional producer."""

    def __init__(self, world: LagWorld, name: str) -> None:
        self._world = world
        self._name = name
        self._sequence = 0
        self.producer_id = self._epoch = -1

    async def open(self) -> None:
        await self._world.find(self._name, TRANSACTION_KEY)
        answer = await self._world._until_accepted(
            InitProducerIdRequest(self._name, 600_000), InitProducerIdResponse, lambda each: each.error_code
        )
        self.producer_id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    async def produce(self, records: list[Record]) -> int:
        fields: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self._epoch,
            "base_sequence": self._sequence,
            "transactional": True,
        }
        self._sequence += len(records)
        return await self._world.produce(records, transaction=self._name, **fields)

    async def end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(self._name, self.producer_id, self._epoch, is_commit)
        answer = await self._world._until_accepted(request, EndTxnResponse, lambda each: each.error_code)
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self._epoch):
            self.producer_id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0


def play(
    monkeypatch: Any,
    scenario: Callable[[LagWorld], Awaitable[None]],
    simulation: Simulation | None = None,
    **settings: str,
) -> Simulation:
    """Run a scenario in virtual time, without faults."""
    monkeypatch.setattr("runnel.sim.network.LOSS_CHANCE", 0)
    named = {name.replace("_", "."): value for name, value in settings.items()}
    simulation = simulation or Simulation(1, settings=named)

    async def workload(incarnation: Incarnation) -> None:
        await scenario(LagWorld(incarnation, await incarnation.connect()))

    simulation.run_broker(workload)
    return simulation


def records(count: int, timestamp_ms: int, key: bytes | None = None) -> list[Record]:
    return [Record(0, timestamp_ms, key, b"value") for _ in range(count)]
