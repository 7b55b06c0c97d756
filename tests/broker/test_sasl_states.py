"""A client that sends every API in every version, in every state of its connection, gets only what it may."""

import asyncio
import struct
from typing import Any

import pytest

from runnel.broker.apis.handlers import APIS
from runnel.broker.runtime.pipeline import Pipeline
from runnel.broker.runtime.sasl import SaslGate, SaslListener
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.messages.metadata import MetadataRequest
from runnel.messages.registry import api
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.model.limits import SLICE_ELEMENTS
from runnel.ports.service import CloseConnection, Reply, Session
from runnel.security.login_failures import LoginFailures
from runnel.security.plain_server import PlainUsers
from runnel.security.principal import ANONYMOUS
from runnel.security.sasl_client import Credentials, client_mechanism
from runnel.security.sasl_server import OfferedMechanism
from runnel.security.scram import SCRAM_HASHES, salted_password, verifier_of
from runnel.security.scram_server import ScramServer, ScramUsers
from runnel.wire import Request, decode
from runnel.wire.frame import request_frame
from tests.broker.requests import batch, fetch_from, produce_to
from tests.broker.world import BrokerWorld
from tests.wire.samples import example

EVERY = [
    (key, version) for key, row in APIS.items() for version in range(row.version_min, row.version_max + 1)
]
UNSERVED = [(key, 0) for key in (-1, 4, 71, 93, 32767)] + [(3, -1), (3, 99), (17, 2), (18, 99), (36, 3)]
"""APIs and versions that the broker does not have."""
SCRAM = "SCRAM-SHA-256"
SESSION_MS = 60_000
VERIFIER = verifier_of(
    SCRAM_HASHES[SCRAM], salted_password(SCRAM_HASHES[SCRAM], "bob-secret", b"salt", 4096), b"salt", 4096
)


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def seconds(self) -> float:
        return self.ms / 1000


class Client:
    """A connection to a SASL listener, without sockets."""

    def __init__(self, world: BrokerWorld, listener: str = "SASL_PLAINTEXT") -> None:
        plain = PlainUsers({"alice": "alice-secret"}, lambda mechanism, user: None, b"secret")
        scram = ScramUsers(lambda mechanism, user: VERIFIER, lambda token_id: None, b"secret")
        self.clock = Clock()
        self.listener = SaslListener(
            {
                "PLAIN": OfferedMechanism(plain.begin, SESSION_MS),
                SCRAM: OfferedMechanism(lambda: ScramServer(SCRAM, scram, "server"), SESSION_MS),
            },
            self.clock,
            world.broker.timers,
            lambda work, done: done(work()),
            LoginFailures(),
            failure_delay_ms=0,
        )
        world.broker.gates.authenticator = SaslGate()
        self.pipeline = Pipeline(world.broker)
        self.session = Session("host", 1, listener, 1)
        self.listener.open(self.session)

    def send(self, request: Request, version: int) -> Reply | None:
        """The response, None for none; raises CloseConnection."""
        return self.send_frame(b"".join(request_frame(request, version, 1, "client")))

    def send_frame(self, frame: bytes) -> Reply | None:
        data = memoryview(bytearray(frame))
        replies: list[Reply] = []
        try:
            self.pipeline.serve(data, 4, len(data), len(data), self.session, replies, 1)
        finally:
            self.pipeline.finish_turn()
        return replies[0] if replies else None

    async def answer(self, request: Request, version: int) -> bytes:
        reply = self.send(request, version)
        assert reply is not None
        while not reply.is_filled:
            await asyncio.sleep(0)
        return b"".join(reply.parts)  # type: ignore[arg-type]

    async def log_in_by_scram(self) -> None:
        credentials = client_mechanism(SCRAM, Credentials("bob", "bob-secret"), "client")
        await self.answer(SaslHandshakeRequest(SCRAM), 1)
        token: bytes | None = credentials.first()
        while token is not None:
            answer = memoryview(await self.answer(SaslAuthenticateRequest(token), 1))
            token = credentials.respond(bytes(decode(SaslAuthenticateResponse, 1, answer, 8).auth_bytes))
        assert str(self.session.principal) == "User:bob"

    async def log_in(self) -> None:
        await self.answer(SaslHandshakeRequest("PLAIN"), 1)
        await self.answer(SaslAuthenticateRequest(b"\0alice\0alice-secret"), 2)
        assert str(self.session.principal) == "User:alice"


