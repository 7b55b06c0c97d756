"""One connection to a broker, with pipelined requests.

connect, TLS ──► ApiVersions ──► SASL ──► requests ⇄ SASL again, before the session ends (KIP-368)

While a connection authenticates again, new requests wait: the broker accepts none in between.
"""

import asyncio
import random
import ssl
from typing import TYPE_CHECKING, Any, TypeVar, cast

from runnel.client.connection_state import ConnectionState
from runnel.client.errors import ClientError, ConnectionLost, NoBrokerAvailable, TimedOut, TlsFailed, check
from runnel.client.security import closed_hint
from runnel.client.tls_errors import alert_text, tls_error
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.model.errors import ErrorCode
from runnel.wire import Buffer, Request, Response

if TYPE_CHECKING:
    from runnel.client.security import ClientSecurity

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0

_HANDSHAKE_ERRORS = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError)

ResponseT = TypeVar("ResponseT", bound=Response)


class Connection(asyncio.Protocol):
    """An open connection with negotiated API versions, authenticated if the listener requires it."""

    def __init__(self, address: str, client_id: str, security: "ClientSecurity | None" = None) -> None:
        self.address = address
        self._security = security
        self._state = ConnectionState(client_id)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._is_full = False
        self._authentication: asyncio.Task[None] | None = None
        self._authenticate_at_s: float | None = None
        """When the session is renewed, on the clock of the event loop; None if it has no end."""
        self._closed = asyncio.Event()
        self._end: ClientError | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "runnel",
        timeout_s: float = CONNECT_TIMEOUT_S,
        security: "ClientSecurity | None" = None,
    ) -> "Connection":
        """Connect, negotiate versions and authenticate.

        NoBrokerAvailable if the connection fails or times out, TlsFailed and AuthenticationFailed if another
        attempt would have the same result.
        """
        address = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}
        if security is not None and security.uses_tls:
            options = {"ssl": await asyncio.to_thread(security.ssl_context), "server_hostname": host}
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(address, client_id, security), host, port, **options
                )
        except TimeoutError:
            raise NoBrokerAvailable(address, f"no connection within {timeout_s:g} s") from None
        except OSError as error:
            raise _connect_error(address, host if options else None, error) from error
        try:
            await connection._negotiate_versions(timeout_s)
            if security is not None and security.uses_sasl:
                await connection._authenticate(timeout_s)
        except ConnectionLost:
            if isinstance(connection._end, TlsFailed):
                raise connection._end from None
            raise
        except BaseException:
            connection.abort()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._end is None

    def version_of(self, request: Request) -> int:
        """The version in which a request would be sent; UnsupportedVersion if there is none in common."""
        return self._state.version_of(request)

    def use_topic_ids(self, api_key: int) -> None:
        """Send requests of this API also in versions in which topics have ids instead of names."""
        self._state.version_limits.pop(api_key, None)

    def feature(self, name: str) -> int:
        """The finalized level of a cluster feature; 0 if there is none."""
        return self._state.features.get(name, 0)

    async def send(
        self, request: Request, response_type: type[ResponseT], *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> ResponseT:
        """Send a request and wait for its response. Concurrent requests are pipelined."""
        await self._wait_for_turn()
        return await self._ask(request, response_type, timeout_s)

    async def _ask(self, request: Request, response_type: type[ResponseT], timeout_s: float) -> ResponseT:
        self._check_open()
        correlation_id, buffers = self._state.send(request)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        self._waiting[correlation_id] = future
        self._send(buffers)
        # A fifth of the cost of asyncio.timeout.
        timer = loop.call_later(timeout_s, self._late, future, type(request), timeout_s)
        try:
            return cast(ResponseT, await future)
        finally:
            timer.cancel()
            self._waiting.pop(correlation_id, None)

    def _late(self, future: "asyncio.Future[Response]", kind: type[Request], timeout_s: float) -> None:
        if future.done():
            return
        name = kind.__name__.removesuffix("Request")
        late = TimedOut(f"{self.address} did not respond to {name} within {timeout_s:g} s")
        future.set_exception(late)
        # Responses arrive in order, so later requests would not complete either.
        self._finish(late)

    async def send_oneway(self, request: Request) -> None:
        """Send a request without a response."""
        await self._wait_for_turn()
        self._check_open()
        self._send(self._state.send_oneway(request))

    async def close(self) -> None:
        """Close the connection; in-flight requests fail."""
        self.abort()
        await self._closed.wait()

    def abort(self) -> None:
        """Close the connection without waiting for the socket."""
        self._finish(ConnectionLost(f"the connection to {self.address} was closed"))

    async def _negotiate_versions(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(client_software_name="runnel", client_software_version="1")
        response = await self._ask(request, ApiVersionsResponse, timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION.code:
            self._state.set_api_versions(response)
            response = await self._ask(request, ApiVersionsResponse, timeout_s)
        check(response.error_code, f"negotiating API versions with {self.address}")
        self._state.set_api_versions(response)

    # Authentication.

    async def _authenticate(self, timeout_s: float) -> None:
        """Exchange tokens until the broker accepts the credentials."""
        from runnel.client.authentication import authenticate
        from runnel.security.sasl_login import renewal_s

        assert self._security is not None
        name, mechanism = await asyncio.to_thread(self._security.new_mechanism)
        steps = authenticate(self.address, name, mechanism)
        request = next(steps)
        while True:
            response = await self._ask(request, Response, timeout_s)
            try:
                request = steps.send(response)
            except StopIteration as end:
                after_s = renewal_s(end.value, random.random())
                break
        now_s = asyncio.get_running_loop().time()
        self._authenticate_at_s = None if after_s is None else now_s + after_s

    async def _wait_for_turn(self) -> None:
        """Wait while the transport is full, or the session is renewed; begins that when it is time."""
        if self._authenticate_at_s is not None and self._is_session_old():
            self._authentication = asyncio.create_task(self._renew_session())
            self._update_turn()
        while not self._may_send.is_set():
            await self._may_send.wait()

    def _is_session_old(self) -> bool:
        is_due = asyncio.get_running_loop().time() >= cast(float, self._authenticate_at_s)
        return is_due and self._authentication is None and self._end is None

    async def _renew_session(self) -> None:
        """Authenticate again. A task of its own, so that a cancelled caller does not leave it half done."""
        try:
            await self._authenticate(REQUEST_TIMEOUT_S)
        except ClientError as error:
            self._finish(error)
        finally:
            self._authentication = None
            self._update_turn()

    def _update_turn(self) -> None:
        is_open = self._end is None
        if is_open and (self._is_full or self._authentication is not None):
            self._may_send.clear()
        else:
            self._may_send.set()

    def _check_open(self) -> None:
        if self._end is not None:
            raise ConnectionLost(str(self._end)) from self._end

    def _send(self, buffers: list[Buffer]) -> None:
        assert self._transport is not None
        self._transport.writelines(buffers)

    def _finish(self, end: ClientError) -> None:
        if self._end is None:
            self._end = end
            self._may_send.set()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionLost(str(end)))
        if self._transport is not None:
            self._transport.abort()
        else:
            self._closed.set()

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for correlation_id, response in self._state.received(data):
                future = self._waiting.get(correlation_id)
                if future is not None and not future.done():
                    future.set_result(response)
        except ClientError as error:
            self._finish(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(_lost(self.address, exc, self._hint()))
        self._closed.set()

    def pause_writing(self) -> None:
        self._is_full = True
        self._update_turn()

    def resume_writing(self) -> None:
        self._is_full = False
        self._update_turn()

    def _hint(self) -> str:
        """Why a broker may have closed the connection, by the number of requests that it answered."""
        return closed_hint(self._security, min(self._waiting, default=-1))


def _lost(address: str, error: Exception | None, hint: str) -> ClientError:
    alert = alert_text(error)
    if alert is not None:
        # With TLS 1.3 a client learns after the handshake that its certificate was refused.
        return TlsFailed(f"TLS with {address} failed: {alert}")
    reason = f": {error}" if error else ""
    return ConnectionLost(f"{address} closed the connection{reason}{hint}")


def _connect_error(address: str, tls_host: str | None, error: OSError) -> ClientError:
    if tls_host is not None and isinstance(error, _HANDSHAKE_ERRORS):
        return tls_error(address, tls_host, error)
    return NoBrokerAvailable(address, _reason(error))


def _reason(error: OSError) -> str:
    # For a name with several addresses asyncio combines the errors into one without errno.
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    return error.strerror or str(error)
