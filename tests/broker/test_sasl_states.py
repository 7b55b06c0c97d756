"""A client that sends every API in every version, in every state of its connection, gets only what it may."""

import asyncio
from typing import Any

import pytest

from runnel.broker.apis.handlers import APIS, BROKER_APIS
from runnel.broker.runtime.pipeline import Pipeline
from runnel.broker.runtime.sasl import SaslGate, SaslListener
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.registry import api
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.ports.service import CloseConnection, Reply, Session
from runnel.security.login_failures import LoginFailures
from runnel.security.plain_server import PlainUsers
from runnel.security.principal import ANONYMOUS
from runnel.security.sasl_server import OfferedMechanism
from runnel.wire import Request
from runnel.wire.frame import request_frame
from tests.broker.requests import batch, fetch_from, produce_to
from tests.broker.world import BrokerWorld
from tests.wire.samples import example

EVERY = [
    (key, version)
    for key, row in APIS.items()
    if key in BROKER_APIS
    for version in range(row.version_min, row.version_max + 1)
]
SESSION_MS = 60_000


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Client:
    """A connection to a SASL listener, without sockets."""

    def __init__(self, world: BrokerWorld) -> None:
        users = PlainUsers({"alice": "alice-secret"}, lambda mechanism, user: None, b"secret")
        self.clock = Clock()
        self.listener = SaslListener(
            {"PLAIN": OfferedMechanism(users.begin, SESSION_MS)},
            self.clock,
            world.broker.timers,
            lambda work, done: done(work()),
            LoginFailures(),
            failure_delay_ms=0,
        )
        world.broker.gates.authenticator = SaslGate()
        self.pipeline = Pipeline(world.broker)
        self.session = Session("host", 1, "SASL_PLAINTEXT", 1)
        self.listener.open(self.session)

    def send(self, request: Request, version: int) -> Reply | None:
        """The response, None for none; raises CloseConnection."""
        data = memoryview(bytearray(b"".join(request_frame(request, version, 1, "client"))))
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


async def expired(client: Client) -> None:
    await client.log_in()
    client.clock.ms += SESSION_MS


PERMITTED: dict[Any, set[int]] = {
    fresh: {17, 18},
    versioned: {17},
    handshaken: {36},
    failed: set(),
    expired: {17},
}


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


@pytest.mark.parametrize("state", PERMITTED, ids=lambda state: state.__name__)
def test_before_authentication_no_handler_is_reached(tell, monkeypatch, state) -> None:
    reached: list[int] = []

    async def scenario(world: BrokerWorld) -> None:
        for api_key, version in EVERY:
            client = Client(world)
            await state(client)
            principal = client.session.principal
            watched = watching(client.pipeline._add_route, reached)
            client.pipeline._add_route = watched  # type: ignore[method-assign]
            client.pipeline._routes.clear()
            reached.clear()
            request = example(api(api_key).request, version, "full")
            try:
                reply = client.send(request, version)
            except CloseConnection:
                reply = None
            if api_key in PERMITTED[state]:
                continue
            assert not reached, (api_key, version)
            assert client.session.principal == principal
            if reply is not None:
                while not reply.is_filled:
                    await asyncio.sleep(0)
                # Told that it is illegal, or not at all, and closed.
                assert state is handshaken
                assert reply.close_reason

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
