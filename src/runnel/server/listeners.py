"""The listeners of a node: bound first, they serve once the node has started."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from runnel.controller.values import Endpoint
from runnel.net.admission import Admission, ListenerLimits
from runnel.net.listener import Listener
from runnel.ports.service import Service, Session
from runnel.server.addresses import Address
from runnel.server.layers import BadSettings
from runnel.server.roles import Roles

if TYPE_CHECKING:
    from runnel.tls.server import ServerTls


class Listeners:
    """All listeners of a node. Those of clients share limits, which do not apply to those of other nodes."""

    def __init__(
        self, roles: Roles, limits: ListenerLimits, service: Service, tls: "Mapping[str, ServerTls]"
    ) -> None:
        self._roles = roles
        self._clients = Admission(limits)
        self._peers = Admission(_without_connection_limits(limits))
        self._listeners: dict[str, Listener] = {}
        self.bound: dict[str, Address] = {}
        """The addresses by name, with their ports."""
        for address in roles.listeners:
            admission = self._peers if self._is_for_peers(address) else self._clients
            self._listeners[address.name] = Listener(service, address.name, admission, tls.get(address.name))

    def authenticate(self, name: str, open_session: Callable[[Session], None]) -> None:
        """Let the clients of this listener authenticate."""
        self._listeners[name].open_session = open_session

    def bind(self) -> None:
        """Bind all; connections wait until `accept`. Raises BadSettings."""
        for address in self._roles.listeners:
            try:
                port = self._listeners[address.name].bind(address.host, address.port)
            except OSError as error:
                raise BadSettings(f"cannot bind to {address}: {error.strerror or error}") from error
            self.bound[address.name] = Address(address.name, address.host, port)

    def serve(self, service: Service) -> None:
        """Let another service serve from now on, open connections included."""
        for listener in self._listeners.values():
            listener.service = service

    def accept(self, addresses: Iterable[Address]) -> None:
        """Accept connections on these listeners."""
        for address in addresses:
            self._listeners[address.name].accept()

    def endpoints(self, addresses: Iterable[Address]) -> tuple[Endpoint, ...]:
        """The advertised endpoints of these listeners."""
        advertised = (self.advertised(address) for address in addresses)
        protocols = self._roles.protocols
        return tuple(Endpoint(each.name, each.host, each.port, protocols[each.name]) for each in advertised)

    def advertised(self, address: Address) -> Address:
        """The advertised address of a listener."""
        return self._roles.endpoint(self.bound.get(address.name, address), _machine_name)

    def connection_counts(self) -> dict[str, int]:
        """The number of connections by listener."""
        return {name: len(listener.connections) for name, listener in self._listeners.items()}

    @property
    def receive_memory_bytes(self) -> int:
        """The memory of large requests that are being received."""
        return self._clients.memory.reserved_bytes + self._peers.memory.reserved_bytes

    def change(self, limits: ListenerLimits) -> None:
        """Apply new limits."""
        self._clients.change(limits)

    def hold_connections(self, hold_ms: Callable[[str], int]) -> None:
        """Ask this before a client's connection is kept, see `Admission.hold_ms`."""
        self._clients.hold_ms = hold_ms

    async def close(self) -> None:
        """Stop accepting, send pending responses, then close all connections."""
        await asyncio.gather(*(listener.close() for listener in self._listeners.values()))

    def abort(self) -> None:
        """Close everything at once, without responses to pending requests."""
        for listener in self._listeners.values():
            listener.abort()

    def _is_for_peers(self, address: Address) -> bool:
        clients = self._roles.broker_listeners
        if address not in clients:
            return True
        return address.name == self._roles.inter_broker_listener and len(clients) > 1


def _without_connection_limits(limits: ListenerLimits) -> ListenerLimits:
    unlimited = ListenerLimits()
    return replace(
        limits,
        connections_max=unlimited.connections_max,
        connections_per_host_max=unlimited.connections_per_host_max,
        connections_of_host_max={},
        connections_per_second_max=unlimited.connections_per_second_max,
    )


@cache
def _machine_name() -> str:
    return socket.getfqdn()
