"""Connections over real sockets: order, turns, limits, backpressure, shutdown."""

import asyncio
import contextlib
import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from runnel.disk.os_files import OsFile
from runnel.net import connection
from runnel.net.admission import ListenerLimits
from runnel.net.file_sender import THREADS_MAX
from tests.net.scripted import Client, World, frame


def test_responses_are_sent_in_request_order(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.send(b"lfirst", b"esecond", b"tthird", b"nothing", b"efourth")
            await world.until(lambda: len(world.service.served) == 5)
            world.service.release()
            assert [await client.receive() for _ in range(4)] == [b"first", b"second", b"third", b"fourth"]

    run(scenario())


def test_all_frames_of_one_receive_share_a_turn(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.send(*[b"t%d" % number for number in range(20)])
            assert [await client.receive() for _ in range(20)] == [b"%d" % number for number in range(20)]
            assert world.service.turns < 20

    run(scenario())


def test_requests_that_take_long_are_served_in_several_turns(run, monkeypatch):
    """A small request may take milliseconds, and hundreds of them arrive together."""
    monkeypatch.setattr(connection, "SERVE_SECONDS_MAX", 0, raising=False)

    async def scenario() -> None:
        async with World() as world:
            client, other = await world.connect(), await world.connect()
            client.send(*(b"e%d" % number for number in range(50)))
            assert await other.ask(b"eother") == b"other"
            for number in range(50):
                assert await client.receive() == b"%d" % number
            assert world.service.turns == 51

    run(scenario())


def test_frame_received_byte_by_byte(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            for byte in frame(b"ehello") + frame(b"eworld"):
                client.writer.write(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0)
            assert [await client.receive(), await client.receive()] == [b"hello", b"world"]

    run(scenario())


@pytest.mark.parametrize("size", [65_530, 65_537, 300_000, 5_000_000])
def test_large_frames_among_small_ones(run, size):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            large = b"e" + bytes(index % 251 for index in range(1000)) * (size // 1000)
            client.send(b"esmall", large, b"eafter", large)
            assert await client.receive() == b"small"
            assert await client.receive() == large[1:]
            assert await client.receive() == b"after"
            assert await client.receive() == large[1:]
            assert world.listener.memory.reserved_bytes == 0

    run(scenario())


def test_held_connection_delays_the_next_request(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.send(b"hwait", b"enext", b"e" + bytes(100_000), b"elast")
            await world.until(lambda: world.service.later)
            await asyncio.sleep(0.05)
            assert world.service.served == [b"hwait"]
            world.service.release()
            assert await client.receive() == b"wait"
            assert await client.receive() == b"next"
            assert await client.receive() == bytes(100_000)
            assert await client.receive() == b"last"

    run(scenario())


def test_held_connection_does_not_block_others(run):
    async def scenario() -> None:
        async with World() as world:
            waiting, busy = await world.connect(), await world.connect()
            waiting.send(b"hwait")
            await world.until(lambda: world.service.later)
            assert await busy.ask(b"ehello") == b"hello"
            world.service.release()
            assert await waiting.receive() == b"wait"

    run(scenario())


def test_close_after_pending_responses(run):
    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            client.send(b"tbefore", b"x", b"eafter")
            assert await client.receive() == b"before"
            assert await client.is_closed()
            assert b"eafter" not in world.service.served
            assert len(world.service.gone) == 1

    run(scenario())


def test_file_slice_between_buffers(run, tmp_path: Path):
    content = bytes(index % 253 for index in range(3_000_001))
    path = tmp_path / "segment"
    path.write_bytes(content)

    async def scenario() -> None:
        async with World(file=path) as world:
            client = await world.connect()
            client.send(b"ehead", b"f3000001", b"etail", b"f5", b"f0"[:2] + b"7")
            assert await client.receive() == b"head"
            assert await client.receive() == content
            assert await client.receive() == b"tail"
            assert await client.receive() == content[:5]

    run(scenario())


def test_many_large_responses_share_the_sender_thread(run, tmp_path: Path):
    content = bytes(index % 251 for index in range(2_000_003))
    path = tmp_path / "segment"
    path.write_bytes(content)

    async def scenario() -> None:
        async with World(file=path) as world:
            clients = [await world.connect() for _ in range(6)]

            async def read(client: Client) -> None:
                for _ in range(5):
                    client.send(b"f2000003", b"emark")
                for _ in range(5):
                    assert await client.receive() == content
                    assert await client.receive() == b"mark"

            await asyncio.gather(*map(read, clients))

    run(scenario())


@pytest.mark.clear_text
@pytest.mark.parametrize("is_resident", [False, True])
def test_cold_file_slices_are_never_sent_by_the_event_loop(run, tmp_path: Path, monkeypatch, is_resident):
    content = bytes(index % 249 for index in range(400_001))
    path = tmp_path / "segment"
    path.write_bytes(content)
    senders: set[str] = set()
    sendfile = os.sendfile

    def recorded(*arguments: int) -> int:
        senders.add(threading.current_thread().name)
        return sendfile(*arguments)

    monkeypatch.setattr(os, "sendfile", recorded)
    # Only one page in the middle of the slice is not in the page cache.
    monkeypatch.setattr(
        OsFile, "is_resident", lambda file, position, length: is_resident or position != 128 * 1024
    )

    async def scenario() -> None:
        async with World(file=path) as world:
            client = await world.connect()
            client.send(b"f400001", b"emark")
            assert await client.receive() == content
            assert await client.receive() == b"mark"

    run(scenario())
    assert (senders == {"sender"}) is not is_resident


def test_more_cold_slices_than_threads(run, tmp_path: Path, monkeypatch):
    content = bytes(index % 247 for index in range(300_001))
    path = tmp_path / "segment"
    path.write_bytes(content)
    monkeypatch.setattr(OsFile, "is_resident", lambda *_: False)

    async def scenario() -> None:
        async with World(file=path) as world:
            clients = [await world.connect() for _ in range(2 * THREADS_MAX + 1)]
            for client in clients:
                client.send(b"f300001", b"emark")
            for client in clients:
                assert await client.receive() == content
                assert await client.receive() == b"mark"

    run(scenario())


@pytest.mark.parametrize("is_abrupt", [False, True])
def test_disconnect_during_a_large_response_affects_no_other(run, tmp_path: Path, is_abrupt):
    path = tmp_path / "segment"
    path.write_bytes(bytes(20_000_000))

    async def scenario() -> None:
        async with World(file=path) as world:
            for _ in range(5):
                leaver, stayer = await world.connect(), await world.connect()
                leaver.send(b"f20000000")
                await leaver.reader.readexactly(1000)
                stayer.send(b"f3000000")
                if is_abrupt:
                    leaver.writer.transport.abort()
                else:
                    world.listener.connections.copy().pop().close("on purpose")
                    await leaver.close()
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    assert len(await stayer.receive()) == 3_000_000
                fresh = await world.connect()
                assert await fresh.ask(b"ehello") == b"hello"

    run(scenario())


@pytest.mark.clear_text
def test_limit_overrides_per_address(run):
    async def scenario() -> None:
        limits = ListenerLimits(connections_per_host_max=0, connections_of_host_max={"127.0.0.1": 2})
        async with World(limits) as world:
            for _ in range(2):
                assert await (await world.connect()).ask(b"e1") == b"1"
            assert await (await world.connect()).is_closed()

    run(scenario())


@pytest.mark.parametrize(
    ("host", "allowed"), [("::ffff:192.0.2.1", 3), ("fe80::1%eth0", 4), ("2001:db8::9", 7), ("192.0.2.2", 7)]
)
def test_equivalent_forms_of_an_address(run, host, allowed):
    async def scenario() -> None:
        others = {"192.0.2.1": 3, "fe80::1": 4}
        limits = ListenerLimits(connections_per_host_max=7, connections_of_host_max=others)
        async with World(limits) as world:
            assert world.listener.admission._host_max(host) == allowed

    run(scenario())


def test_connection_creation_rate_delays_new_connections(run):
    async def scenario() -> None:
        async with World(ListenerLimits(connections_per_second_max=5)) as world:
            clients = [await world.connect() for _ in range(8)]
            for client in clients:
                client.send(b"e1")
            await world.until(lambda: len(world.listener.connections) >= 5)
            # The remaining connections are accepted without any other event.
            for client in clients:
                assert await client.receive() == b"1"

    run(scenario())


@pytest.mark.clear_text
def test_rate_zero_accepts_no_connections_until_it_changes(run):
    async def scenario() -> None:
        async with World(ListenerLimits(connections_per_second_max=0)) as world:
            client = await world.connect()
            client.send(b"e1")
            await asyncio.sleep(0.05)
            assert not world.listener.connections
            world.listener.admission.change(ListenerLimits())
            assert await client.receive() == b"1"

    run(scenario())


@pytest.mark.clear_text
def test_raised_limits_accept_waiting_connections(run):
    async def scenario() -> None:
        async with World(ListenerLimits(connections_max=1)) as world:
            assert await (await world.connect()).ask(b"e1") == b"1"
            second = await world.connect()
            second.send(b"e2")
            await asyncio.sleep(0.05)
            assert len(world.listener.connections) == 1
            world.listener.admission.change(ListenerLimits(connections_max=2))
            assert await second.receive() == b"2"

    run(scenario())


def test_lowered_limits_close_connections_without_pending_requests(run):
    async def scenario() -> None:
        async with World() as world:
            busy, *idle = [await world.connect() for _ in range(4)]
            busy.send(b"l1")
            for client in idle:
                assert await client.ask(b"e2") == b"2"
            await world.until(lambda: world.service.later)
            world.listener.admission.change(ListenerLimits(connections_max=1))
            for client in idle:
                assert await client.is_closed()
            world.service.release()
            assert await busy.receive() == b"1"

    run(scenario())


def test_shutdown_waits_for_pending_responses(run):
    async def scenario() -> None:
        world = World()
        client = await world.connect()
        client.send(b"ldue")
        await world.until(lambda: world.service.later)
        closing = asyncio.create_task(world.listener.close(grace_seconds=5))
        await asyncio.sleep(0.03)
        client.send(b"etoo late")
        world.service.release()
        assert await client.receive() == b"due"
        assert await client.is_closed()
        await closing
        assert world.service.is_ending
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", world.port)
        await client.close()
        assert b"etoo late" not in world.service.served

    run(scenario())


def test_shutdown_timeout(run):
    async def scenario() -> None:
        world = World()
        client = await world.connect()
        client.send(b"lnever")
        await world.until(lambda: world.service.later)
        await world.listener.close(grace_seconds=0.05)
        assert await client.is_closed()
        await client.close()
        # A response that completes later is dropped.
        world.service.release()

    run(scenario())


def test_exception_in_the_service_closes_one_connection(run, caplog):
    async def scenario() -> None:
        async with World() as world:
            client, other = await world.connect(), await world.connect()
            client.send(b"bnot a number")
            assert await client.is_closed()
            assert await other.ask(b"efine") == b"fine"

    run(scenario())
    assert "serving" in caplog.text


@pytest.mark.clear_text
def test_reset_during_a_response_is_not_logged(run, caplog):
    async def scenario() -> None:
        async with World() as world:
            raw = socket.create_connection(("127.0.0.1", world.port))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.sendall(frame(b"b50000000"))
            await world.until(lambda: world.service.served)
            raw.close()
            await world.until(lambda: not world.listener.connections)

    run(scenario())
    assert "Traceback" not in caplog.text
