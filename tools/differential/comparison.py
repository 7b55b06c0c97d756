"""Two brokers that receive the same requests, and the differences between their responses.

Requests are built from our own message declarations, in every version, also in those that no current client
sends. What must differ (ids, addresses, times) is ignored, and so is what is equivalent: null or empty, one
order of partitions or another.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from runnel.messages.registry import api
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from runnel.wire import Request, Struct, decode, encode, fields_of
from runnel.wire.frame import has_flexible_header, read_response_header, request_frame

REQUEST_TIMEOUT_S = 15.0
SETTLE_S = 0.4
"""How long Kafka may take until an acknowledged change is visible everywhere."""

CLOSED = "the connection is closed"
TIMED_OUT = "no response"

NEVER_EQUAL = frozenset(
    (
        "topic_id",
        "cluster_id",
        "host",
        "port",
        "throttle_time_ms",
        "session_id",
        "member_id",
        "leader",
        "producer_id",
        "error_message",
        "batch_index_error_message",
        "log_append_time_ms",
        "last_timestamp",
        "documentation",
        "log_dir",
        "partition_size",
        "total_bytes",
        "usable_bytes",
        "replica_directory_id",
        "heartbeat_interval_ms",
    )
)


class Broker:
    """One of the two brokers: its connections, and the ids it assigned.

    With a password, clients authenticate as users of their names.
    """

    def __init__(self, port: int, password: str | None = None) -> None:
        self.port = port
        self._password = password
        self.topic_ids: dict[str, bytes] = {}
        self.member_ids: dict[str, str] = {}
        self.producer_id = -1
        self.session_id = 0
        self.token_hmac = b""
        self._sockets: dict[str, socket.socket] = {}

    def send(self, frame: bytes, client: str) -> bytes | str:
        """The frame of the response, or what happened instead."""
        connection = self._sockets.get(client)
        if connection is None:
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=REQUEST_TIMEOUT_S)
            self._sockets[client] = connection
            if self._password is not None:
                self._log_in(client, self._password)
        try:
            connection.sendall(frame)
            (size_bytes,) = struct.unpack(">i", _receive(connection, 4))
            return _receive(connection, size_bytes)
        except (EOFError, ConnectionError):
            outcome = CLOSED
        except TimeoutError:
            outcome = TIMED_OUT
        self._sockets.pop(client).close()
        return outcome

    def request(self, request: Request, version: int, client: str) -> Any:
        """The response, or what happened instead."""
        frame = b"".join(bytes(part) for part in request_frame(request, version, 7, client))
        response = self.send(frame, client)
        if isinstance(response, str):
            return response
        kind = api(request.api_key).response
        _, position = read_response_header(memoryview(response), has_flexible_header(kind, version))
        decoded = decode(kind, version, memoryview(response), position)
        assert b"".join(bytes(part) for part in encode(decoded, version)) == response[position:]
        return decoded

    def _log_in(self, client: str, password: str) -> None:
        self.request(SaslHandshakeRequest("PLAIN"), 1, client)
        answer = self.request(SaslAuthenticateRequest(f"\0{client}\0{password}".encode()), 2, client)
        assert not isinstance(answer, str) and answer.error_code == 0, f"{client} is no user: {answer}"

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()


RequestFor = Callable[[Broker], Request]
"""Builds a request with the ids that a broker assigned."""


@dataclass(slots=True)
class Difference:
    """One field in which two responses differ."""

    case: str
    version: int
    where: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.case} v{self.version}: {self.where}: {self.ours!s:.160} / Kafka: {self.theirs!s:.160}"


@dataclass(slots=True)
class BrokerPair:
    """Both brokers, and the differences found so far."""

    ours: Broker
    theirs: Broker
    settle_s: float = SETTLE_S
    cases: dict[str, list[Difference]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))

    def check(
        self,
        case: str,
        request: Request | RequestFor,
        versions: int | Iterable[int],
        *,
        ignore: str = "",
        client: str = "one",
    ) -> tuple[Any, Any]:
        """Send to both in each of these versions, and compare; the last responses."""
        responses: tuple[Any, Any] = (None, None)
        for version in [versions] if isinstance(versions, int) else versions:
            responses = self.begin(request, version, client).result()
            # Without a response of Kafka there is nothing to compare with.
            assert not isinstance(responses[1], str), f"Kafka, {case} v{version}: {responses[1]}"
            self.compare(case, version, responses, ignore)
        return responses

    def begin(self, request: Request | RequestFor, version: int, client: str) -> "Future[tuple[Any, Any]]":
        """Send to both without waiting for the responses."""

        def sent(broker: Broker) -> Any:
            return broker.request(
                request if isinstance(request, Request) else request(broker), version, client
            )

        ours, theirs = (self._pool.submit(sent, broker) for broker in (self.ours, self.theirs))
        return self._pool.submit(lambda: (ours.result(), theirs.result()))

    def compare(
        self,
        case: str,
        version: int,
        responses: tuple[Any, Any],
        ignore: str = "",
        never_equal: frozenset[str] = NEVER_EQUAL,
    ) -> None:
        """Record the differences of two responses."""
        ignored = never_equal | set(ignore.split())
        found = self.cases.setdefault(case, [])
        ours, theirs = (plain(response, ignored) for response in responses)
        for where, one, other in differences(ours, theirs):
            found.append(Difference(case, version, where, one, other))

    def send_frame(self, case: str, frame: bytes) -> None:
        """Send malformed bytes; compare only whether the connection is closed."""
        outcomes = []
        for broker in (self.ours, self.theirs):
            response = broker.send(frame, case)
            outcomes.append(response if isinstance(response, str) else "a response")
        self.compare(case, -1, (outcomes[0], outcomes[1]))

    def settle(self) -> None:
        """Wait until a change is visible everywhere."""
        time.sleep(self.settle_s)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
        self._pool.shutdown()


def plain(value: Any, ignored: frozenset[str] | set[str]) -> Any:
    """A message as dictionaries and lists, without what is ignored."""
    if isinstance(value, Struct):
        names = (item.name for item in fields_of(type(value)) if item.name not in ignored)
        return {name: plain(getattr(value, name), ignored) for name in names}
    if isinstance(value, list):
        items = [plain(item, ignored) for item in value]
        return sorted(items, key=str) or None
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex() or None
    return None if value == "" else value


def differences(ours: Any, theirs: Any, where: str = "") -> Iterable[tuple[str, Any, Any]]:
    """(path, our value, their value) wherever two plain values are not equal."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours:
            yield from differences(ours[name], theirs[name], f"{where}.{name}" if where else name)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif ours != theirs:
        yield where, ours, theirs


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
