"""Records that a power failure took: consumers beyond the end notice, instead of skipping what follows."""

import asyncio
import errno
from contextlib import suppress
from random import Random

import pytest

from runnel.broker.runtime import elections
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from runnel.messages.fetch import FetchRequest, FetchResponse, PartitionData
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from runnel.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from runnel.messages.produce import ProduceResponse
from runnel.model.errors import ErrorCode
from runnel.schemas.metadata import RemoveTopicRecord
from runnel.sim import network
from runnel.sim.files import Fault
from runnel.sim.network import SimConnection
from runnel.sim.simulation import Crash, Incarnation, Simulation
from tests.broker.requests import batch, fetch_from, produce_to

TOPIC = "events"


class NothingSurvives(Random):
    """Fortune of a power failure that takes all that was not synced."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        return a


class Consumer:
    """A consumer as KIP-320 has it: a position with the epoch of the last record, checked in a new epoch."""

    def __init__(self) -> None:
        self.position = 0
        self.epoch = -1
        self.truncated_to: int | None = None

    async def poll(self, connection: SimConnection) -> list[int]:
        """The offsets of the next records; a fenced consumer validates its position first."""
        request = self.request()
        found = partition_of(await connection.ask(request, FetchResponse))
        if found.error_code == ErrorCode.FENCED_LEADER_EPOCH.code:
            await self.validate(connection)
            found = partition_of(await connection.ask(self.request(), FetchResponse))
        assert found.error_code == 0, ErrorCode.from_code(found.error_code)
        offsets = list(range(self.position, found.high_watermark))
        self.position = max(self.position, found.high_watermark)
        return offsets

    def request(self) -> FetchRequest:
        return fetch_from(TOPIC, (0, self.position), current_epoch=self.epoch)

    async def validate(self, connection: SimConnection) -> None:
        old_epoch = self.epoch
        await self.learn(connection)
        asked = OffsetForLeaderPartition(0, self.epoch, old_epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(TOPIC, [asked])])
        answer = await connection.ask(request, OffsetForLeaderEpochResponse)
        end_offset = answer.topics[0].partitions[0].end_offset
        if end_offset < self.position:
            self.truncated_to = self.position = end_offset

    async def learn(self, connection: SimConnection) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
        answer = await connection.ask(request, MetadataResponse)
        self.epoch = answer.topics[0].partitions[0].leader_epoch


def partition_of(response: FetchResponse) -> PartitionData:
    return response.responses[0].partitions[0]


async def produce(connection: SimConnection, *values: bytes) -> None:
    for value in values:
        answer = await connection.ask(produce_to(TOPIC, (0, batch(value)), acks=1), ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0


def run(
    simulation: Simulation, consumer: Consumer, *, is_power_cut: bool, fault: Fault | None = None
) -> list[int]:
    """Ten records are read, the broker goes down, twelve more are written: what the consumer reads then.

    Faults begin when it goes down.
    """
    read: list[int] = []

    async def before(incarnation: Incarnation) -> None:
        connection = await incarnation.connect()
        topic = CreatableTopic(TOPIC, 1, 1)
        await connection.ask(CreateTopicsRequest([topic]), CreateTopicsResponse)
        await consumer.learn(connection)
        await produce(connection, *(b"old %d" % number for number in range(4)))
        broker = incarnation.pipeline.broker
        await broker.disk.sync(broker.partition(TOPIC, 0).log)
        await produce(connection, *(b"old %d" % number for number in range(4, 10)))
        assert await consumer.poll(connection) == list(range(10))
        simulation.files.fault = fault
        if is_power_cut:
            raise Crash

    async def after(incarnation: Incarnation) -> None:
        connection = await incarnation.connect()
        await produce(connection, *(b"new %d" % number for number in range(12)))
        read.extend(await consumer.poll(connection))

    with suppress(Crash):
        simulation.run_broker(before)
    if is_power_cut or fault is not None:
        simulation.files.lose_power(NothingSurvives())
    simulation.run_broker(after)
    return read


def test_a_consumer_beyond_a_truncated_log_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LOSS_CHANCE", 0)
    simulation, consumer = Simulation(3, settings={"log.flush.policy": "never"}), Consumer()
    read = run(simulation, consumer, is_power_cut=True)
    assert read == list(range(4, 16)), "no record that was written since is skipped"
    assert consumer.truncated_to == 4, "six of ten records were lost"


def test_a_clean_restart_keeps_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LOSS_CHANCE", 0)
    simulation, consumer = Simulation(3, settings={"log.flush.policy": "never"}), Consumer()
    read = run(simulation, consumer, is_power_cut=False)
    assert consumer.truncated_to is None
    assert read == list(range(10, 22))
    assert consumer.epoch == 0


def test_a_consumer_beyond_a_log_that_could_not_be_closed_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other logs were closed cleanly, hence no log got a new epoch."""
    monkeypatch.setattr(network, "LOSS_CHANCE", 0)
    simulation, consumer = Simulation(3, settings={"log.flush.policy": "never"}), Consumer()

    def fault(operation: str, path: str) -> None:
        if operation == "datasync" and f"/{TOPIC}-0/" in path:
            raise OSError(errno.EIO, "on purpose", path)

    read = run(simulation, consumer, is_power_cut=False, fault=fault)
    assert read == list(range(4, 16)), "no record that was written since is skipped"
    assert consumer.truncated_to == 4, "six of ten records were lost"


