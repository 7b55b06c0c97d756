"""Channels to other nodes over TCP.

    TcpPeers ─► PeerChannel ─► _Link, one per connection:
                               connecting → authenticating → negotiating → open → ended

A node with SASL is authenticated at first, and again before its session ends; requests wait meanwhile.

A link ends by the first failure: the connection is refused, lost or closed, a response is malformed, or one
does not arrive in time. It then fails its requests, and the channel's next request opens another link.
"""

import asyncio
import errno
import logging
import re
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.messages.exchange import Exchange, NoCommonVersion
from runnel.model.errors import ErrorCode
from runnel.model.limits import PEER_REQUESTS_IN_FLIGHT_MAX, PEER_RESPONSE_BYTES_MAX
from runnel.net.buffers import LargeFrame, new_buffer
from runnel.ports.peers import PeerClosed, PeerFailed, PeerRefused, PeerUnsupported
from runnel.wire import MalformedMessage, Request

if TYPE_CHECKING:
    import ssl

    from runnel.security.sasl_login import SaslLogin

CONNECT_TIMEOUT_MS = 5_000
"""How long a connection may take. A lost packet of the handshake is repeated after one and three seconds."""

HEAD_BYTES = 16 * 1024
"""Size of a receive that begins with the size of a frame; the rest of a larger frame is received in place."""

LOGIN_SECONDS_MAX = 30
"""How long a step of an authentication may take. A repeated one waits for the requests in flight."""

KEEPALIVE_SECONDS = 10
"""Silence after which the kernel probes a connection, and the interval of the probes."""

_SIZE = Struct(">i").unpack_from
log = logging.getLogger("runnel.net")


class _Call:
    """A request whose response is awaited."""

    __slots__ = ("deadline", "future", "request", "version")

    def __init__(
        self, request: Request, version: int | None, future: "asyncio.Future[Any]", deadline: float
    ) -> None:
        self.request = request
        self.version = version
        self.future = future
        self.deadline = deadline

    def fail(self, failure: Exception) -> None:
        """End the request without a response."""
        if not self.future.done():
            self.future.set_exception(failure)
            # Marks it as seen: a caller that no longer waits is no bug to be logged.
            self.future.exception()


class TcpPeers:
    """Opens channels to other nodes, on the running event loop."""

    def __init__(
        self,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        tls: "Callable[[], ssl.SSLContext] | None" = None,
        login: "Callable[[], SaslLogin] | None" = None,
    ) -> None:
        self.connect_timeout_s = connect_timeout_ms / 1000
        self.login = login
        """Begins an authentication; None if the nodes do not use SASL."""
        self.tls = tls
        """The TLS context of new connections; None for clear text."""
        self.is_closed = False
        self._links: dict[_Link, None] = {}

    def channel(self, host: str, port: int, client_id: str) -> "PeerChannel":
        """A new channel; nothing is connected yet."""
        return PeerChannel(self, host, port, client_id)

    def close(self) -> None:
        """Close all connections; channels fail from now on."""
        self.is_closed = True
        for link in list(self._links):
            link.end("this node is stopping")

    def opened(self, link: "_Link") -> None:
        """A link exists."""
        self._links[link] = None

    def ended(self, link: "_Link") -> None:
        """A link ended."""
        self._links.pop(link, None)


class PeerChannel:
    """Requests to one node, over one connection at a time."""

    def __init__(self, peers: TcpPeers, host: str, port: int, client_id: str) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.on_lost: Callable[[], None] | None = None
        self._peers = peers
        self._link: _Link | None = None

    def send(
        self, request: Request, *, version: int | None = None, timeout_ms: int = 30_000
    ) -> "asyncio.Future[Any]":
        """Send a request; the future has the decoded response, or fails with PeerFailed."""
        if version is not None and version not in request.versions:
            raise ValueError(f"{type(request).__name__} has no version {version}")
        if self._peers.is_closed:
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            _Call(request, version, failed, 0).fail(PeerFailed("this node is stopping"))
            return failed
        link = self._link
        if link is None:
            self._link = link = _Link(self)
            self._peers.opened(link)
            link.open(self._peers.connect_timeout_s, self._peers.tls, self._peers.login)
        return link.send(request, version, timeout_ms / 1000)

    def close(self) -> None:
        """Close the connection; requests in flight fail. The channel may be used again."""
        if self._link is not None:
            self._link.end("the connection was closed by this node")

    def ended(self, link: "_Link", *, is_lost: bool) -> None:
        """A link ended; `is_lost` if it was open and not closed by this node."""
        self._peers.ended(link)
        if self._link is link:
            self._link = None
            if is_lost and self.on_lost is not None:
                self.on_lost()


