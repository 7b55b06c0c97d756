"""One connection to a broker, with pipelined requests."""

import asyncio
from typing import TypeVar, cast

from runnel.client.connection_state import ConnectionState
from runnel.client.errors import ClientError, ConnectionLost, NoBrokerAvailable, TimedOut, check
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.model.errors import ErrorCode
from runnel.wire import Buffer, Request, Response

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0

ResponseT = TypeVar("ResponseT", bound=Response)


class Connection(asyncio.Protocol):
    """An open connection with negotiated API versions."""

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self._state = ConnectionState(client_id)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self._end: ClientError | None = None

    @classmethod
    async def open(
        cls, host: str, port: int, *, client_id: str = "runnel", timeout_s: float = CONNECT_TIMEOUT_S
    ) -> "Connection":
        """Connect and negotiate versions; NoBrokerAvailable if the connection fails or times out."""
        address = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(lambda: cls(address, client_id), host, port)
        except TimeoutError:
            raise NoBrokerAvailable(address, f"no connection within {timeout_s:g} s") from None
        except OSError as error:
            raise NoBrokerAvailable(address, _reason(error)) from error
        try:
            await connection._negotiate_versions(timeout_s)
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

    def feature(self, name: str) -> int:
        """The finalized level of a cluster feature; 0 if there is none."""
        return self._state.features.get(name, 0)

    async def send(
        self, request: Request, response_type: type[ResponseT], *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> ResponseT:
        """Send a request and wait for its response. Concurrent requests are pipelined."""
        await self._writable.wait()
        self._check_open()
        correlation_id, buffers = self._state.send(request)
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        self._send(buffers)
        try:
            async with asyncio.timeout(timeout_s):
                return cast(ResponseT, await future)
        except TimeoutError:
            name = type(request).__name__.removesuffix("Request")
            late = TimedOut(f"{self.address} did not respond to {name} within {timeout_s:g} s")
            # Responses arrive in order, so later requests would not complete either.
            self._finish(late)
            raise late from None
        finally:
            self._waiting.pop(correlation_id, None)

    async def send_oneway(self, request: Request) -> None:
        """Send a request without a response."""
        await self._writable.wait()
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
        response = await self.send(request, ApiVersionsResponse, timeout_s=timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION.code:
            self._state.set_api_versions(response)
            response = await self.send(request, ApiVersionsResponse, timeout_s=timeout_s)
        check(response.error_code, f"negotiating API versions with {self.address}")
        self._state.set_api_versions(response)

    def _check_open(self) -> None:
        if self._end is not None:
            raise ConnectionLost(str(self._end)) from self._end

    def _send(self, buffers: list[Buffer]) -> None:
        assert self._transport is not None
        self._transport.writelines(buffers)

    def _finish(self, end: ClientError) -> None:
        if self._end is None:
            self._end = end
            self._writable.set()
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
        reason = f": {exc}" if exc else ""
        self._finish(ConnectionLost(f"{self.address} closed the connection{reason}"))
        self._closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


def _reason(error: OSError) -> str:
    # For a name with several addresses asyncio combines the errors into one without errno.
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    return error.strerror or str(error)
