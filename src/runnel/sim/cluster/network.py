"""The network of a simulation: hosts, and connections between them that behave as TCP does.

The bytes of a connection arrive in order, each chunk after a delay. A partition holds them back: they arrive
some time after it has healed, even if their sender has given up on the connection in the meantime, because
kernels repeat what was not acknowledged. So a request can be served late, and after its repetition on another
connection. A process that ends closes its connections; a host that loses power closes none.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from runnel.sim.cluster.scheduler import ProcessLoop, Scheduler
from runnel.sim.cluster.trace import Trace

DELAY_SECONDS_MAX = 0.002
"""Upper bound of most delays."""
SPIKE_CHANCE = 0.003
SPIKE_SECONDS_MAX = 0.2
"""Some chunks take much longer: a lost packet is sent again after 200 ms."""
RETRANSMISSION_SECONDS_MAX = 1.0
"""How long after the end of a partition a held chunk arrives at the latest."""
SYN_SECONDS = (0, 1, 2, 4, 8)
"""Pauses before the attempts of a connection to be opened, as a kernel makes them."""
KEEPALIVE_SECONDS = 10.0
"""When a silent connection to a host that has restarted is known to be lost."""
LATE_SECONDS_MAX = 4.0
"""How much later than usual a chunk arrives at most, when its connection is lost to its sender before."""

Accept = Callable[["Socket"], None]


class Fin:
    """The end of a stream: the other side has closed the connection."""


class Rst:
    """The connection is lost."""


FIN, RST = Fin(), Rst()
Chunk = bytes | Fin | Rst


@dataclass(slots=True, eq=False)
class Host:
    """A machine: is it powered, and which process listens on which port."""

    name: str
    is_up: bool = True
    acceptors: dict[int, tuple[ProcessLoop, Accept]] = field(default_factory=dict)


class Socket:
    """One end of a connection, owned by a process."""

    def __init__(self, network: "Network", host: str, loop: ProcessLoop) -> None:
        self.host = host
        self.loop = loop
        self.peer: Socket
        self.is_closed = False
        self.is_gone = False
        """Its host lost power: nothing answers here."""
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[bool], None] = lambda is_reset: None
        """Called once when the other side ends the connection; with True if it is lost."""
        self.last_arrival = 0.0
        self.held: list[Chunk] = []
        """What a partition keeps from the peer."""
        self._network = network

    def send(self, data: bytes) -> None:
        """Send a chunk; nothing happens if the connection is closed."""
        if not self.is_closed:
            self._network.transmit(self, data)

    def close(self) -> None:
        """Close this end. What was sent before still arrives."""
        if not self.is_closed:
            self.is_closed = True
            self._network.forget(self)
            self._network.transmit(self, FIN)

    def deliver(self, chunk: Chunk) -> None:
        """A chunk has arrived, and the process reads it."""
        if self.is_closed:
            if isinstance(chunk, bytes):
                # A kernel answers data for a closed socket.
                self._network.transmit(self, RST)
            return
        if isinstance(chunk, bytes):
            self.on_data(chunk)
        else:
            self.is_closed = True
            self._network.forget(self)
            self.on_end(isinstance(chunk, Rst))


class Network:
    """All hosts, their connections, and the faults between them."""

    def __init__(self, scheduler: Scheduler, random: Random, trace: Trace) -> None:
        self.loss_chance = 0.0
        """Probability that a connection is lost around a chunk: before it arrives, or after."""
        self.late_chances: dict[tuple[str, str], float] = {}
        """(source, target) → probability that a chunk arrives late, after its sender lost the connection."""
        self.delay_factors: dict[tuple[str, str], float] = {}
        """(source, target) → how many times slower than usual."""
        self.is_never_late: Callable[[bytes], bool] = lambda chunk: False
        """Is a chunk lost rather than delivered after its sender gave up the connection?"""
        self.hosts: dict[str, Host] = {}
        self._blocked: Counter[tuple[str, str]] = Counter()
        self._random = random
        self._scheduler = scheduler
        self._trace = trace
        self._loop = scheduler.process("network")
        self._sockets: dict[Socket, None] = {}
        self._holding: dict[Socket, None] = {}

    def host(self, name: str) -> Host:
        """The host with this name; created if there is none."""
        return self.hosts.setdefault(name, Host(name))

    # Connections.

    def listen(self, host: str, port: int, loop: ProcessLoop, accept: Accept) -> None:
        """Accept connections; those that come while the process is paused wait."""
        self.host(host).acceptors[port] = (loop, accept)

    def stop_listening(self, host: str, port: int) -> None:
        """Refuse connections from now on."""
        self.host(host).acceptors.pop(port, None)

    async def connect(self, loop: ProcessLoop, source: str, host: str, port: int) -> Socket:
        """A connection from a process to a listener. Raises OSError."""
        for pause in SYN_SECONDS:
            await asyncio.sleep(pause + self._delay(source, host))
            target = self.hosts.get(host)
            if target is None or not target.is_up or self._is_cut(source, host):
                continue
            if port not in target.acceptors:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
            accepting, accept = target.acceptors[port]
            near, far = Socket(self, source, loop), Socket(self, host, accepting)
            near.peer, far.peer = far, near
            self._sockets[near] = self._sockets[far] = None
            accepting.call_soon(accept, far)
            return near
        raise TimeoutError(errno.ETIMEDOUT, "connection timed out")

    def connector(self, loop: ProcessLoop, source: str) -> Callable[..., Any]:
        """`create_connection` of a process on this host."""

        async def create_connection(
            factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int, ssl: None = None
        ) -> tuple["Transport", asyncio.BufferedProtocol]:
            socket = await self.connect(loop, source, host, port)
            protocol = factory()
            return Transport(socket, protocol), protocol

        return create_connection

    def transmit(self, sender: Socket, chunk: Chunk) -> None:
        """Carry a chunk to the peer, in order."""
        now = self._scheduler.now
        arrival = max(now + self._delay(sender.host, sender.peer.host), sender.last_arrival)
        late_chance = self.late_chances.get((sender.host, sender.peer.host), 0)
        if isinstance(chunk, bytes) and late_chance and self._random.random() < late_chance:
            # The sender repeats the request on another connection, where it is served before this one.
            self._loop.call_at(arrival, self._arrive, sender.peer, RST)
            arrival += self._random.random() * LATE_SECONDS_MAX
        sender.last_arrival = arrival
        if isinstance(chunk, bytes) and self.loss_chance and self._random.random() < self.loss_chance:
            if self._random.random() < 0.5:
                chunk = RST
            else:
                self._loop.call_at(arrival, self._arrive, sender, chunk)
                chunk = RST
            self._loop.call_at(arrival, self._arrive, sender.peer, RST)
        self._loop.call_at(arrival, self._arrive, sender, chunk)

    def forget(self, socket: Socket) -> None:
        """The process has no more to do with this end."""
        self._sockets.pop(socket, None)

    def _arrive(self, sender: Socket, chunk: Chunk) -> None:
        target = sender.peer
        if sender.held or target.is_gone or self._blocked[sender.host, target.host]:
            sender.held.append(chunk)
            self._holding[sender] = None
        else:
            if isinstance(chunk, bytes):
                if sender.is_closed and self.is_never_late(chunk):
                    chunk = RST
                else:
                    self._trace.sent(chunk)
            target.loop.call_soon(target.deliver, chunk)

    def _delay(self, source: str, target: str) -> float:
        draw = self._random.random()
        if draw < SPIKE_CHANCE:
            return draw / SPIKE_CHANCE * SPIKE_SECONDS_MAX
        return draw * DELAY_SECONDS_MAX * self.delay_factors.get((source, target), 1)

    # Processes and hosts that end.

    def process_ended(self, loop: ProcessLoop, *, with_power_cut: bool = False) -> None:
        """A process ended: its kernel closes the connections, unless the host has no power."""
        for host in self.hosts.values():
            for port, (accepting, _) in list(host.acceptors.items()):
                if accepting is loop:
                    del host.acceptors[port]
        for socket in [socket for socket in self._sockets if socket.loop is loop]:
            if with_power_cut:
                socket.is_closed = socket.is_gone = True
                socket.held.clear()
                self.forget(socket)
            else:
                socket.close()

    def power_off(self, host: str) -> None:
        """Nothing answers at this host."""
        self.host(host).is_up = False

    def power_on(self, host: str) -> None:
        """The host answers again; connections from before are unknown to it."""
        self.host(host).is_up = True
        for socket in [
            socket for socket in self._sockets if socket.peer.host == host and socket.peer.is_gone
        ]:
            self._holding.pop(socket, None)
            seconds_max = RETRANSMISSION_SECONDS_MAX if socket.held else KEEPALIVE_SECONDS
            self._loop.call_later(self._random.random() * seconds_max, self._arrive, socket.peer, RST)

    # Partitions.

    def block(self, pairs: Iterable[tuple[str, str]]) -> Callable[[], None]:
        """Cut these directions (source, target); returns what heals them."""
        cut = list(pairs)
        for pair in cut:
            self._blocked[pair] += 1
        return partial(self._heal, cut)

    def is_blocked(self, source: str, target: str) -> bool:
        """Is this direction cut?"""
        return self._blocked[source, target] > 0

    def _is_cut(self, source: str, target: str) -> bool:
        return self.is_blocked(source, target) or self.is_blocked(target, source)

    def _heal(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self._blocked[pair] -= 1
        for socket in list(self._holding):
            if not self.is_blocked(socket.host, socket.peer.host) and not socket.peer.is_gone:
                self._loop.call_later(
                    self._random.random() * RETRANSMISSION_SECONDS_MAX, self._release, socket
                )

    def _release(self, socket: Socket) -> None:
        if self.is_blocked(socket.host, socket.peer.host):
            return
        held, socket.held = socket.held, []
        self._holding.pop(socket, None)
        for chunk in held:
            self._arrive(socket, chunk)


class Transport(asyncio.Transport):
    """A connection as asyncio presents it to a protocol."""

    def __init__(self, socket: Socket, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"socket": _Options()})
        self._socket = socket
        self._protocol = protocol
        socket.on_data = self._received
        socket.on_end = self._ended
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._socket.send(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._socket.send(b"".join(list_of_data))

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._socket.is_closed:
            self._socket.close()
            self._socket.loop.call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._socket.is_closed

    def _received(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._socket.is_closed:
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._protocol.buffer_updated(count)
            view = view[count:]

    def _ended(self, is_reset: bool) -> None:
        if not is_reset:
            self._protocol.eof_received()
        self._protocol.connection_lost(ConnectionResetError("connection reset") if is_reset else None)


class _Options:
    """The options of a socket, which have no effect here."""

    def setsockopt(self, *arguments: int) -> None:
        """Accept any option."""
