"""Which connections are accepted: limits that several listeners of a node share."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from runnel.model.limits import RECEIVE_MEMORY_BYTES_MAX, REQUEST_BYTES_MAX
from runnel.net.buffers import ReceiveMemory
from runnel.net.rate_limit import TokenBucket

if TYPE_CHECKING:
    from runnel.net.connection import Connection

log = logging.getLogger("runnel.net")


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of listeners, named after Kafka's settings."""

    connections_max: int = 2**31 - 1
    connections_per_host_max: int = 2**31 - 1
    connections_of_host_max: Mapping[str, int] = field(default_factory=dict)
    connections_per_second_max: int = 2**31 - 1
    idle_max_ms: int = 10 * 60 * 1000
    request_bytes_max: int = REQUEST_BYTES_MAX
    receive_memory_bytes_max: int = RECEIVE_MEMORY_BYTES_MAX
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    backlog: int = 1024


class Admission:
    """The connections of all listeners that share limits, and the memory of their incomplete requests."""

    def __init__(self, limits: ListenerLimits | None = None) -> None:
        self.limits = limits or ListenerLimits()
        self.memory = ReceiveMemory(self.limits.receive_memory_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._connections: set[Connection] = set()
        self._hosts: Counter[str] = Counter()
        self._rate = TokenBucket(self.limits.connections_per_second_max, self._loop.time())
        self._when_room: list[Callable[[], None]] = []
        self.hold_ms: Callable[[str], int] = lambda host: 0
        """Charges a connection to the quota of its address; above it, how long it is held, then closed."""

    @property
    def count(self) -> int:
        """The number of connections."""
        return len(self._connections)

    @property
    def is_full(self) -> bool:
        """Whether another connection has to wait until one is closed."""
        return len(self._connections) >= self.limits.connections_max

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back whenever there may be room for another connection."""
        self._when_room.append(callback)

    def wait_seconds(self) -> float:
        """Delay until the next connection is allowed by the rate."""
        return self._rate.wait_seconds(self._loop.time())

    def counted(self) -> None:
        """A connection was accepted, whether or not it is kept."""
        self._rate.take()

    def permits(self, host: str) -> bool:
        """Whether this host may have another connection."""
        return self._hosts[host] < self._host_max(host)

    def opened(self, connection: "Connection") -> None:
        """A connection is kept."""
        self._connections.add(connection)
        self._hosts[connection.session.client_host] += 1

    def closed(self, connection: "Connection") -> None:
        """A connection was closed."""
        self._connections.discard(connection)
        host = connection.session.client_host
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self._offer_room()

    def change(self, limits: ListenerLimits) -> None:
        """Apply new limits; options of listening sockets are not changed."""
        if limits.connections_per_second_max != self.limits.connections_per_second_max:
            self._rate = TokenBucket(limits.connections_per_second_max, self._loop.time())
        self.limits = limits
        self._offer_room()
        # Deferred: the change may be made during a connection's turn.
        self._loop.call_soon(self._shed)

    def _offer_room(self) -> None:
        for callback in self._when_room:
            callback()

    def _shed(self) -> None:
        """Close the longest idle connections above the limit, as Kafka does."""
        excess = len(self._connections) - self.limits.connections_max
        if excess > 0:
            log.warning("closing %d connections, max.connections was lowered", excess)
            by_silence = sorted(self._connections, key=lambda one: (not one.is_idle, one.active_at))
            for connection in by_silence[:excess]:
                connection.close("max.connections exceeded")

    def _host_max(self, host: str) -> int:
        limits = self.limits
        if limits.connections_of_host_max and ":" in host:
            # A dual-stack socket shows IPv4 clients as mapped IPv6 addresses; a scope id may follow.
            address = IPv6Address(host.partition("%")[0])
            host = str(address.ipv4_mapped or address)
        return limits.connections_of_host_max.get(host, limits.connections_per_host_max)
