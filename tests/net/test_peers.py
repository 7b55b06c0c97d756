"""Channels to other nodes: pipelining, negotiation, timeouts, and every way in which a connection ends."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from runnel.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from runnel.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.messages.registry import FLEXIBLE_FROM, api
from runnel.model.errors import ErrorCode
from runnel.model.limits import PEER_REQUESTS_IN_FLIGHT_MAX
from runnel.net.peers import PeerChannel, TcpPeers
from runnel.ports.peers import PeerClosed, PeerFailed, PeerRefused, PeerUnsupported
from runnel.wire import Request, Response, decode
from runnel.wire.frame import read_request_header, response_frame

Answer = Callable[[Request, int], Response | bytes | None]


class Node:
    """A node that answers requests as `answer` says: a response, raw bytes, or None for never."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.received: list[tuple[str, int]] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.piece_bytes = 0
        """Responses are sent in pieces of this size, if it is not 0."""

    async def listen(self) -> int:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        self.server.close()
        self.drop()
        await asyncio.sleep(0)

    def drop(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = memoryview(await reader.readexactly(size))
                header = read_request_header(frame, FLEXIBLE_FROM)
                request = decode(api(header.api_key).request, header.api_version, frame, header.body_position)
                self.received.append((api(header.api_key).name, header.api_version))
                await self._respond(writer, request, header.api_version, header.correlation_id)

    async def _respond(self, writer, request: Request, version: int, correlation_id: int) -> None:
        response: Response | bytes | None
        if isinstance(request, ApiVersionsRequest) and not isinstance(self.answer, NotEvenVersions):
            response = versions(heartbeat=(0, 3), fetch=(4, 17))
        else:
            response = self.answer(request, version) if self.answer else HeartbeatResponse()
        if response is None:
            return
        if getattr(response, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION.code:
            version = 0
        data = (
            response
            if isinstance(response, bytes)
            else b"".join(response_frame(response, version, correlation_id))
        )
        step = self.piece_bytes or len(data)
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            if self.piece_bytes:
                await asyncio.sleep(0.001)


class NotEvenVersions:
    """An answer that is asked for ApiVersions too."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, request: Request, version: int) -> Response | bytes | None:
        return self._answer(request, version)


def versions(error: ErrorCode = ErrorCode.NONE, **ranges: tuple[int, int]) -> ApiVersionsResponse:
    keys = {"heartbeat": 12, "fetch": 1, "api_versions": 18}
    return ApiVersionsResponse(
        error_code=error.code,
        api_keys=[
            ApiVersion(api_key=keys[name], min_version=low, max_version=high)
            for name, (low, high) in ranges.items()
        ],
    )


@contextlib.asynccontextmanager
async def connected(answer: Answer | None = None) -> AsyncIterator[tuple[Node, PeerChannel]]:
    node = Node(answer)
    peers = TcpPeers()
    channel = peers.channel("127.0.0.1", await node.listen(), "node-1")
    try:
        yield node, channel
    finally:
        peers.close()
        await node.stop()


async def ask(channel: PeerChannel, **options: int) -> HeartbeatResponse:
    response: HeartbeatResponse = await channel.send(HeartbeatRequest(group_id="g"), **options)
    return response


def test_requests_are_pipelined_in_the_newest_common_version(run):
    async def scenario():
        async with connected() as (node, channel):
            responses = await asyncio.gather(*(ask(channel) for _ in range(50)))
            assert all(isinstance(response, HeartbeatResponse) for response in responses)
            assert node.connections == 1
            # Version 4 is known to this node only.
            assert node.received == [("ApiVersions", 4), *[("Heartbeat", 3)] * 50]

    run(scenario())


def test_a_given_version_is_sent_without_negotiation(run):
    async def scenario():
        async with connected() as (node, channel):
            await ask(channel, version=4)
            assert node.received == [("Heartbeat", 4)]
            with pytest.raises(ValueError, match="HeartbeatRequest has no version 99"):
                await ask(channel, version=99)

    run(scenario())


def test_an_older_node_states_its_versions_of_api_versions(run):
    def answer(request: Request, version: int) -> Response:
        if isinstance(request, ApiVersionsRequest):
            error = ErrorCode.UNSUPPORTED_VERSION if version > 2 else ErrorCode.NONE
            return versions(error, api_versions=(0, 2), heartbeat=(0, 1))
        return HeartbeatResponse()

    async def scenario():
        async with connected(NotEvenVersions(answer)) as (node, channel):
            await ask(channel)
            assert node.received == [("ApiVersions", 4), ("ApiVersions", 2), ("Heartbeat", 1)]

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda *_: versions(ErrorCode.UNSUPPORTED_VERSION), "error code 35"),
        (lambda *_: versions(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "error code 31"),
        (
            lambda *_: versions(ErrorCode.UNSUPPORTED_VERSION, api_versions=(9, 9)),
            "no version of ApiVersions is supported by both nodes",
        ),
    ],
    ids=["always unsupported", "refused", "too new"],
)
def test_a_node_that_refuses_to_negotiate_fails_requests(run, answer, message):
    async def scenario():
        async with connected(NotEvenVersions(answer)) as (_, channel):
            with pytest.raises(PeerFailed, match=message):
                await ask(channel)

    run(scenario())


def test_an_api_that_the_node_lacks_fails_alone(run):
    async def scenario():
        async with connected() as (_, channel):
            good, bad = channel.send(HeartbeatRequest()), channel.send(api(3).request())
            with pytest.raises(PeerUnsupported, match="no version of Metadata"):
                await bad
            assert isinstance(await good, HeartbeatResponse)

    run(scenario())


def fetched(size_bytes: int) -> FetchResponse:
    records = memoryview(bytes(range(256)) * (size_bytes // 256 + 1))[:size_bytes]
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])


def test_a_node_that_supports_more_later_is_asked_again(run):
    """A controller that is starting answers only what others need to find their cluster."""
    offers = [versions(), versions(heartbeat=(0, 3))]

    def answer(request: Request, version: int) -> Response | bytes | None:
        return offers.pop(0) if isinstance(request, ApiVersionsRequest) else HeartbeatResponse()

    async def scenario():
        async with connected(NotEvenVersions(answer)) as (_, channel):
            with pytest.raises(PeerUnsupported):
                await channel.send(HeartbeatRequest())
            assert isinstance(await channel.send(HeartbeatRequest()), HeartbeatResponse)

    run(scenario())


@pytest.mark.parametrize("piece_bytes", [0, 1000])
def test_records_are_views_of_one_buffer_per_response(run, piece_bytes):
    sizes = [0, 1, 300, 16_000, 16_384, 40_000]

    async def scenario():
        wanted = iter(sizes)
        async with connected(lambda *_: fetched(next(wanted))) as (node, channel):
            node.piece_bytes = piece_bytes
            responses = await asyncio.gather(*(channel.send(FetchRequest()) for _ in sizes))
        for size_bytes, response in zip(sizes, responses, strict=True):
            (partition,) = response.responses[0].partitions
            assert partition.records == fetched(size_bytes).responses[0].partitions[0].records

    run(scenario())


def test_a_response_larger_than_the_first_buffer(run):
    async def scenario():
        async with connected(lambda *_: fetched(9 * 1024 * 1024)) as (_, channel):
            response = await channel.send(FetchRequest())
            assert len(response.responses[0].partitions[0].records) == 9 * 1024 * 1024

    run(scenario())


def test_a_lost_connection_fails_all_in_flight_and_the_next_request_reconnects(run):
    async def scenario():
        async with connected(lambda *_: None) as (node, channel):
            lost = []
            channel.on_lost = lambda: lost.append(True)
            waiting = [asyncio.ensure_future(ask(channel)) for _ in range(3)]
            while len(node.received) < 4:
                await asyncio.sleep(0.001)
            node.drop()
            failures = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(failure) for failure in failures] == [PeerClosed] * 3
            assert lost == [True]
            node.answer = lambda *_: HeartbeatResponse()
            await ask(channel)
            assert node.connections == 2

    run(scenario())


def test_an_idle_connection_that_is_lost_is_reported(run):
    async def scenario():
        async with connected() as (node, channel):
            lost = asyncio.Event()
            channel.on_lost = lost.set
            await ask(channel)
            node.drop()
            async with asyncio.timeout(10):
                await lost.wait()

    run(scenario())


def test_closing_fails_requests_and_is_not_a_loss(run):
    async def scenario():
        async with connected(lambda *_: None) as (node, channel):
            lost = []
            channel.on_lost = lambda: lost.append(True)
            waiting = channel.send(HeartbeatRequest())
            while len(node.received) < 2:
                await asyncio.sleep(0.001)
            channel.close()
            with pytest.raises(PeerFailed, match="closed by this node"):
                await waiting
            node.answer = lambda *_: HeartbeatResponse()
            await ask(channel)
            assert lost == []

    run(scenario())


def test_a_late_response_fails_the_connection(run):
    async def scenario():
        async with connected(lambda *_: None) as (node, channel):
            patient = channel.send(HeartbeatRequest())
            with pytest.raises(PeerFailed, match="no response to Heartbeat in time"):
                await ask(channel, timeout_ms=50)
            assert patient.done()
            node.answer = lambda *_: HeartbeatResponse()
            await ask(channel, timeout_ms=5000)
            assert node.connections == 2

    run(scenario())


def test_an_answered_request_does_not_time_out_later(run):
    async def scenario():
        async with connected() as (node, channel):
            await ask(channel, timeout_ms=1000)
            await asyncio.sleep(1.1)
            await ask(channel, timeout_ms=5000)
            assert node.connections == 1

    run(scenario())


def test_a_cancelled_request_leaves_the_others_alone(run):
    async def scenario():
        async with connected() as (node, channel):
            first = channel.send(HeartbeatRequest())
            second = channel.send(HeartbeatRequest())
            first.cancel()
            assert isinstance(await second, HeartbeatResponse)
            assert node.connections == 1

    run(scenario())


def test_a_refused_connection_fails_requests(run):
    async def scenario():
        async with connected() as (node, channel):
            await node.stop()
            with pytest.raises(PeerRefused, match=rf"127.0.0.1:{channel.port}: the connection was refused"):
                await ask(channel)
            # A name with several addresses.
            named = TcpPeers().channel("localhost", channel.port, "node-1")
            with pytest.raises(PeerRefused):
                await ask(named)

    run(scenario())


def test_a_connection_that_is_not_answered_times_out(run):
    async def scenario():
        # An address for documentation (RFC 5737), to which no packet is answered; some machines refuse it.
        channel = TcpPeers(connect_timeout_ms=100).channel("192.0.2.1", 9092, "node-1")
        with pytest.raises(PeerFailed):
            async with asyncio.timeout(4):
                await ask(channel)

    run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">ii", 4, 12345),
        struct.pack(">ii", 5, 1) + b"\x00",
    ],
    ids=["negative", "huge", "other protocol", "unknown correlation id", "truncated"],
)
def test_an_invalid_response_fails_the_connection(run, answer):
    async def scenario():
        async with connected(lambda *_: answer) as (_, channel):
            with pytest.raises(PeerFailed, match="invalid response"):
                await ask(channel)

    run(scenario())


def test_a_node_that_stops_opens_no_connections(run):
    async def scenario():
        node, peers = Node(), TcpPeers()
        channel = peers.channel("127.0.0.1", await node.listen(), "node-1")
        waiting = channel.send(HeartbeatRequest())
        peers.close()
        for request in (waiting, channel.send(HeartbeatRequest())):
            with pytest.raises(PeerFailed, match="this node is stopping"):
                await request
        assert node.connections == 0
        await node.stop()

    run(scenario())


def test_the_number_of_requests_is_bounded(run):
    async def scenario():
        async with connected() as (_, channel):
            accepted = [channel.send(HeartbeatRequest()) for _ in range(PEER_REQUESTS_IN_FLIGHT_MAX)]
            with pytest.raises(PeerFailed, match="too many requests"):
                await channel.send(HeartbeatRequest())
            assert isinstance(await accepted[-1], HeartbeatResponse)

    run(scenario())
