"""A blocking connection to a broker, for the tasks of Spark."""

import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar, cast

from runnel.client.connection_state import ConnectionState, frame_length
from runnel.client.errors import ConnectionLost, NoBrokerAvailable, TimedOut, TlsFailed, check
from runnel.client.security import ClientSecurity, closed_hint
from runnel.client.tls_errors import alert_text, tls_error
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.messages.fetch import FetchRequest
from runnel.model.errors import ErrorCode
from runnel.wire import Request, Response

CONNECT_TIMEOUT_S = 5.0
NEGOTIATION_TIMEOUT_S = 10.0
"""Brokers respond to ApiVersions at once; after this time another broker is tried."""
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
"""Room for the next response while the previous one is decoded."""
FETCH_VERSION_MAX = 17
"""Version 18 is for followers."""

A = TypeVar("A", bound=Response)


class BlockingConnection:
    """An open connection with negotiated versions; a context manager. Responses are in request order."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        security: ClientSecurity | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self._timeout_s = min(NEGOTIATION_TIMEOUT_S, timeout_s)
        self._conversation = ConnectionState(client_id)
        self._security = security
        self._is_negotiated = False
        self._authenticate_at_s: float | None = None
        """When the session is renewed; None if it has no end."""
        try:
            self._socket = socket.create_connection((host, port), timeout=min(CONNECT_TIMEOUT_S, timeout_s))
        except TimeoutError:
            raise NoBrokerAvailable(self.address, "connection timed out") from None
        except OSError as error:
            raise NoBrokerAvailable(self.address, (error.strerror or str(error)).lower()) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            self._socket.settimeout(self._timeout_s)
            if security is not None and security.uses_tls:
                self._socket = _with_tls(self._socket, security, host, self.address)
            self._negotiate_versions()
            if security is not None and security.uses_sasl:
                self._authenticate(security)
            self._timeout_s = timeout_s
            self._socket.settimeout(timeout_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "BlockingConnection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def use_topic_ids(self) -> None:
        """Fetch by topic ids if the broker supports it, so that a recreated topic is detected."""
        self._conversation.version_limits[FetchRequest.api_key] = FETCH_VERSION_MAX + 1

    def ask(self, request: Request, answer: type[A]) -> A:
        """Send a request and wait for the response."""
        self.send(request, answer)
        return cast(A, self.receive())

    def send(self, request: Request, answer: type[A]) -> None:
        """Send a request; `receive` returns the response. No other request may be in flight."""
        if self._authenticate_at_s is not None and time.monotonic() >= self._authenticate_at_s:
            self._authenticate(cast(ClientSecurity, self._security))
        self._send(request)

    def _send(self, request: Request) -> None:
        _, buffers = self._conversation.send(request)
        with self._guarded():
            self._socket.sendall(b"".join(buffers))

    def receive(self) -> Response:
        """The response to the oldest request."""
        prefix = bytearray(4)
        self._fill(memoryview(prefix))
        frame = bytearray(4 + frame_length(prefix))
        frame[:4] = prefix
        self._fill(memoryview(frame)[4:])
        ((_, answer),) = self._conversation.received(cast(bytes, frame))
        return answer

    def _fill(self, view: memoryview) -> None:
        while view:
            with self._guarded():
                count = self._socket.recv_into(view)
            if not count:
                raise ConnectionLost(f"{self.address} closed the connection{self._hint()}")
            view = view[count:]

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise TimedOut(f"{self.address} did not respond within {self._timeout_s:g} s") from None
        except OSError as error:
            alert = alert_text(error)
            if alert is not None:
                raise TlsFailed(f"TLS with {self.address} failed: {alert}") from None
            raise ConnectionLost(
                f"the connection to {self.address} was lost: {error}{self._hint()}"
            ) from error

    def _hint(self) -> str:
        return "" if self._is_negotiated else closed_hint(self._security, 0)

    def _negotiate_versions(self) -> None:
        ours = ApiVersionsRequest(client_software_name="runnel", client_software_version="1")
        answer = self.ask(ours, ApiVersionsResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION.code:
            self._conversation.set_api_versions(answer)
            answer = self.ask(ours, ApiVersionsResponse)
        check(answer.error_code, f"negotiating versions with {self.address}")
        self._conversation.set_api_versions(answer)
        self._is_negotiated = True

    def _authenticate(self, security: ClientSecurity) -> None:
        """Authenticate, or authenticate again before the session ends (KIP-368)."""
        from runnel.client.authentication import authenticate
        from runnel.security.sasl_login import renewal_s

        name, mechanism = security.new_mechanism()
        steps = authenticate(self.address, name, mechanism)
        request = next(steps)
        while True:
            self._send(request)
            try:
                request = steps.send(self.receive())
            except StopIteration as end:
                after_s = renewal_s(end.value, random.random())
                break
        self._authenticate_at_s = None if after_s is None else time.monotonic() + after_s


def _with_tls(plain: socket.socket, security: ClientSecurity, host: str, address: str) -> socket.socket:
    try:
        return security.ssl_context().wrap_socket(plain, server_hostname=host)
    except TimeoutError:
        raise NoBrokerAvailable(address, "the TLS handshake timed out") from None
    except OSError as error:
        raise tls_error(address, host, error) from error
