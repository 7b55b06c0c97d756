"""The relay passes everything on, keeps whole requests, and a client that fails is named."""

import asyncio
import socket
import struct
from contextlib import ExitStack

import pytest

from runnel.messages.registry import API_NAMES
from tests.net.scripted import World
from tools.broker_process import BrokerProcess
from tools.fuzz.recordings import CLIENTS, KEPT_OF_EACH_MAX, record, some_of_each
from tools.fuzz.relay import Relay
from tools.fuzz.run import SETTINGS, create
from tools.fuzz.samples import TOPIC

EVERY_CLIENT_SENDS = {
    "ApiVersions", "CreateTopics", "Fetch", "Heartbeat", "JoinGroup", "Metadata", "OffsetCommit", "Produce",
}  # fmt: skip


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def api_of(request: bytes) -> str:
    return API_NAMES[struct.unpack_from(">4xh", request)[0]]


def test_requests_are_kept_whole_however_they_are_cut() -> None:
    sent = [frame(b"efirst"), frame(b"e" + b"second" * 50_000), frame(b"ethird")]

    def talk(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            stream = b"".join(sent)
            for piece in (stream[:2], stream[2:9], stream[9:200_000], stream[200_000:], b"\0\0\0\x09half"):
                client.sendall(piece)
            with client.makefile("rb") as answers:
                return answers.read(len(stream) - len(sent))

    async def story() -> None:
        async with World() as world:
            with Relay(world.port) as relay:
                answers = await asyncio.to_thread(talk, relay.port)
            assert answers == b"".join(frame(request[5:]) for request in sent)
            assert relay.frames == sent

    asyncio.run(story())


def test_a_client_hears_when_the_broker_hangs_up() -> None:
    def talk(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(frame(b"x"))
            return client.recv(1)

    async def story() -> None:
        async with World() as world:
            with Relay(world.port) as relay:
                assert await asyncio.to_thread(talk, relay.port) == b""

    asyncio.run(story())


@pytest.mark.parametrize("client", CLIENTS)
def test_real_clients_are_heard(tmp_path, client) -> None:
    broker = BrokerProcess(tmp_path / "data", SETTINGS)
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(broker.port))
        broker.settings["advertised.listeners"] = f"PLAINTEXT://{relay.address}"
        stack.enter_context(broker)
        create(broker.bootstrap, TOPIC)
        recordings = record(relay, [client])
    assert recordings.failures == []
    assert {api_of(request) for request in recordings.frames} >= EVERY_CLIENT_SENDS
    assert recordings.counts == {client: len(recordings.frames)}


def test_a_client_that_cannot_be_used_is_named() -> None:
    with Relay(1) as relay:
        recordings = record(relay, ["no_such_client"])
    assert recordings.frames == []
    assert len(recordings.failures) == 1
    assert (
        recordings.failures[0].startswith("no_such_client: ")
        and "no_such_client" in recordings.failures[0].partition(": ")[2]
    )


def test_repetitions_are_left_out() -> None:
    fetches = [frame(struct.pack(">hhi", 1, 11, number)) for number in range(100)]
    other = frame(struct.pack(">hhi", 1, 12, 0))
    assert some_of_each([*fetches, other]) == [*fetches[:KEPT_OF_EACH_MAX], other]
