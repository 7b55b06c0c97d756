"""Requests of clients to a broker that is not the active controller, and the broker's own requests to it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.broker.apis.handlers import APIS, FORWARDED
from runnel.broker.runtime import controller_channel, forwarding
from runnel.broker.runtime.controller_channel import CLOSED_MAX, LOCAL_CONNECTION, ControllerChannel
from runnel.broker.runtime.isr_changes import IsrChanges
from runnel.broker.runtime.pipeline import Pipeline
from runnel.messages.add_raft_voter import AddRaftVoterRequest
from runnel.messages.allocate_producer_ids import AllocateProducerIdsRequest
from runnel.messages.alter_partition import AlterPartitionRequest
from runnel.messages.broker_heartbeat import BrokerHeartbeatRequest
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest
from runnel.messages.envelope import EnvelopeRequest, EnvelopeResponse
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from runnel.messages.registry import api
from runnel.model.configs import ResourceType
from runnel.model.errors import ApiError, ErrorCode, NotController, StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.limits import RECORDLESS_REQUEST_BYTES_MAX, TEXT_BYTES_MAX
from runnel.net.listener import Listener
from runnel.net.peers import TcpPeers
from runnel.ports.peers import PeerClosed
from runnel.replica.leader import IsrProposal
from runnel.schemas.metadata import NoOpRecord
from runnel.server.shells import SystemClock
from runnel.wire import Request
from runnel.wire.frame import request_frame
from tests.broker.replicas import until
from tests.broker.world import BrokerWorld
from tests.wire.samples import example

CONTROLLER = "CONTROLLER"


class FakePeers:
    """Channels that answer as the test says."""

    def __init__(self, answer: Callable[[Request], Any]) -> None:
        self.answer = answer
        self.names: list[str] = []
        self.closed: list[str] = []
        self.sent: list[Request] = []

    def channel(self, host: str, port: int, client_id: str) -> Any:
        self.names.append(client_id)

        def send(request: Request, *, version: int | None = None, timeout_ms: int = 0) -> Any:
            self.sent.append(request)
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            answer = self.answer(request)
            if isinstance(answer, Exception):
                future.set_exception(answer)
            elif answer is not None:
                future.set_result(answer)
            return future

        return SimpleNamespace(send=send, close=lambda: self.closed.append(client_id), on_lost=None)


def channel_to(peers: FakePeers) -> ControllerChannel:
    metadata = SimpleNamespace(
        is_active=False, controller_endpoint=lambda: (1, "localhost", 9), changed=asyncio.Event().wait
    )
    broker: Any = SimpleNamespace(node_id=2, metadata=metadata, to_controllers=peers, clock=SystemClock())
    return ControllerChannel(broker)


def envelope(api_key: int = CreateTopicsRequest.api_key) -> EnvelopeRequest:
    return EnvelopeRequest(api_key.to_bytes(2, "big") + bytes(10), b"", bytes(4))


def test_a_slow_forwarded_request_delays_no_isr_change() -> None:
    async def run() -> None:
        peers = FakePeers(lambda request: None if isinstance(request, EnvelopeRequest) else request)
        channel = channel_to(peers)
        forwards = [
            asyncio.ensure_future(channel.request(envelope(key)))
            for key in (CreateTopicsRequest.api_key, AddRaftVoterRequest.api_key)
        ]
        await asyncio.sleep(0)
        change = AlterPartitionRequest(2, 1, [])
        assert await channel.request(change) is change
        allocation = AllocateProducerIdsRequest(2, 1)
        assert await channel.request(allocation) is allocation
        assert len(set(peers.names)) == len(peers.names) == 4, "each has a connection of its own"
        assert not any(forward.done() for forward in forwards)
        for forward in forwards:
            forward.cancel()

    asyncio.run(run())


def test_a_request_that_closes_connections_is_not_repeated_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "RETRY_DELAY_MS", 0)

    async def run() -> None:
        peers = FakePeers(lambda request: PeerClosed("closed") if isinstance(request, EnvelopeRequest) else 1)
        channel = channel_to(peers)
        await channel.request(AlterPartitionRequest(2, 1, []))
        with pytest.raises(ApiError) as refused:
            await channel.request(envelope())
        assert refused.value.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(peers.sent) == 1 + CLOSED_MAX
        assert "broker-2-alter-partition" not in peers.closed

    asyncio.run(run())


class Cluster:
    """Two brokers in one process: the first is the active controller, to which the second forwards."""

    def __init__(self, folder: Path) -> None:
        self.controller = BrokerWorld(folder / "1")
        self.other = BrokerWorld(folder / "2", node_id=2)

    async def __aenter__(self) -> "Cluster":
        controller, other = self.controller.broker, self.other.broker
        controller.controller_listeners = frozenset({CONTROLLER})
        await self.controller.__aenter__()
        self.listener = Listener(Pipeline(controller), CONTROLLER)
        self.port = self.listener.bind("127.0.0.1", 0)
        self.listener.accept()
        self.peers = TcpPeers()
        await self.other.__aenter__()
        self.use(self.peers, self.port)
        other.controller.close()
        return self

    def use(self, peers: Any, port: int = 9) -> None:
        """From now on the second broker forwards."""
        broker = self.other.broker
        broker.peers = peers

        class Forwarding(ControllerChannel):
            is_active = False
            must_forward = True

        broker.controller = Forwarding(broker)
        endpoint = (1, "127.0.0.1", port)
        broker.metadata.controller_endpoint = lambda: endpoint  # type: ignore[method-assign]

    async def __aexit__(self, *_: object) -> None:
        self.peers.close()
        await self.other.__aexit__()
        await self.listener.close(grace_seconds=0)
        await self.controller.__aexit__()


def in_cluster(tmp_path: Path, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Cluster(tmp_path) as cluster:
            await scenario(cluster)

    asyncio.run(run())


def test_the_largest_request_is_forwarded(tmp_path: Path) -> None:
    """The envelope around it is larger than what the listeners for clients accept."""

    def largest() -> Request:
        value = "x" * (TEXT_BYTES_MAX - 1)
        configs = [AlterableConfig("retention.ms", 0, value) for _ in range(511)]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(ResourceType.TOPIC, "t", configs)])

        def missing() -> int:
            frame = b"".join(request_frame(request, 0, 1, "test"))
            return RECORDLESS_REQUEST_BYTES_MAX + 4 - len(frame)

        configs.append(AlterableConfig("retention.ms", 0, "x" * 1000))
        configs[-1].value = "x" * (1000 + missing())
        assert missing() == 0
        return request

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.other.connect()
        response = await client.ask(largest(), 0)
        assert [result.error_code for result in response.responses] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        ]

    in_cluster(tmp_path, scenario)


def test_requests_that_wait_for_a_controller_have_a_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "FORWARDED_BYTES_MAX", 100)

    async def scenario(cluster: Cluster) -> None:
        cluster.use(FakePeers(lambda request: None))
        controller = cluster.other.broker.controller
        request = CreateTopicsRequest([CreatableTopic("t" * 50, 1, 1)])
        waiting, refused = await cluster.other.connect(), await cluster.other.connect()
        waiting.send(request, 7)
        await until(lambda: controller.forwarded_bytes)
        response = await refused.ask(request, 7)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.REQUEST_TIMED_OUT.code]
        cluster.use(FakePeers(lambda request: EnvelopeResponse(error_code=1)))
        response = await refused.ask(request, 7)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR.code]
        assert cluster.other.broker.controller.forwarded_bytes == 0

    in_cluster(tmp_path, scenario)


def test_clients_get_an_error_code_if_no_controller_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a response has error codes in its elements only: a closed connection says nothing."""
    monkeypatch.setattr(forwarding, "FORWARD_TIMEOUT_MS", 0)
    cases = [
        (key, version)
        for key in sorted(FORWARDED & APIS.keys())
        for version in (APIS[key].version_min, APIS[key].version_max)
    ]

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.other.connect()
        for key, version in cases:
            response = await client.ask(example(api(key).request, version, "full"), version)
            # A field that the version does not have is 0.
            codes = set(error_codes(response)) - {0}
            assert codes == {ErrorCode.REQUEST_TIMED_OUT.code}, (api(key).name, version)

    in_cluster(tmp_path, scenario)