async def fresh(client: Client) -> None:
    """Nothing was sent."""


async def versioned(client: Client) -> None:
    await client.answer(ApiVersionsRequest("a", "1"), 3)


async def handshaken(client: Client) -> None:
    await client.answer(SaslHandshakeRequest("PLAIN"), 1)


async def failed(client: Client) -> None:
    await handshaken(client)
    await client.answer(SaslAuthenticateRequest(b"\0alice\0wrong"), 2)


async def half_way(client: Client) -> None:
    """The challenge of SCRAM is answered by nothing."""
    await client.answer(SaslHandshakeRequest(SCRAM), 1)
    await client.answer(SaslAuthenticateRequest(b"n,,n=bob,r=client"), 2)


async def without_headers(client: Client) -> None:
    """What follows version 0 of SaslHandshake is tokens."""
    await client.answer(SaslHandshakeRequest("PLAIN"), 0)


async def half_way_without_headers(client: Client) -> None:
    await client.answer(SaslHandshakeRequest(SCRAM), 0)
    token = b"n,,n=bob,r=client"
    assert client.send_frame(len(token).to_bytes(4, "big") + token) is not None


async def expired(client: Client) -> None:
    await client.log_in()
    client.clock.ms += SESSION_MS


async def authenticating_again(client: Client) -> None:
    await client.log_in()
    await handshaken(client)


async def half_way_again(client: Client) -> None:
    await client.log_in_by_scram()
    await half_way(client)


async def expired_and_half_way_again(client: Client) -> None:
    await client.log_in_by_scram()
    client.clock.ms += SESSION_MS
    await half_way(client)


async def failed_again(client: Client) -> None:
    await client.log_in()
    await failed(client)


PERMITTED: dict[Any, set[int]] = {
    fresh: {17, 18},
    versioned: {17},
    handshaken: {36},
    half_way: {36},
    without_headers: set(),
    half_way_without_headers: set(),
    failed: set(),
    expired: {17},
    authenticating_again: {36},
    half_way_again: {36},
    expired_and_half_way_again: {36},
    failed_again: set(),
}
REFUSED_BY_CODE = {handshaken, half_way, authenticating_again, half_way_again, expired_and_half_way_again}
"""States in which a request is rejected as illegal."""
TOKENS_EXPECTED = {without_headers, half_way_without_headers}
"""States in which a request is rejected as an invalid token."""
ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION = (34).to_bytes(2, "big"), (35).to_bytes(2, "big")

SILENT = {(35, 1), (35, 2)}
"""DescribeLogDirs, whose response has no place for the error."""


def watching(add_route: Any, reached: list[int]) -> Any:
    """Routes whose handlers note that they were called."""

    def watched(routes, api_key, version):
        route = add_route(routes, api_key, version)
        handler = route.handler

        def handle(request, ctx):
            reached.append(api_key)
            return handler(request, ctx)

        route.handler = handle
        return route

    return watched


def frame_of(api_key: int, version: int) -> bytes:
    if (api_key, version) in UNSERVED:
        body = struct.pack(">hhih", api_key, version, 1, -1) + bytes(40)
        return len(body).to_bytes(4, "big") + body
    return b"".join(request_frame(example(api(api_key).request, version, "full"), version, 1, "client"))


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "CONTROLLER"])
@pytest.mark.parametrize("state", PERMITTED, ids=lambda state: state.__name__)
def test_before_authentication_no_handler_is_reached(tell, monkeypatch, state, listener) -> None:
    reached: list[int] = []

    async def attempt(client: Client, api_key: int, version: int) -> None:
        principal = client.session.principal
        watched = watching(client.pipeline._add_route, reached)
        client.pipeline._add_route = watched  # type: ignore[method-assign]
        client.pipeline._routes.clear()
        client.pipeline._controller_routes.clear()
        reached.clear()
        try:
            reply = client.send_frame(frame_of(api_key, version))
        except CloseConnection:
            reply = None
        if api_key in PERMITTED[state]:
            return
        assert not reached
        if reply is None:
            # Closed without a response.
            return
        assert state in REFUSED_BY_CODE | TOKENS_EXPECTED
        while not reply.is_filled:
            await asyncio.sleep(0)
        assert client.session.principal == principal
        assert reply.close_reason
        answer = b"".join(reply.parts)  # type: ignore[arg-type]
        # Versions of APIs are no secret.
        code = UNSUPPORTED_VERSION if api_key == 18 and version == 99 else ILLEGAL_SASL_STATE
        assert code in answer if state in REFUSED_BY_CODE and (api_key, version) not in SILENT else not answer
        with pytest.raises(CloseConnection):
            client.send(MetadataRequest(), 4)

    async def scenario(world: BrokerWorld) -> None:
        world.broker.controller_listeners = frozenset({"CONTROLLER"})
        for api_key, version in EVERY + UNSERVED:
            client = Client(world, listener)
            await state(client)
            try:
                await attempt(client, api_key, version)
            except AssertionError as error:
                raise AssertionError(f"API {api_key} version {version}: {error}") from error

    tell(scenario)


