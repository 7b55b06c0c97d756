"""Connections of simulated clients: to one node, and to a cluster, where each request finds its node."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

from runnel.client.connection_state import ConnectionState
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.fetch import FetchRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.join_group import JoinGroupRequest
from runnel.messages.leave_group import LeaveGroupRequest
from runnel.messages.list_offsets import ListOffsetsRequest
from runnel.messages.metadata import MetadataRequest, MetadataResponse
from runnel.messages.offset_commit import OffsetCommitRequest
from runnel.messages.offset_fetch import OffsetFetchRequest
from runnel.messages.produce import ProduceRequest
from runnel.messages.sync_group import SyncGroupRequest
from runnel.messages.txn_offset_commit import TxnOffsetCommitRequest
from runnel.model.errors import ErrorCode
from runnel.sim.cluster.network import Network, Socket
from runnel.sim.cluster.scheduler import ProcessLoop
from runnel.sim.world import Answer, ConnectionLost
from runnel.wire import Request, Response

REQUEST_SECONDS = 4.0
"""How long a client waits for a response before it closes the connection and tries again."""

CONNECT_SECONDS = 1.5

GROUP_KEY, TRANSACTION_KEY = 0, 1

Place = tuple[str, int | str]
"""Where a request belongs: ("topic", partition), or ("group:", id) and ("transaction:", id)."""

Address = tuple[str, int]


class NodeConnection:
    """A client's connection to one node."""

    def __init__(self, network: Network, loop: ProcessLoop, host: str) -> None:
        self._network = network
        self._loop = loop
        self._host = host
        self._socket: Socket
        self._state = ConnectionState("sim")
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self.is_closed = False

    async def open(self, address: Address, *, is_classic: bool = False) -> "NodeConnection":
        """Connect and negotiate API versions; a classic client supports no features."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                self._socket = await self._network.connect(self._loop, self._host, *address)
        except OSError:
            raise ConnectionLost from None
        self._socket.on_data = self._received
        self._socket.on_end = self._ended
        self._state.set_api_versions(await self.ask(ApiVersionsRequest("sim", "1"), ApiVersionsResponse))
        if is_classic:
            self._state.features.clear()
        return self

    async def ask(self, request: Request, answer: type[Answer]) -> Answer:
        """Send a request and wait for its response. Raises ConnectionLost, also if it takes too long."""
        if self.is_closed:
            raise ConnectionLost
        number, buffers = self._state.send(request)
        future: asyncio.Future[Response] = self._loop.create_future()
        self._waiting[number] = future
        self._socket.send(b"".join(buffers))
        timer = self._loop.call_later(REQUEST_SECONDS, self.close)
        try:
            return cast(Answer, await future)
        finally:
            timer.cancel()

    def close(self) -> None:
        """Close the connection and fail pending requests."""
        self._socket.close()
        self._ended(False)

    def _received(self, data: bytes) -> None:
        for number, response in self._state.received(data):
            waiting = self._waiting.pop(number)
            if not waiting.done():
                waiting.set_result(response)

    def _ended(self, is_reset: bool) -> None:
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost())


class ClusterConnection:
    """A client's connections to a cluster: each request is sent to the node that is responsible for it.

    The leaders and coordinators are looked up once, and again after an error or a lost connection.
    """

    def __init__(
        self,
        connect: Callable[[Address], Any],
        bootstrap: list[Address],
        random: Random,
        epochs: dict[Place, int] | None = None,
    ) -> None:
        self._connect = connect
        self._bootstrap = bootstrap
        self._random = random
        self._connections: dict[Address, NodeConnection] = {}
        self._places: dict[Place, Address] = {}
        self._epochs: dict[Place, int] = {} if epochs is None else epochs
        """The leader epoch of each partition: a client does not return to an earlier leader (KIP-320)."""

    async def ask(self, request: Request, answer: type[Answer]) -> Answer:
        """Send a request to its node. Raises ConnectionLost, also if the node is not known."""
        place = place_of(request)
        try:
            address = self._random.choice(self._bootstrap) if place is None else await self._find(place)
            connection = await self._to(address)
            response = await connection.ask(request, answer)
        except ConnectionLost:
            if place is not None:
                self._places.pop(place, None)
            raise
        if place is not None and has_error(response):
            self._places.pop(place, None)
        return response

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _to(self, address: Address) -> NodeConnection:
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            connection = self._connections[address] = await self._connect(address)
        return connection

    async def _find(self, place: Place) -> Address:
        known = self._places.get(place)
        if known is not None:
            return known
        kind, key = place
        if kind in ("group:", "transaction:"):
            found = await self._find_coordinator(kind, str(key))
        else:
            found = await self._find_leader(kind, int(key))
        if found is None:
            raise ConnectionLost
        self._places[place] = found
        return found

    async def _find_leader(self, topic: str, partition: int) -> Address | None:
        connection = await self._to(self._random.choice(self._bootstrap))
        answer = await connection.ask(MetadataRequest(topics=None), MetadataResponse)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for each in answer.topics:
            if each.name == topic:
                for part in each.partitions:
                    if part.partition_index == partition:
                        known = self._epochs.get((topic, partition), -1)
                        self._epochs[topic, partition] = max(known, part.leader_epoch)
                        return None if part.leader_epoch < known else brokers.get(part.leader_id)
        return None

    async def _find_coordinator(self, kind: str, key: str) -> Address | None:
        connection = await self._to(self._random.choice(self._bootstrap))
        key_type = GROUP_KEY if kind == "group:" else TRANSACTION_KEY
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        found = (await connection.ask(request, FindCoordinatorResponse)).coordinators[0]
        return None if found.error_code else (found.host, found.port)


def place_of(request: Request) -> Place | None:
    """Which node a request belongs to; None if any can serve it."""
    match request:
        case ProduceRequest():
            return request.topic_data[0].name, request.topic_data[0].partition_data[0].index
        case FetchRequest():
            return request.topics[0].topic, request.topics[0].partitions[0].partition
        case ListOffsetsRequest():
            return request.topics[0].name, request.topics[0].partitions[0].partition_index
        case OffsetFetchRequest():
            return "group:", request.groups[0].group_id
        case (
            OffsetCommitRequest()
            | TxnOffsetCommitRequest()
            | JoinGroupRequest()
            | SyncGroupRequest()
            | HeartbeatRequest()
            | LeaveGroupRequest()
        ):
            return "group:", request.group_id
        case InitProducerIdRequest() if request.transactional_id is None:
            return None
        case InitProducerIdRequest() | EndTxnRequest() | AddOffsetsToTxnRequest():
            return "transaction:", str(request.transactional_id)
        case AddPartitionsToTxnRequest():
            return "transaction:", request.v3_and_below_transactional_id
    return None


def has_error(value: Any) -> bool:
    """Does a response, or any part of it, carry a retriable error?"""
    if isinstance(value, list):
        return any(map(has_error, value))
    code = getattr(value, "error_code", 0) or getattr(value, "partition_error_code", 0)
    if isinstance(code, int) and code and ErrorCode.from_code(code).retriable:
        return True
    slots = getattr(type(value), "__slots__", ())
    return any(isinstance(part, list) and has_error(part) for part in (getattr(value, s) for s in slots))
