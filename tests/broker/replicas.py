"""Several brokers that replicate partitions over TCP, and a controller that tells them what to do.

The brokers are real, with a metadata log each; the controller is the decision core over an image, which it
extends by the same records as those of all brokers.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import running
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.alter_partition import alter_partitions
from runnel.controller.directories import assign_replicas_to_dirs
from runnel.controller.image import MetadataImage
from runnel.controller.producer_ids import decide_allocate_producer_ids
from runnel.controller.snapshot import registration_record
from runnel.controller.steps import Steps, finish
from runnel.controller.values import BrokerRegistration, Endpoint, PartitionState
from runnel.messages.allocate_producer_ids import AllocateProducerIdsRequest
from runnel.messages.alter_partition import AlterPartitionRequest
from runnel.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from runnel.model.configs import ResourceType
from runnel.model.errors import NotController
from runnel.model.ids import TopicPartition
from runnel.net.peers import TcpPeers
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.broker.world import BrokerWorld, Client

DIRECTORY = bytes(range(16))


class Registered:
    """The life of a broker whose registration the controller of the test writes by itself."""

    async def register(self) -> None:
        """It is written once the broker runs."""

    async def unfence(self) -> None:
        """It is never fenced by itself."""

    async def close(self) -> None:
        """No heartbeats are sent."""

    def lost_records(self, name: TopicPartition) -> None:
        """The test decides what follows."""


class Replicas:
    """Brokers 1 to n."""

    def __init__(self, folder: Path, count: int = 3, **settings: str) -> None:
        self._folder = folder
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._count = count
        self.worlds: dict[int, BrokerWorld] = {}
        self.image = MetadataImage()
        self.racks: dict[int, str] = {}
        self.directories: dict[int, bytes] = {}
        """Of nodes that have another one than the rest."""
        self.records: list[MetadataRecord] = []
        self._known: dict[int, int] = {}
        """How many of the records each broker has."""
        self._epoch = 1000
        self._changes = asyncio.Lock()

    async def __aenter__(self) -> "Replicas":
        for node in range(1, self._count + 1):
            await self.start(node)
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in list(self.worlds):
            await self.stop(node)

    async def start(self, node: int) -> None:
        """Start a broker and register it with a new epoch, unfenced."""
        world = BrokerWorld(self._folder / str(node), self._settings, node_id=node)
        broker = world.broker
        directory = self.directories.get(node, DIRECTORY)
        world.disk.directory_id = lambda: directory  # type: ignore[method-assign]
        broker.peers = TcpPeers()
        broker.rack = self.racks.get(node)
        broker.epoch = self._epoch
        self._attach(broker)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(running, "_lifecycle", lambda broker: Registered())
            await world.__aenter__()
        self.worlds[node] = world
        await self.register(node)

    def _attach(self, broker: Broker) -> None:
        async def request(request: Any, *, timeout_ms: int = 0) -> Any:
            return await self.request(request)

        broker.controller.request = request  # type: ignore[method-assign]

    async def register(self, node: int) -> int:
        """A new registration of a broker, unfenced; returns its epoch."""
        self._epoch += 1
        port = 9
        if node in self.worlds:
            broker = self.worlds[node].broker
            broker.epoch = self.worlds[node].disk.broker_epoch = self._epoch
            port = broker.port
        registration = BrokerRegistration(
            id=node,
            epoch=self._epoch,
            incarnation_id=self._epoch.to_bytes(16, "big"),
            endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", port),),
            features=(),
            rack=self.racks.get(node),
            is_fenced=False,
            is_stopping=False,
            directories=(self.directories.get(node, DIRECTORY),),
        )
        await self.change(registration_record(registration))
        return self._epoch

    async def stop(self, node: int) -> None:
        world = self.worlds.pop(node)
        await world.__aexit__()
        peers = world.broker.peers
        assert isinstance(peers, TcpPeers)
        peers.close()

    async def change(self, *records: MetadataRecord) -> None:
        """Write metadata."""
        async with self._changes:
            await self._change(list(records))

    async def _change(self, records: list[MetadataRecord]) -> None:
        self.image.replay_batch(records, self.image.version + len(records))
        self.records += records
        for node in sorted(self.worlds):
            await self.tell(node)

    async def tell(self, node: int) -> None:
        """Let a broker apply what it does not know yet."""
        known = self._known.get(node, 0)
        if known < len(self.records) and node in self.worlds:
            self._known[node] = len(self.records)
            try:
                await self.worlds[node].broker.metadata.submit(self.records[known:])
            except NotController:
                # It stops at this moment, and gets the records when it starts again.
                self._known[node] = known

    async def request(self, request: Any) -> Any:
        """What the active controller answers."""
        if isinstance(request, AllocateProducerIdsRequest):
            result = decide_allocate_producer_ids(self.image, request)
            await self.change(*result.records)
            return result.response
        assert isinstance(request, AlterPartitionRequest | AssignReplicasToDirsRequest)
        written: list[MetadataRecord] = []

        def carry_out(records: list[MetadataRecord]) -> MetadataImage:
            written.extend(records)
            return self.image

        async with self._changes:
            settings = next(iter(self.worlds.values())).settings
            steps: Steps[Any]
            if isinstance(request, AlterPartitionRequest):
                steps = alter_partitions(self.image, settings, request, 3)
            else:
                steps = assign_replicas_to_dirs(self.image, settings, request)
            response = finish(steps, carry_out)
            if written:
                await self._change(written)
        return response

    async def create(
        self,
        name: str,
        partitions: int = 1,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] | None = None,
        **configs: str,
    ) -> bytes:
        """A topic whose partitions are led by the first replica; all are in sync."""
        topic_id = (len(self.records) + 1).to_bytes(16, "little")
        records: list[MetadataRecord] = [TopicRecord(name, topic_id)]
        for key, value in configs.items():
            records.append(ConfigRecord(ResourceType.TOPIC, name, key.replace("_", "."), value))
        for index in range(partitions):
            records.append(
                PartitionRecord(
                    index,
                    topic_id,
                    list(replicas),
                    list(replicas if isr is None else isr),
                    [],
                    [],
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[DIRECTORY] * len(replicas),
                )
            )
        await self.change(*records)
        return topic_id

    async def elect(self, name: str, leader: int, isr: tuple[int, ...] | None = None, index: int = 0) -> None:
        """Elect another leader, or the same in a new epoch."""
        topic = self.image.topics[name]
        members = None if isr is None else list(isr)
        await self.change(PartitionChangeRecord(index, topic.id, leader=leader, isr=members))

    async def set_isr(self, name: str, isr: tuple[int, ...], index: int = 0) -> None:
        topic = self.image.topics[name]
        await self.change(PartitionChangeRecord(index, topic.id, isr=list(isr)))

    async def fence(self, node: int, *, is_fenced: bool = True) -> None:
        registration = self.image.brokers[node]
        fenced = 1 if is_fenced else -1
        await self.change(BrokerRegistrationChangeRecord(node, registration.epoch, fenced=fenced))

    def partition(self, node: int, name: str = "t", index: int = 0) -> ReplicatedLog:
        return self.worlds[node].broker.partitions[TopicPartition(name, index)]

    def state(self, name: str = "t", index: int = 0) -> PartitionState:
        state = self.image.partition(name, index)
        assert state is not None
        return state

    async def connect(self, node: int) -> Client:
        return await self.worlds[node].connect()


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for a condition."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError("it never happened") from None