class _Link(asyncio.BufferedProtocol):
    """One connection: requests that wait for it, requests in flight, and the frame being received."""

    def __init__(self, channel: PeerChannel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._exchange = Exchange(channel.client_id)
        self._tls: Callable[[], ssl.SSLContext] | None = None
        self._new_login: Callable[[], SaslLogin] | None = None
        self._is_logging_in = False
        self._next_login: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connect_deadline = 0.0
        self._waiting: deque[_Call] = deque()
        """Requests that are not sent yet: the connection or the versions are not there."""
        self._in_flight: dict[int, _Call] = {}
        self._is_negotiating = False
        self._is_older = False
        """The node did not support this node's version of ApiVersions."""
        self._has_versions = False
        self._has_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._head = memoryview(bytearray(HEAD_BYTES))
        self._head_filled = 0
        self._frame: LargeFrame | None = None

    # Requests.

    def open(
        self,
        timeout_s: float,
        tls: "Callable[[], ssl.SSLContext] | None",
        login: "Callable[[], SaslLogin] | None",
    ) -> None:
        """Begin to connect."""
        self._tls, self._new_login = tls, login
        self._connect_deadline = self._loop.time() + timeout_s
        self._expect_by(self._connect_deadline)
        self._connecting = self._loop.create_task(self._connect())

    def send(self, request: Request, version: int | None, timeout_s: float) -> "asyncio.Future[Any]":
        """Send a request, now or when the connection is open."""
        future: asyncio.Future[Any] = self._loop.create_future()
        call = _Call(request, version, future, self._loop.time() + timeout_s)
        if len(self._waiting) + len(self._in_flight) >= PEER_REQUESTS_IN_FLIGHT_MAX:
            call.fail(self._failure(PeerFailed, "too many requests are in flight"))
            return future
        self._expect_by(call.deadline)
        self._waiting.append(call)
        if self._transport is not None:
            self._send_waiting()
        return future

    def end(self, reason: str, *, is_lost: bool = False, kind: type[PeerFailed] = PeerFailed) -> None:
        """Close the connection and fail all requests."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._next_login is not None:
            self._next_login.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        transport, self._transport, self._connecting, self._timer = self._transport, None, None, None
        if transport is not None:
            transport.abort()
        self._channel.ended(self, is_lost=is_lost and transport is not None)
        in_flight, waiting = [*self._in_flight.values()], [*self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for call in in_flight:
            call.fail(self._failure(kind, reason))
        # Whatever the node did, it was not because of these.
        unsent = PeerFailed if kind is PeerClosed else kind
        for call in waiting:
            call.fail(self._failure(unsent, reason))

    def _failure(self, kind: type[PeerFailed], reason: str) -> PeerFailed:
        return kind(f"{self._channel.host}:{self._channel.port}: {reason}")

    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting and not self._has_ended and not self._is_logging_in:
            call = waiting[0]
            if call.version is None and not self._has_versions:
                self._negotiate()
                return
            waiting.popleft()
            if not call.future.done():
                self._write(call)

    def _write(self, call: _Call) -> None:
        try:
            version = call.version
            if version is None:
                version = self._exchange.version_of(call.request)
            correlation_id, buffers = self._exchange.encode(call.request, version)
        except NoCommonVersion as error:
            call.fail(self._failure(PeerUnsupported, f"no version of {error} is supported by both nodes"))
            # A node that is starting, or was upgraded, supports more later: ask it again.
            self._has_versions = False
            if not self._in_flight and not self._waiting:
                self.end("it does not support a request")
            return
        except Exception as bug:  # noqa: BLE001 - the caller receives it
            call.fail(bug)
            return
        self._in_flight[correlation_id] = call
        assert self._transport is not None
        self._transport.writelines(buffers)

    # Authentication.

    def _log_in(self) -> None:
        assert self._new_login is not None
        login = self._new_login()
        self._is_logging_in = True
        self._send_login(login, login.first())

    def _send_login(self, login: "SaslLogin", request: Request) -> None:
        answered: asyncio.Future[Any] = self._loop.create_future()
        answered.add_done_callback(partial(self._login_answered, login))
        deadline = self._loop.time() + LOGIN_SECONDS_MAX
        self._expect_by(deadline)
        self._write(_Call(request, request.versions[-1], answered, deadline))

    def _login_answered(self, login: "SaslLogin", answered: "asyncio.Future[Any]") -> None:
        # Imported here: nodes without SASL do not need it.
        from runnel.security.sasl_client import SaslFailed
        from runnel.security.sasl_login import renewal_s

        if self._has_ended or answered.exception() is not None:
            return
        try:
            request = login.next(answered.result())
        except SaslFailed as error:
            log.warning("%s:%d: authentication failed: %s", self._channel.host, self._channel.port, error)
            self.end(f"authentication failed: {error}", is_lost=True)
            return
        if request is not None:
            self._send_login(login, request)
            return
        self._is_logging_in = False
        delay_s = renewal_s(login.session_ms, 0)
        if delay_s is not None:
            self._next_login = self._loop.call_later(delay_s, self._log_in)
        self._send_waiting()

    # Negotiation.

    def _negotiate(self) -> None:
        if self._is_negotiating:
            return
        self._is_negotiating = True
        request = ApiVersionsRequest(client_software_name="runnel", client_software_version="1")
        answered: asyncio.Future[Any] = self._loop.create_future()
        answered.add_done_callback(self._negotiated)
        # Its deadline is that of the first request which waits for it.
        self._write(_Call(request, None, answered, self._waiting[0].deadline))

    def _negotiated(self, answered: "asyncio.Future[Any]") -> None:
        if self._has_ended:
            return
        self._is_negotiating = False
        if (failure := answered.exception()) is not None:
            self.end(f"ApiVersions failed: {failure}", is_lost=True)
            return
        response: ApiVersionsResponse = answered.result()
        self._exchange.set_api_versions(response)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION.code and not self._is_older:
            # The response states the versions of ApiVersions that the node supports (KIP-511).
            self._is_older = True
        elif response.error_code:
            self.end(f"ApiVersions failed with error code {response.error_code}", is_lost=True)
            return
        else:
            self._has_versions = True
        self._send_waiting()

    # Deadlines: one timer for the connection, set to the earliest or before it.

    def _expect_by(self, deadline: float) -> None:
        if self._timer is None or deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self._transport is None and self._connect_deadline <= now:
            self.end("the connection timed out")
            return
        deadlines = [call.deadline for call in (*self._in_flight.values(), *self._waiting)]
        if self._transport is None:
            deadlines.append(self._connect_deadline)
        if not deadlines:
            return
        earliest = min(deadlines)
        if earliest > now:
            self._expect_by(earliest)
            return
        # Responses arrive in order: those behind the late one would not arrive either.
        late = next(call for call in (*self._in_flight.values(), *self._waiting) if call.deadline <= now)
        name = type(late.request).__name__.removesuffix("Request")
        self.end(f"no response to {name} in time", is_lost=True)

    # The connection.

    async def _connect(self) -> None:
        try:
            await self._loop.create_connection(
                lambda: self,
                self._channel.host,
                self._channel.port,
                ssl=self._tls() if self._tls is not None else None,
            )
        except OSError as error:
            if _is_refusal(error):
                self.end("the connection was refused", kind=PeerRefused)
            else:
                self.end(_reason(error))
        else:
            self._connecting = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        if self._has_ended:
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        with suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
        if self._new_login is not None:
            self._log_in()
        else:
            self._send_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        reason = "the connection was lost" + (f": {_reason(exc)}" if exc else "")
        self.end(reason, is_lost=True, kind=PeerClosed)

    def eof_received(self) -> bool:
        """The node closed its side: no more responses arrive."""
        self.end("it closed the connection", is_lost=True, kind=PeerClosed)
        return False

    # Responses.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are received."""
        if self._frame is not None:
            return self._frame.room()
        return self._head[self._head_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were received."""
        if self._has_ended:
            return
        try:
            if self._frame is not None:
                self._frame.received += nbytes
                if self._frame.is_complete:
                    frame, self._frame = self._frame.frame, None
                    self._received(frame)
            else:
                self._split(self._head_filled + nbytes)
        except MalformedMessage as error:
            self.end(f"invalid response: {error}", is_lost=True)

    def _split(self, end: int) -> None:
        """Take the complete frames out of the head; a larger one continues in its own buffer."""
        head, position = self._head, 0
        while end - position >= 4 and not self._has_ended:
            (size_bytes,) = _SIZE(head, position)
            if not 4 <= size_bytes <= PEER_RESPONSE_BYTES_MAX:
                raise MalformedMessage(f"a size of {size_bytes} bytes")
            if position + 4 + size_bytes > end:
                self._frame = LargeFrame(size_bytes, new_buffer(size_bytes))
                self._frame.add(head[position + 4 : end])
                position = end
                break
            frame = memoryview(bytearray(head[position + 4 : position + 4 + size_bytes]))
            position += 4 + size_bytes
            self._received(frame)
        self._head_filled = end - position
        head[: self._head_filled] = bytes(head[position:end])

    def _received(self, frame: memoryview) -> None:
        correlation_id, response = self._exchange.decode(frame)
        call = self._in_flight.pop(correlation_id)
        if not call.future.done():
            call.future.set_result(response)


def _reason(error: Exception) -> str:
    if type(error).__module__ == "ssl":
        from runnel.tls.failures import tls_failure

        return tls_failure(cast("ssl.SSLError", error))
    return getattr(error, "strerror", None) or str(error)


def _is_refusal(error: OSError) -> bool:
    """Did every address of the host refuse the connection?"""
    # For a name with several addresses asyncio combines the errors into one without errno.
    numbers = [str(error.errno)] if error.errno is not None else re.findall(r"\[Errno (\d+)\]", str(error))
    return bool(numbers) and set(numbers) == {str(errno.ECONNREFUSED)}