def test_a_controller_that_is_not_active_says_so_in_each_element(tmp_path: Path) -> None:
    def refuse() -> None:
        raise NotController("another node is active")

    async def scenario(cluster: Cluster) -> None:
        channel = cluster.peers.channel("127.0.0.1", cluster.port, "test")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster.controller.broker.metadata, "_active", refuse)
            topics = [CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1)]
            response = await channel.send(CreateTopicsRequest(topics))
        expected = ErrorCode.NOT_CONTROLLER.code
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", expected),
            ("b", expected),
        ]

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_request_that_a_controller_forwards_to_itself_is_not_forwarded_again(
    tmp_path: Path, is_writable: bool
) -> None:
    """It has resigned, and does not know the next one yet: it waits, instead of nesting envelopes."""
    sizes_bytes: list[int] = []

    async def scenario(cluster: Cluster) -> None:
        broker = cluster.controller.broker
        serve, active = broker.serve_forwarded, broker.metadata._active

        def serve_and_count(frame: memoryview, session: Any) -> Any:
            sizes_bytes.append(len(frame))
            return serve(frame, session)

        def refuse_some() -> Any:
            if len(sizes_bytes) < 4:
                raise NotController("this node has resigned")
            if not is_writable:
                raise StorageFailed("the disk is full")
            return active()

        client = await cluster.controller.connect()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(broker, "serve_forwarded", serve_and_count)
            patch.setattr(broker.metadata, "_active", refuse_some)
            response = await client.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        expected = ErrorCode.NONE if is_writable else ErrorCode.KAFKA_STORAGE_ERROR
        assert [topic.error_code for topic in response.topics] == [expected.code]

    in_cluster(tmp_path, scenario)
    assert len(sizes_bytes) == 4
    assert len(set(sizes_bytes)) == 1


