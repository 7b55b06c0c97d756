"""Cluster metadata, coordinator lookup, and connections to brokers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from runnel.client.backoff import Backoff
from runnel.client.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Connection
from runnel.client.errors import BrokerError, BrokerNotAvailable, ClientError, NoBrokerAvailable, check
from runnel.client.security import security_of
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.wire import Request, Response

DEFAULT_PORT = 9092
MISSING_TOPIC_TIMEOUT_S = 1.0
"""How long an unknown topic is retried, because new topics may not have propagated to all brokers yet."""
METADATA_MAX_AGE_S = 300.0
"""As metadata.max.age.ms of Kafka's clients: other clients may recreate topics and add partitions."""
GROUP_KEY = 0
TRANSACTION_KEY = 1

ResponseT = TypeVar("ResponseT", bound=Response)
T = TypeVar("T")
Address = tuple[str, int, object]
"""Host, port, and the lane of a dedicated connection."""


@dataclass(slots=True)
class Node:
    """One broker of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class PartitionView:
    """The metadata of one partition."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]


@dataclass(slots=True)
class TopicView:
    """The metadata of one topic; partitions are sorted by index."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionView]
    fetched_s: float = field(default=0.0, repr=False, compare=False)
    """When it was fetched, by the monotonic clock."""


class Cluster:
    """A client's view of a cluster."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "runnel",
        timeout_s: float = REQUEST_TIMEOUT_S,
        api_timeout_s: float | None = None,
        metadata_max_age_s: float = METADATA_MAX_AGE_S,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`timeout_s` limits one request, `api_timeout_s` an operation with its retries (KIP-266).

        `properties` are those of Kafka's clients for TLS and SASL, such as `security.protocol`.
        """
        self.bootstrap = parse_addresses(bootstrap)
        self.client_id = client_id
        self.security = security_of(properties)
        self.timeout_s = timeout_s
        self.api_timeout_s = timeout_s if api_timeout_s is None else api_timeout_s
        self._metadata_max_age_s = metadata_max_age_s
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self._topics: dict[str, TopicView] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Task[Connection]] = {}

    async def __aenter__(self) -> Self:
        try:
            await self.any_connection()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))
        self._connections.clear()

    # Connections.

    async def connection(self, node_id: int, lane: object = None) -> Connection:
        """The connection to a broker, opened on demand.

        A broker responds in order on each connection, so blocking requests (long polls, joins) use a
        dedicated connection, identified by a `lane`.
        """
        if node_id not in self.nodes:
            await self.refresh([])
        node = self.nodes.get(node_id)
        if node is None:
            raise BrokerNotAvailable(node_id)
        return await self._connect((node.host, node.port, lane))

    async def any_connection(self) -> Connection:
        """A connection to any broker: an open one, a known broker, or a bootstrap server, in this order."""
        for (_, _, lane), connection in self._connections.items():
            if lane is None and connection.is_open:
                return connection
        reason = "connection refused"
        known = [(node.host, node.port) for node in self.nodes.values()]
        for host, port in dict.fromkeys(known + self.bootstrap):
            try:
                return await self._connect((host, port, None))
            except NoBrokerAvailable as error:
                reason = error.reason
        raise NoBrokerAvailable(", ".join(f"{host}:{port}" for host, port in self.bootstrap), reason)

    async def close_lane(self, lane: object) -> None:
        """Close the dedicated connections of a lane."""
        addresses = [address for address in self._connections if address[2] is lane]
        await asyncio.gather(*(self._connections.pop(address).close() for address in addresses))

    async def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        task = self._opening.get(address)
        if task is None:
            # Shared by concurrent callers, and a separate task so that a cancelled caller does not cancel it.
            task = asyncio.create_task(self._open(address))
            self._opening[address] = task
        return await asyncio.shield(task)

    async def _open(self, address: Address) -> Connection:
        host, port, _ = address
        try:
            connection = await Connection.open(
                host,
                port,
                client_id=self.client_id,
                timeout_s=min(CONNECT_TIMEOUT_S, self.timeout_s),
                security=self.security,
            )
            self._connections[address] = connection
            return connection
        finally:
            del self._opening[address]

    # Metadata.

    async def refresh(
        self, topics: Iterable[str] | None, *, allow_auto_create: bool = False
    ) -> MetadataResponse:
        """Fetch the metadata of the brokers and of some topics, none ([]), or all (None)."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=allow_auto_create)
        connection = await self.any_connection()
        response = await connection.send(request, MetadataResponse, timeout_s=self.timeout_s)
        check(response.error_code, "fetching metadata")
        self.cluster_id, self.controller_id = response.cluster_id, response.controller_id
        self.nodes = {
            node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in response.brokers
        }
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code:
                self._topics.pop(topic.name, None)
            else:
                self._topics[topic.name] = _topic_view(topic)
        return response

    async def topics(self) -> list[TopicView]:
        """All topics, sorted by name."""
        response = await self.retry(lambda: self.refresh(None))
        return sorted(
            (_topic_view(topic) for topic in response.topics if topic.name), key=lambda topic: topic.name
        )

    async def topic(
        self,
        name: str,
        *,
        allow_auto_create: bool = False,
        missing_s: float = MISSING_TOPIC_TIMEOUT_S,
        max_age_s: float | None = None,
    ) -> TopicView:
        """The metadata of a topic, cached or fetched. BrokerError if it does not exist after `missing_s`.

        With `max_age_s` it is not older than that, instead of the maximum age of this client.
        """
        known = self._topics.get(name)
        if known is not None:
            now_s = time.monotonic()
            if now_s - known.fetched_s < (self._metadata_max_age_s if max_age_s is None else max_age_s):
                return known
            if max_age_s is None:
                # One caller fetches it; others use what is known meanwhile.
                known.fetched_s = now_s
        return await self._find_topic(name, allow_auto_create, missing_s)

    async def _find_topic(self, name: str, allow_auto_create: bool, missing_s: float) -> TopicView:
        backoff, missing = Backoff(self.api_timeout_s), Backoff(missing_s)
        while True:
            response = await self.retry(lambda: self.refresh([name], allow_auto_create=allow_auto_create))
            topic = self._topics.get(name)
            if topic is not None:
                return topic
            error = ErrorCode.from_code(response.topics[0].error_code)
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                hint = f"topic {name!r} does not exist; create it with `runnel topic create {name}`"
                await missing.after(BrokerError(error, f"topic {name}", hint))
            else:
                await backoff.after(BrokerError(error, f"topic {name}"))

    def invalidate_topic(self, name: str) -> None:
        """Discard the cached metadata of a topic."""
        self._topics.pop(name, None)

    async def leader(self, partition: TopicPartition) -> int:
        """The leader of a partition; fetches metadata if the topic is not cached."""
        if partition.topic not in self._topics:
            await self.refresh([partition.topic])
        topic = self._topics.get(partition.topic)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        if not 0 <= partition.partition < len(topic.partitions):
            self.invalidate_topic(partition.topic)
            count = len(topic.partitions)
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                str(partition),
                f"topic {partition.topic!r} has {count} partition{'s' * (count != 1)}, numbered from 0",
            )
        view = topic.partitions[partition.partition]
        if view.leader < 0:
            self.invalidate_topic(partition.topic)
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
        return view.leader

    async def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader."""
        groups: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            groups.setdefault(await self.leader(partition), []).append(partition)
        return groups

    # Requests.

    async def send_to_any(self, request: Request, response_type: type[ResponseT]) -> ResponseT:
        """Send a request to any broker."""
        connection = await self.any_connection()
        return await connection.send(request, response_type, timeout_s=self.timeout_s)

    async def send_to_node(self, node_id: int, request: Request, response_type: type[ResponseT]) -> ResponseT:
        """Send a request to a broker."""
        connection = await self.connection(node_id)
        return await connection.send(request, response_type, timeout_s=self.timeout_s)

    async def send_to_controller(self, request: Request, response_type: type[ResponseT]) -> ResponseT:
        """Send a request to the controller, or to any broker if brokers forward it."""
        if not self.nodes:
            await self.refresh([])
        if self.controller_id in self.nodes:
            return await self.send_to_node(self.controller_id, request, response_type)
        return await self.send_to_any(request, response_type)

    async def send_to_coordinator(
        self,
        key: str,
        request: Request,
        response_type: type[ResponseT],
        *,
        kind: int = GROUP_KEY,
        lane: object = None,
        timeout_s: float | None = None,
    ) -> ResponseT:
        """Send a request to the coordinator of a group or transactional id."""
        connection = await self.connection(await self.coordinator(key, kind), lane)
        return await connection.send(request, response_type, timeout_s=timeout_s or self.timeout_s)

    async def coordinator(self, key: str, kind: int = GROUP_KEY) -> int:
        """The coordinator of a group or transactional id."""
        if (kind, key) in self._coordinators:
            return self._coordinators[kind, key]
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        response = await self.send_to_any(request, FindCoordinatorResponse)
        # Up to version 3 the response has one coordinator at the top level.
        found = response.coordinators[0] if response.coordinators else response
        name = "group" if kind == GROUP_KEY else "transactional id"
        check(found.error_code, f"finding the coordinator of {name} {key}", found.error_message)
        if found.node_id not in self.nodes:
            self.nodes[found.node_id] = Node(found.node_id, found.host, found.port)
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def invalidate_coordinator(self, key: str, kind: int = GROUP_KEY) -> None:
        """Discard the cached coordinator."""
        self._coordinators.pop((kind, key), None)

    async def retry(
        self, operation: Callable[[], Awaitable[T]], recover: Callable[[], None] | None = None
    ) -> T:
        """Retry an operation until it succeeds, fails or times out; `recover` runs before each retry."""
        backoff = Backoff(self.api_timeout_s)
        while True:
            try:
                return await operation()
            except ClientError as error:
                await backoff.after(error)
                if recover is not None:
                    recover()


def parse_addresses(bootstrap: str | Sequence[str]) -> list[tuple[str, int]]:
    """Parse "host:port,host:port"; the port is optional, IPv6 hosts are in brackets."""
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    addresses = [_parse_address(text.strip()) for text in texts if text.strip()]
    if not addresses:
        raise ValueError("no bootstrap server was given; expected host:port, for example 127.0.0.1:9092")
    return addresses


def _parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"invalid bootstrap server {text!r}; expected host:port, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _topic_view(topic: MetadataResponseTopic) -> TopicView:
    partitions = [
        PartitionView(
            view.partition_index,
            view.leader_id,
            view.leader_epoch,
            view.replica_nodes,
            view.isr_nodes,
        )
        for view in sorted(topic.partitions, key=lambda view: view.partition_index)
    ]
    return TopicView(topic.name or "", topic.topic_id, topic.is_internal, partitions, time.monotonic())
