"""Several real brokers in one process, joined by TCP.

Each has a metadata log of its own, into which the same records are written: tests decide who leads what.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from runnel.controller.snapshot import registration_record
from runnel.net.peers import PeerChannel, TcpPeers
from runnel.ports.peers import PeerFailed
from runnel.schemas.metadata import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from runnel.wire import Request
from tests.broker.world import BrokerWorld, Client


class FaultyChannel:
    """A channel whose responses may be lost, or whose requests are not served."""

    def __init__(self, peers: "FaultyPeers", channel: PeerChannel) -> None:
        self._peers = peers
        self._channel = channel
        self.on_lost: Callable[[], None] | None = None
        self._open: set[Future[Any]] = set()

    def send(self, request: Request, *, version: int | None = None, timeout_ms: int = 30_000) -> Future[Any]:
        peers = self._peers
        name = type(request).__name__.removesuffix("Request")
        peers.sent.append(request)
        peers.in_flight[name] = peers.in_flight.get(name, 0) + 1
        peers.in_flight_max[name] = max(peers.in_flight_max.get(name, 0), peers.in_flight[name])
        answer: Future[Any] = asyncio.get_running_loop().create_future()
        self._open.add(answer)
        answer.add_done_callback(lambda _: self._answered(name, answer))
        if name in peers.unreachable:
            answer.set_exception(PeerFailed("unreachable"))
        if name in peers.unreachable | peers.silent:
            return answer
        served = self._channel.send(request, version=version, timeout_ms=timeout_ms)
        served.add_done_callback(lambda _: self._served(name, served, answer))
        return answer

    def _served(self, name: str, served: Future[Any], answer: Future[Any]) -> None:
        error = served.exception()
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        elif self._peers.lose.get(name, 0):
            self._peers.lose[name] -= 1
            answer.set_exception(PeerFailed("the response was lost"))
        else:
            answer.set_result(served.result())

    def _answered(self, name: str, answer: Future[Any]) -> None:
        self._open.discard(answer)
        self._peers.in_flight[name] -= 1

    def close(self) -> None:
        for answer in list(self._open):
            if not answer.done():
                answer.set_exception(PeerFailed("closed"))
        self._channel.close()


class FaultyPeers:
    """Peers over TCP, and what goes wrong with requests of some kinds."""

    def __init__(self) -> None:
        self._peers = TcpPeers()
        self.sent: list[Request] = []
        self.in_flight: dict[str, int] = {}
        self.in_flight_max: dict[str, int] = {}
        self.lose: dict[str, int] = {}
        """Number of responses to be lost, by the name of the API."""
        self.silent: set[str] = set()
        """APIs whose requests are neither served nor answered."""
        self.unreachable: set[str] = set()
        """APIs whose requests fail at once."""

    def channel(self, host: str, port: int, client_id: str) -> FaultyChannel:
        return FaultyChannel(self, self._peers.channel(host, port, client_id))

    def close(self) -> None:
        self._peers.close()

    def of(self, message: type[Request]) -> list[Any]:
        """The requests of one kind."""
        return [request for request in self.sent if isinstance(request, message)]


class Brokers:
    """Brokers 1 to `count`, opened and closed by a test."""

    def __init__(self, folder: Path, settings: dict[str, str], count: int = 2) -> None:
        self._folder = folder
        self._settings = settings
        self._count = count
        self._stack = AsyncExitStack()
        self._topics = 0
        self.worlds: dict[int, BrokerWorld] = {}
        self.peers: dict[int, FaultyPeers] = {}
        self.clients: dict[int, Client] = {}

    async def __aenter__(self) -> "Brokers":
        for node_id in range(1, self._count + 1):
            world = BrokerWorld(self._folder / str(node_id), self._settings, node_id=node_id)
            self.peers[node_id] = world.broker.peers = FaultyPeers()
            self._stack.callback(self.peers[node_id].close)
            self.worlds[node_id] = await self._stack.enter_async_context(world)
            self.clients[node_id] = await world.connect()
        for node_id, world in self.worlds.items():
            record = registration_record(world.broker.metadata.image.brokers[node_id])
            for other in self.worlds.values():
                if other is not world:
                    await other.broker.metadata.submit([record])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def submit(self, records: list[MetadataRecord], *nodes: int) -> None:
        """Write records into the metadata of some brokers, or of all."""
        for node_id in nodes or self.worlds:
            await self.worlds[node_id].broker.metadata.submit(records)

    async def create(self, name: str, leaders: list[int], *others: int) -> None:
        """A topic with partitions led by the given brokers, and replicas on `others` that are not in sync."""
        await self.submit(self.topic(name, leaders, *others))

    def topic(self, name: str, leaders: list[int], *others: int) -> list[MetadataRecord]:
        """The records of a new topic."""
        self._topics += 1
        topic_id = self._topics.to_bytes(16, "big")
        records: list[MetadataRecord] = [TopicRecord(name, topic_id)]
        for index, leader in enumerate(leaders):
            records.append(
                PartitionRecord(
                    index,
                    topic_id,
                    replicas=[leader, *others],
                    isr=[leader],
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[self._directory(node_id) for node_id in (leader, *others)],
                )
            )
        return records

    async def change(self, name: str, index: int, leader: int) -> None:
        """Another leader of a partition, or none."""
        topic_id = self.worlds[1].topic_id(name)
        isr = [leader] if leader >= 0 else None
        await self.submit([PartitionChangeRecord(index, topic_id, isr=isr, leader=leader)])

    async def remove(self, name: str) -> None:
        """Delete a topic."""
        await self.submit([RemoveTopicRecord(self.worlds[1].topic_id(name))])

    def _directory(self, node_id: int) -> bytes:
        return self.worlds[node_id].disk.directory_id()