def test_only_the_connection_of_a_valid_heartbeat_is_that_of_the_broker(tmp_path: Path) -> None:
    """When another one is closed, the session of the broker is not shortened."""

    async def scenario(cluster: Cluster) -> None:
        broker = cluster.controller.broker
        duties = broker.duties
        channel = cluster.peers.channel("127.0.0.1", cluster.port, "test")
        request = BrokerHeartbeatRequest(1, broker.epoch - 1, 0)
        response = await channel.send(request)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH.code
        assert duties._connections.get(1, LOCAL_CONNECTION) == LOCAL_CONNECTION
        request.broker_epoch = broker.epoch
        assert (await channel.send(request)).error_code == 0
        assert duties._connections[1] != LOCAL_CONNECTION

    in_cluster(tmp_path, scenario)


def test_heartbeats_do_not_wait_for_the_metadata_log(tmp_path: Path) -> None:
    """The next one is sent after the response: a slow disk of the controller would end the session."""

    async def scenario(cluster: Cluster) -> None:
        broker = cluster.controller.broker
        controller = broker.metadata.controller
        assert controller is not None
        channel = cluster.peers.channel("127.0.0.1", cluster.port, "test")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(broker.metadata, "_apply_soon", lambda: None)
            controller.append([NoOpRecord()])
            response = await channel.send(BrokerHeartbeatRequest(1, broker.epoch, 0), timeout_ms=10_000)
            assert (response.error_code, response.is_fenced, controller.has_pending) == (0, False, True)
        broker.metadata._apply_soon()

    in_cluster(tmp_path, scenario)


def test_isr_changes_that_fail_are_not_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(request: Request, *, timeout_ms: int) -> Any:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller answers")

    async def run() -> None:
        controller = SimpleNamespace(request=refuse)
        broker: Any = SimpleNamespace(node_id=1, epoch=1, controller=controller, clock=SystemClock())
        changes = IsrChanges(broker)
        partition: Any = type("Partition", (), {"topic_id": bytes(16), "name": TopicPartition("t", 0)})()
        proposal = IsrProposal(((1, 1),), 0, 0)
        for _ in range(3):
            assert not await changes._send({partition: proposal})

    asyncio.run(run())
    assert [record.levelname for record in caplog.records if "will retry" in record.getMessage()] == [
        "WARNING"
    ]


def error_codes(response: Any) -> Any:
    """All error codes in a response."""
    for name in response.__slots__:
        value = getattr(response, name)
        if name in ("error_code", "partition_error_code"):
            yield value
        elif isinstance(value, list):
            for each in value:
                if hasattr(each, "__slots__"):
                    yield from error_codes(each)