def test_a_clean_shutdown_does_not_end_the_wait_for_new_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with a full disk could not begin them; the next one took the logs for intact."""
    monkeypatch.setattr(network, "LOSS_CHANCE", 0)
    simulation, epochs = Simulation(5, settings={}), list[int]()

    async def crash(incarnation: Incarnation) -> None:
        connection = await incarnation.connect()
        await connection.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)]), CreateTopicsResponse)
        await produce(connection, b"kept")
        raise Crash

    async def look(incarnation: Incarnation) -> None:
        simulation.files.fault = None
        epochs.append(incarnation.pipeline.broker.partition(TOPIC, 0).epoch)

    def fault(operation: str, path: str) -> None:
        if operation == "pwritev" and "__cluster_metadata-0" in path:
            raise OSError(errno.ENOSPC, "on purpose", path)

    with pytest.raises(Crash):
        simulation.run_broker(crash)
    simulation.files.fault = fault
    for _ in range(3):
        simulation.run_broker(look)
    assert epochs == [0, 1, 1]


def test_new_epochs_that_are_retried_spare_topics_that_are_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An election of a deleted topic was stored: no later start could replay the metadata log."""
    monkeypatch.setattr(network, "LOSS_CHANCE", 0)
    monkeypatch.setattr(elections, "PARTITIONS_PER_CHANGE", 1)
    simulation, names = Simulation(5, settings={}), ["a", "b", "c"]
    epochs: dict[str, int] = {}

    async def crash(incarnation: Incarnation) -> None:
        connection = await incarnation.connect()
        topics = [CreatableTopic(name, 1, 1) for name in names]
        await connection.ask(CreateTopicsRequest(topics), CreateTopicsResponse)
        raise Crash

    async def delete_while_retried(incarnation: Incarnation) -> None:
        metadata = incarnation.pipeline.broker.metadata
        assert metadata.image.topics["a"].partitions[0].leader_epoch == 0
        simulation.files.fault = None

        def is_reelected() -> bool:
            controller = metadata.controller
            return bool(controller and controller.image.topics["a"].partitions[0].leader_epoch)

        async with asyncio.timeout(60):
            while not is_reelected():
                await asyncio.sleep(0.0001)
        await metadata.submit([RemoveTopicRecord(metadata.image.topics["c"].id)])
        await asyncio.sleep(10)

    async def look(incarnation: Incarnation) -> None:
        for name, topic in incarnation.pipeline.broker.metadata.image.topics.items():
            epochs[name] = topic.partitions[0].leader_epoch

    def fault(operation: str, path: str) -> None:
        if operation == "pwritev" and "__cluster_metadata-0" in path:
            raise OSError(errno.ENOSPC, "on purpose", path)

    with pytest.raises(Crash):
        simulation.run_broker(crash)
    simulation.files.fault = fault
    simulation.run_broker(delete_while_retried)
    simulation.run_broker(look)
    assert epochs == {"a": 1, "b": 1}


def test_new_epochs_are_begun_once_a_full_disk_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LOSS_CHANCE", 0)
    simulation, consumer = Simulation(5, settings={}), Consumer()

    async def crash(incarnation: Incarnation) -> None:
        connection = await incarnation.connect()
        await connection.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)]), CreateTopicsResponse)
        await produce(connection, b"kept")
        raise Crash

    async def restart(incarnation: Incarnation) -> None:
        partition = incarnation.pipeline.broker.partition(TOPIC, 0)
        connection = await incarnation.connect()
        await consumer.learn(connection)
        assert (partition.epoch, consumer.epoch) == (0, 0)
        simulation.files.capacity_bytes = 2**40
        request = produce_to(TOPIC, (0, batch(b"too early")), acks=1)
        answer = await connection.ask(request, ProduceResponse)
        outcome = ErrorCode.from_code(answer.responses[0].partition_responses[0].error_code)
        assert outcome is ErrorCode.NOT_LEADER_OR_FOLLOWER, "nothing is written in the old epoch"
        fetched = partition_of(await connection.ask(fetch_from(TOPIC, (0, 0)), FetchResponse))
        assert (fetched.error_code, fetched.high_watermark) == (0, 1)
        async with asyncio.timeout(60):
            while consumer.epoch == 0:
                await asyncio.sleep(0.1)
                await consumer.learn(connection)
        assert (partition.epoch, consumer.epoch) == (1, 1)
        assert partition.log.epoch_end(0) == (0, 1)
        await produce(connection, b"in the new epoch")

    with pytest.raises(Crash):
        simulation.run_broker(crash)
    simulation.files.capacity_bytes = 0
    simulation.run_broker(restart)


def test_a_consumer_beyond_a_log_that_was_repaired_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk loses pages after a failed sync, and the log is truncated without a restart."""
    monkeypatch.setattr(network, "LOSS_CHANCE", 0)
    simulation, consumer = Simulation(7, settings={"log.flush.policy": "never"}), Consumer()
    read: list[int] = []

    async def lose(incarnation: Incarnation) -> None:
        connection = await incarnation.connect()
        await connection.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)]), CreateTopicsResponse)
        await consumer.learn(connection)
        await produce(connection, *(b"old %d" % number for number in range(10)))
        assert await consumer.poll(connection) == list(range(10))
        partition = incarnation.pipeline.broker.partition(TOPIC, 0)
        partition.log.truncate_to(4)
        leads = [partition.is_leader]
        async with asyncio.timeout(60):
            while not leads[-1]:
                await asyncio.sleep(0.1)
                leads.append(partition.is_leader)
        assert leads[0] is False, "nothing is written in the old epoch"
        await produce(connection, *(b"new %d" % number for number in range(12)))
        read.extend(await consumer.poll(connection))

    simulation.run_broker(lose)
    assert read == list(range(4, 16)), "no record that was written since is skipped"
    assert (consumer.truncated_to, consumer.epoch) == (4, 1)
