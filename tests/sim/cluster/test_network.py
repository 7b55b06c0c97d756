"""Connections of a simulated network: order, partitions, lost connections, processes and hosts that end."""

import asyncio
from random import Random
from typing import Any

import pytest

from runnel.sim.cluster import network as network_module
from runnel.sim.cluster.network import Network, Socket
from runnel.sim.cluster.scheduler import Scheduler
from runnel.sim.cluster.trace import Trace

PORT = 9092


class World:
    """Two hosts: a server that records what it receives, and a client."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(seed), Trace(self.scheduler))
        self.server = self.scheduler.process("server")
        self.client = self.scheduler.process("client")
        self.received: list[bytes | str] = []
        self.accepted: list[Socket] = []
        self.network.host("c")
        self.network.listen("s", PORT, self.server, self._accept)

    def _accept(self, socket: Socket) -> None:
        self.accepted.append(socket)
        socket.on_data = self.received.append
        socket.on_end = lambda is_reset: self.received.append("reset" if is_reset else "closed")

    def connect(self) -> Socket:
        opened: list[Any] = []

        async def connect() -> None:
            try:
                opened.append(await self.network.connect(self.client, "c", "s", PORT))
            except OSError as error:
                opened.append(error)

        self.client.create_task(connect())
        assert self.scheduler.run_until(lambda: bool(opened), self.scheduler.now + 60), "never connected"
        if isinstance(opened[0], OSError):
            raise opened[0]
        socket: Socket = opened[0]
        socket.on_data = lambda data: self.received.append(b"client: " + data)
        socket.on_end = lambda is_reset: self.received.append(f"client: {'reset' if is_reset else 'closed'}")
        return socket


def test_chunks_arrive_in_order() -> None:
    world = World()
    socket = world.connect()
    for number in range(50):
        socket.send(b"%d" % number)
    world.scheduler.run_for(1)
    assert world.received == [b"%d" % number for number in range(50)]
    world.accepted[0].send(b"hello")
    socket.close()
    world.scheduler.run_for(1)
    assert world.received[50:] == ["closed"], "a closed socket received data"


@pytest.mark.parametrize("seed", range(5))
def test_a_partition_delays_what_was_sent_even_if_the_sender_has_given_up(seed: int) -> None:
    world = World(seed)
    socket = world.connect()
    heal = world.network.block([("c", "s")])
    socket.send(b"late")
    socket.close()
    world.accepted[0].send(b"other direction")
    world.scheduler.run_for(30)
    assert world.received == []
    heal()
    world.scheduler.run_for(2)
    assert world.received[0] == b"late"


def test_a_one_way_partition_lets_the_other_direction_pass() -> None:
    world = World()
    socket = world.connect()
    world.network.block([("c", "s")])
    socket.send(b"lost for now")
    world.accepted[0].send(b"hello")
    world.scheduler.run_for(5)
    assert world.received == [b"client: hello"]
    with pytest.raises(TimeoutError):
        world.connect()


def test_overlapping_partitions_end_with_the_last_one() -> None:
    world = World()
    socket = world.connect()
    first, second = world.network.block([("c", "s")]), world.network.block([("c", "s"), ("s", "c")])
    socket.send(b"data")
    first()
    world.scheduler.run_for(5)
    assert world.received == []
    second()
    world.scheduler.run_for(5)
    assert world.received == [b"data"]


def test_a_killed_process_closes_its_connections_after_what_it_sent() -> None:
    world = World()
    world.connect()
    world.accepted[0].send(b"last words")
    world.server.kill()
    world.network.process_ended(world.server)
    world.scheduler.run_for(1)
    assert world.received == [b"client: last words", "client: closed"]
    with pytest.raises(ConnectionRefusedError):
        world.connect()


def test_a_host_without_power_is_silent_until_it_is_back() -> None:
    world = World()
    socket = world.connect()
    world.server.kill()
    world.network.process_ended(world.server, with_power_cut=True)
    world.network.power_off("s")
    socket.send(b"hello?")
    world.scheduler.run_for(60)
    assert world.received == []
    world.network.power_on("s")
    world.scheduler.run_for(2)
    assert world.received == ["client: reset"]


def test_data_for_a_paused_process_waits() -> None:
    world = World()
    world.server.pause()
    socket = world.connect()
    socket.send(b"data")
    world.scheduler.run_for(5)
    assert world.received == []
    world.server.resume()
    world.scheduler.run_for(1)
    assert world.received == [b"data"]


def test_lost_connections_lose_a_request_or_its_response() -> None:
    outcomes = set()
    for seed in range(20):
        world = World(seed)
        socket = world.connect()
        world.network.loss_chance = 1
        socket.send(b"request")
        world.scheduler.run_for(5)
        assert "client: reset" in world.received
        outcomes.add(b"request" in world.received)
    assert outcomes == {True, False}


def test_delays_depend_on_the_pair_of_hosts() -> None:
    world = World()
    socket = world.connect()
    world.network.delay_factors["c", "s"] = 10_000
    socket.send(b"slow")
    world.accepted[0].send(b"fast")
    world.scheduler.run_for(network_module.DELAY_SECONDS_MAX)
    assert world.received == [b"client: fast"]
    world.scheduler.run_for(30)
    assert world.received == [b"client: fast", b"slow"]


def test_a_protocol_of_asyncio_uses_it() -> None:
    class Echo(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.room = bytearray(3)
            self.got = b""
            self.ends: list[Exception | None] = []

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.room

        def buffer_updated(self, nbytes: int) -> None:
            self.got += self.room[:nbytes]

        def connection_lost(self, exc: Exception | None) -> None:
            self.ends.append(exc)

    world, protocol = World(), Echo()
    world.client.connect = world.network.connector(world.client, "c")
    opening = world.client.create_task(world.client.create_connection(lambda: protocol, "s", PORT))
    world.scheduler.run_for(1)
    transport = opening.result()[0]
    transport.writelines([b"one", b"two"])
    world.accepted[0].send(b"1234567")
    world.scheduler.run_for(1)
    assert (world.received, protocol.got) == ([b"onetwo"], b"1234567")
    world.accepted[0].close()
    world.scheduler.run_for(1)
    assert protocol.ends == [None]


def test_a_late_request_arrives_after_its_repetition() -> None:
    world = World()
    world.network.late_chances["c", "s"] = 1.0
    world.connect().send(b"first")
    world.scheduler.run_for(0.5)
    assert world.received == ["client: reset"]
    world.network.late_chances.clear()
    world.connect().send(b"repeated")
    world.scheduler.run_for(network_module.LATE_SECONDS_MAX)
    assert world.received == ["client: reset", b"repeated", b"first"]