def test_an_anonymous_client_stays_anonymous_until_it_is_authenticated(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world)
        assert client.session.principal == ANONYMOUS
        await handshaken(client)
        assert client.session.principal == ANONYMOUS
        await failed(client := Client(world))
        assert client.session.principal == ANONYMOUS

    tell(scenario)


def test_repeated_requests_end_with_the_session(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t")
        client = Client(world)
        await client.log_in()
        for request, version in ((produce_to("t", (0, batch(b"v"))), 9), (fetch_from("t", (0, 0)), 11)):
            for _ in range(3):
                assert await client.answer(request, version)
            assert client.session.template is not None
        client.clock.ms += SESSION_MS - 1
        assert await client.answer(fetch_from("t", (0, 0)), 11)
        client.clock.ms += 1
        with pytest.raises(CloseConnection, match="expired"):
            client.send(fetch_from("t", (0, 0)), 11)
        # The client may still authenticate again.
        await client.log_in()
        assert await client.answer(fetch_from("t", (0, 0)), 11)

    tell(scenario)


def test_a_repeated_request_during_re_authentication_is_refused(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t")
        client = Client(world)
        await client.log_in()
        for _ in range(2):
            await client.answer(produce_to("t", (0, batch(b"v"))), 9)
        await handshaken(client)
        reply = client.send(produce_to("t", (0, batch(b"v"))), 9)
        assert reply is not None
        assert reply.close_reason
        with pytest.raises(CloseConnection):
            client.send(produce_to("t", (0, batch(b"v"))), 9)

    tell(scenario)


def test_only_so_many_passwords_wait_for_the_thread(tell, monkeypatch) -> None:
    monkeypatch.setattr("runnel.broker.runtime.sasl.LOGINS_WAITING_MAX", 1)

    async def scenario(world: BrokerWorld) -> None:
        client = Client(world)
        client.listener.run_blocking = lambda work, done: None
        others = [client, Client(world)]
        others[1].session.authentication = None
        client.listener.open(others[1].session)
        for other in others:
            other.session.authentication.serve(  # type: ignore[union-attr]
                memoryview(b"".join(request_frame(SaslHandshakeRequest("PLAIN"), 1, 1, "c"))[4:]),
                client.pipeline.serve_frame,
            )
        assert client.send(SaslAuthenticateRequest(b"\0bob\0x"), 2) is not None
        with pytest.raises(CloseConnection, match="too many"):
            others[1].send(SaslAuthenticateRequest(b"\0bob\0x"), 2)

    tell(scenario)


@pytest.mark.parametrize("count", [1, SLICE_ELEMENTS, SLICE_ELEMENTS + 1, 20_000])
def test_who_is_not_authenticated_gets_no_large_response(tell, count) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world)
        await handshaken(client)
        request = DeleteTopicsRequest(topic_names=["a"] * count)
        reply = client.send_frame(b"".join(request_frame(request, 3, 1, "client")))
        assert reply is not None
        while not reply.is_filled:
            await asyncio.sleep(0)
        assert reply.close_reason
        assert bool(reply.parts) == (count <= SLICE_ELEMENTS)

    tell(scenario)


def test_all_topics_are_not_answered_by_none(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world)
        await handshaken(client)
        reply = client.send_frame(b"".join(request_frame(MetadataRequest(None), 4, 1, "client")))
        assert reply is not None and reply.is_filled and not reply.parts and reply.close_reason

    tell(scenario)
