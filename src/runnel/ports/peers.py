"""Requests to other nodes of the cluster."""

from asyncio import Future
from collections.abc import Callable
from typing import Any, Protocol

from runnel.wire import Request


class PeerFailed(Exception):
    """The node cannot be reached, closed the connection, or did not respond in time.

    Whether it acted on the request is unknown.
    """


class PeerRefused(PeerFailed):
    """The host refused the connection: no process listens at this address."""


class PeerClosed(PeerFailed):
    """The node closed the connection instead of responding: perhaps because of the request."""


class PeerUnsupported(PeerFailed):
    """The node and this one support no common version of the API: the request was not sent."""


class Channel(Protocol):
    """A connection to one node: opened by the first request, and again by the first one after a failure.

    Requests are pipelined; responses arrive in order. A failure fails all requests in flight.
    """

    on_lost: Callable[[], None] | None
    """Called when an open connection ends otherwise than by `close`: the node closed it, or failed.

    The requests in flight fail right after it.
    """

    def send(
        self, request: Request, *, version: int | None = None, timeout_ms: int = 30_000
    ) -> "Future[Any]":
        """Send a request; the future has the decoded response, or fails with PeerFailed.

        Without a version, the newest one that both nodes support is used (ApiVersions is requested once per
        connection). With one, the request is sent without negotiation. Byte fields of the response are views
        of its frame, which is not reused.
        """
        ...

    def close(self) -> None:
        """Close the connection; requests in flight fail. The channel may be used again."""
        ...


class Peers(Protocol):
    """Opens channels to other nodes."""

    def channel(self, host: str, port: int, client_id: str) -> Channel:
        """A new channel; nothing is connected yet."""
        ...
