"""Channels to the other brokers of the cluster, by their registered endpoints."""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.peers import Channel, PeerFailed
from runnel.wire import Request

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker


class _Unreachable:
    """A channel that cannot connect."""

    on_lost: Callable[[], None] | None = None

    def send(
        self, request: Request, *, version: int | None = None, timeout_ms: int = 30_000
    ) -> "Future[Any]":
        failed: Future[Any] = get_running_loop().create_future()
        failed.set_exception(PeerFailed("this node has no connections to others"))
        return failed

    def close(self) -> None:
        """Nothing is open."""


class NoPeers:
    """The peers of a node without a network: none can be reached."""

    def channel(self, host: str, port: int, client_id: str) -> Channel:
        return _Unreachable()


@dataclass(slots=True)
class _Link:
    """A channel and the endpoint that it connects to."""

    host: str
    port: int
    channel: Channel


class Links:
    """One channel per broker and purpose: a long poll for one purpose delays no request of another."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._links: dict[tuple[int, str], _Link] = {}

    def to(self, node_id: int, purpose: str) -> Channel:
        """The channel to a broker's inter-broker listener.

        Raises BROKER_NOT_AVAILABLE unless the broker is registered with that listener.
        """
        host, port = self._endpoint(node_id)
        link = self._links.get((node_id, purpose))
        if link is not None and (link.host, link.port) == (host, port):
            return link.channel
        if link is not None:
            link.channel.close()
        channel = self._broker.peers.channel(host, port, f"broker-{self._broker.node_id}-{purpose}")
        self._links[node_id, purpose] = _Link(host, port, channel)
        return channel

    def close(self) -> None:
        """Close all channels."""
        for link in self._links.values():
            link.channel.close()
        self._links.clear()

    def _endpoint(self, node_id: int) -> tuple[str, int]:
        registration = self._broker.metadata.image.brokers.get(node_id)
        if registration is not None:
            for endpoint in registration.endpoints:
                if endpoint.name == self._broker.listener:
                    return endpoint.host, endpoint.port
        raise ApiError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"broker {node_id} is not registered with the listener {self._broker.listener}",
        )
