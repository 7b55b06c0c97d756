"""Limits: memory, requests in flight, connections, timeouts."""

import asyncio
import gc
import resource
import struct
import weakref
from typing import cast

import pytest

from runnel.model.limits import ANSWER_BYTES_PENDING_MAX, REQUESTS_IN_FLIGHT_MAX
from runnel.net.admission import ListenerLimits
from runnel.net.listener import WAKE_UP_SECONDS_MAX
from runnel.ports.service import Authentication, Session
from tests.net.scripted import World, frame


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_invalid_frame_sizes_close_the_connection(run, size, caplog):
    async def scenario() -> None:
        async with World(ListenerLimits(request_bytes_max=100)) as world:
            client = await world.connect()
            client.writer.write(frame(b"ebefore") + struct.pack(">i", size) + b"e")
            assert await client.receive() == b"before"
            assert await client.is_closed()
            assert await (await world.connect()).ask(b"estill here") == b"still here"

    run(scenario())
    assert [record.levelname for record in caplog.records if record.name == "runnel.net"] == ["WARNING"]


def test_backpressure_on_a_client_that_does_not_read(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            transport = cast("asyncio.Transport", client.writer.transport)
            transport.pause_reading()
            client.send(*[b"b1000000"] * 200)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await asyncio.sleep(0.3)
            served = len(world.service.served)
            # Unsent bytes stay below the limit plus one response and the socket buffers.
            assert served < 2 * ANSWER_BYTES_PENDING_MAX // 1_000_000 + 10
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
            transport.resume_reading()
            for _ in range(200):
                assert len(await client.receive()) == 1_000_000

    run(scenario())


def test_the_longest_throttle_time_counts(run):
    """Responses that are completed later, and with a shorter time, do not end it."""

    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.send(b"l1", b"m60000", b"e2")
            await world.until(lambda: len(world.service.served) == 2)
            (connection,) = world.listener.connections
            assert connection._mute_timer is not None
            until = connection._mute_timer.when()
            connection.session.throttle_ms = 1
            world.service.release()
            assert [await client.receive(), await client.receive()] == [b"1", b"60000"]
            assert connection.session.throttle_ms == 0
            assert connection._mute_timer.when() >= until
            assert len(world.service.served) == 2
            await client.close()
            world.listener.abort()
            assert connection._mute_timer is None

    run(scenario())


def test_a_response_that_is_completed_later_throttles(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.send(b"h1", b"e2")
            await world.until(lambda: len(world.service.served) == 1)
            (connection,) = world.listener.connections
            connection.session.throttle_ms = 60_000
            world.service.release()
            assert await client.receive() == b"1"
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(world.service.served) == 1 and connection._mute_timer is not None

    run(scenario())


@pytest.mark.clear_text
def test_connections_above_the_rate_of_their_address_are_held_and_closed(run):
    async def scenario() -> None:
        async with World() as world:
            first = await world.connect()
            assert await first.ask(b"e1") == b"1"
            asked: list[str] = []

            def hold_ms(host: str) -> int:
                asked.append(host)
                return 60_000 if len(asked) == 1 else 30

            world.listener.admission.hold_ms = hold_ms
            longer, shorter = await world.connect(), await world.connect()
            longer.send(b"e2")
            shorter.send(b"e3")
            assert await shorter.is_closed()
            assert asked == ["127.0.0.1", "127.0.0.1"]
            assert len(world.listener._held) == 1 and world.listener.admission.count == 1
            assert len(world.service.served) == 1, "they are not read"
            world.listener.admission.hold_ms = lambda host: 0
            assert await (await world.connect()).ask(b"e4") == b"4"

    run(scenario())


@pytest.mark.clear_text
def test_the_number_of_held_connections_is_limited(run, monkeypatch):
    monkeypatch.setattr("runnel.net.listener.HELD_CONNECTIONS_MAX", 2)

    async def scenario() -> None:
        async with World() as world:
            world.listener.admission.hold_ms = lambda host: 60_000
            clients = [await world.connect() for _ in range(3)]
            assert await clients[2].is_closed()
            assert len(world.listener._held) == 2

    run(scenario())


def test_a_throttled_connection_is_not_read_from(run):
    """Frames that arrived together with the one that is throttled wait as well; other connections do not."""

    async def scenario() -> None:
        async with World() as world:
            client, other = await world.connect(), await world.connect()
            client.send(b"e1", b"m1000", b"e2", b"e3")
            assert await client.receive() == b"1"
            assert await client.receive() == b"1000"
            assert await other.ask(b"eother") == b"other"
            client.send(b"e4")
            assert [data[:1] for data in world.service.served] == [b"e", b"m", b"e"]
            assert [await client.receive() for _ in range(3)] == [b"2", b"3", b"4"]

    run(scenario())


def test_a_client_is_charged_for_waking_up_the_event_loop(run, monkeypatch):
    async def scenario() -> None:
        async with World() as world:
            await (await world.connect()).ask(b"ehello")
            (connection,) = world.listener.connections
            charged: list[float] = []
            connection.session.meter = charged.append
            # The CPU time of the event loop stands still: what it takes is known exactly.
            for module in ("listener", "connection"):
                monkeypatch.setattr(f"runnel.net.{module}.thread_time", lambda: 5.0)
            world.listener.charged_at = 5.0 - WAKE_UP_SECONDS_MAX / 2
            assert world.listener.woken_seconds() == pytest.approx(WAKE_UP_SECONDS_MAX / 2)
            connection._unmute()
            assert charged[0] >= WAKE_UP_SECONDS_MAX / 2
            assert world.listener.woken_seconds() == 0, "it is charged once"
            world.listener.charged_at = 5.0 - WAKE_UP_SECONDS_MAX * 2
            assert world.listener.woken_seconds() == 0, "others were served since"

    run(scenario())


def test_a_throttled_connection_can_be_closed(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.send(b"m50", b"e2")
            assert await client.receive() == b"50"
            await client.close()
            await asyncio.sleep(0.1)
            await world.until(lambda: len(world.service.gone) == 1)

    run(scenario())


def test_requests_in_flight_are_limited(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            total = REQUESTS_IN_FLIGHT_MAX + 100
            client.send(*[b"l%d" % number for number in range(total)])
            await world.until(lambda: len(world.service.later) == REQUESTS_IN_FLIGHT_MAX)
            await asyncio.sleep(0.05)
            assert len(world.service.served) == REQUESTS_IN_FLIGHT_MAX
            for number in range(total):
                await world.until(lambda: world.service.later)
                world.service.release()
                assert await client.receive() == b"%d" % number

    run(scenario())


def test_incomplete_requests_share_a_memory_limit(run):
    async def scenario() -> None:
        async with World(ListenerLimits(receive_memory_bytes_max=2_000_000)) as world:
            first, second = await world.connect(), await world.connect()
            request = frame(b"e" + bytes(1_500_000))
            first.writer.write(request[:-1])
            await world.until(lambda: world.listener.memory.reserved_bytes == 1_500_001)
            second.writer.write(request)
            await asyncio.sleep(0.05)
            assert world.listener.memory.reserved_bytes == 1_500_001
            first.writer.write(request[-1:])
            assert len(await first.receive()) == 1_500_000
            assert len(await second.receive()) == 1_500_000
            assert world.listener.memory.reserved_bytes == 0

    run(scenario())


@pytest.mark.clear_text
def test_lent_memory_is_not_reused(run):
    async def scenario() -> None:
        async with World() as world:
            first, second = await world.connect(), await world.connect()
            for letter in (b"1", b"2"):
                first.send(b"k" + letter * 200_000)
                await world.until(lambda: len(world.service.loans) == int(letter))  # noqa: B023
            assert world.listener.memory.reserved_bytes == 400_002
            assert await second.ask(b"e" + b"x" * 200_000) == b"x" * 200_000
            for letter in (b"1", b"2"):
                world.service.release_kept()
                assert await first.receive() == letter * 200_000
            assert world.listener.memory.reserved_bytes == 0

    run(scenario())


@pytest.mark.clear_text
def test_lent_memory_survives_a_disconnect(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.send(b"k" + b"1" * 200_000)
            await world.until(lambda: bool(world.service.loans))
            await client.close()
            await world.until(lambda: not world.listener.connections)
            assert world.listener.memory.reserved_bytes == 200_001
            assert world.service.kept[0][1][1:] == b"1" * 200_000
            world.service.release_kept()
            assert world.listener.memory.reserved_bytes == 0

    run(scenario())


def test_memory_is_released_on_disconnect(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.writer.write(struct.pack(">i", 1_000_000) + bytes(10))
            await world.until(lambda: world.listener.memory.reserved_bytes == 1_000_000)
            await client.close()
            await world.until(lambda: world.listener.memory.reserved_bytes == 0)

    run(scenario())


@pytest.mark.clear_text
def test_connections_beyond_the_limit_wait(run):
    async def scenario() -> None:
        async with World(ListenerLimits(connections_max=2)) as world:
            first, second = await world.connect(), await world.connect()
            assert await first.ask(b"e1") == b"1"
            assert await second.ask(b"e2") == b"2"
            third = await world.connect()
            third.send(b"e3")
            await asyncio.sleep(0.05)
            assert len(world.listener.connections) == 2
            await first.close()
            assert await third.receive() == b"3"

    run(scenario())


@pytest.mark.clear_text
def test_limit_per_address(run):
    async def scenario() -> None:
        async with World(ListenerLimits(connections_per_host_max=1)) as world:
            first = await world.connect()
            assert await first.ask(b"e1") == b"1"
            assert await (await world.connect()).is_closed()
            await first.close()
            await world.until(lambda: not world.listener.connections)
            assert await (await world.connect()).ask(b"e2") == b"2"

    run(scenario())


def test_idle_connections_are_closed(run):
    async def scenario() -> None:
        async with World(ListenerLimits(idle_max_ms=200)) as world:
            silent = await world.connect()
            async with asyncio.timeout(20):
                assert await silent.is_closed()

    run(scenario())


def test_incomplete_requests_time_out(run, monkeypatch):
    monkeypatch.setattr("runnel.net.listener.STALLED_REQUEST_SECONDS", 0.1)

    async def scenario() -> None:
        async with World(ListenerLimits(idle_max_ms=400)) as world:
            small, large = await world.connect(), await world.connect()
            small.writer.write(struct.pack(">i", 100) + b"e")
            large.writer.write(struct.pack(">i", 1_000_000) + b"e")
            async with asyncio.timeout(20):
                assert await small.is_closed()
                assert await large.is_closed()
            assert world.listener.memory.reserved_bytes == 0

    run(scenario())


class Authenticating:
    """A client that never completes its authentication."""

    was_completed = False

    def request_bytes_max(self, limit: int) -> int:
        return limit


def test_clients_have_to_authenticate_in_time(run, monkeypatch):
    monkeypatch.setattr("runnel.net.listener.LOGIN_SECONDS_MAX", 0.1)

    async def scenario() -> None:
        async with World() as world:
            world.listener.open_session = lambda session: setattr(session, "authentication", Authenticating())
            client = await world.connect()
            async with asyncio.timeout(20):
                assert await client.is_closed()

    run(scenario())


def test_a_closed_connection_does_not_wait_for_the_end_of_its_login(run, monkeypatch):
    monkeypatch.setattr("runnel.net.listener.LOGIN_SECONDS_MAX", 3600)
    opened: list[weakref.ref[Authenticating]] = []

    def open_session(session: Session) -> None:
        authentication = Authenticating()
        session.authentication = cast(Authentication, authentication)
        opened.append(weakref.ref(authentication))

    def is_freed() -> bool:
        gc.collect()
        return opened[0]() is None

    async def scenario() -> None:
        async with World() as world:
            world.listener.open_session = open_session
            client = await world.connect()
            assert await client.ask(b"e1") == b"1"
            await client.close()
            await world.until(lambda: world.service.gone)
            world.service.gone.clear()
            await world.until(is_freed)

    run(scenario())
