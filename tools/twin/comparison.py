"""Two brokers, asked the same thing at the same time, and what their answers do not have in common.

Requests are built from our own message declarations, in every version, so that also those are asked that no
client of today sends. What must differ (ids, addresses, moments) is left out, and so is what says the same
in two ways: null or nothing, one order of partitions or another.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from runnel.messages.registry import api
from runnel.wire import Request, Struct, decode, encode, fields_of
from runnel.wire.frame import has_flexible_header, read_response_header, request_frame

REQUEST_TIMEOUT_S = 15.0
SETTLE_S = 0.4
"""How long Kafka may take until a change that it has acknowledged can be seen everywhere."""

CLOSED = "the connection is closed"
SILENCE = "no answer"

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


class Twin:
    """One of the two brokers: its connections, and what it has called things."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.topic_ids: dict[str, bytes] = {}
        self.member_ids: dict[str, str] = {}
        self.producer_id = -1
        self.session_id = 0
        self._sockets: dict[str, socket.socket] = {}

    def send(self, frame: bytes, client: str) -> bytes | str:
        """The answer's frame, or what happened instead of one."""
        connection = self._sockets.get(client)
        if connection is None:
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=REQUEST_TIMEOUT_S)
            self._sockets[client] = connection
        try:
            connection.sendall(frame)
            (size_bytes,) = struct.unpack(">i", _receive(connection, 4))
            return _receive(connection, size_bytes)
        except (EOFError, ConnectionError):
            outcome = CLOSED
        except TimeoutError:
            outcome = SILENCE
        self._sockets.pop(client).close()
        return outcome

    def ask(self, request: Request, version: int, client: str) -> Any:
        """The response, or what happened instead of one."""
        frame = b"".join(bytes(part) for part in request_frame(request, version, 7, client))
        answer = self.send(frame, client)
        if isinstance(answer, str):
            return answer
        response = api(request.api_key).response
        _, position = read_response_header(memoryview(answer), has_flexible_header(response, version))
        decoded = decode(response, version, memoryview(answer), position)
        assert b"".join(bytes(part) for part in encode(decoded, version)) == answer[position:]
        return decoded

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()


Making = Callable[[Twin], Request]
"""Makes a request for a broker out of what that broker has called things."""


@dataclass(slots=True)
class Difference:
    """One place in which two answers to one question differ."""

    question: str
    version: int
    where: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return (
            f"{self.question} v{self.version}: {self.where}: {self.ours!s:.160} / Kafka: {self.theirs!s:.160}"
        )


@dataclass(slots=True)
class Twins:
    """Both brokers, and what has been found so far."""

    ours: Twin
    theirs: Twin
    settle_s: float = SETTLE_S
    questions: dict[str, list[Difference]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))

    def ask(
        self,
        question: str,
        request: Request | Making,
        versions: int | Iterable[int],
        *,
        ignore: str = "",
        client: str = "one",
    ) -> tuple[Any, Any]:
        """Ask both in each of these versions; the last answers."""
        answers: tuple[Any, Any] = (None, None)
        for version in [versions] if isinstance(versions, int) else versions:
            answers = self.begin(request, version, client).result()
            # Silence says nothing about us: such a question is not worth asking.
            assert not isinstance(answers[1], str), f"Kafka, {question} v{version}: {answers[1]}"
            self.compare(question, version, answers, ignore)
        return answers

    def begin(self, request: Request | Making, version: int, client: str) -> "Future[tuple[Any, Any]]":
        """Ask both, and go on while they think: the answers will be there."""

        def asked(twin: Twin) -> Any:
            return twin.ask(request if isinstance(request, Request) else request(twin), version, client)

        ours, theirs = (self._pool.submit(asked, twin) for twin in (self.ours, self.theirs))
        return self._pool.submit(lambda: (ours.result(), theirs.result()))

    def compare(self, question: str, version: int, answers: tuple[Any, Any], ignore: str = "") -> None:
        """Note where two answers differ."""
        ignored = NEVER_EQUAL | set(ignore.split())
        found = self.questions.setdefault(question, [])
        ours, theirs = (plain(answer, ignored) for answer in answers)
        for where, one, other in differences(ours, theirs):
            found.append(Difference(question, version, where, one, other))

    def send(self, question: str, frame: bytes) -> None:
        """Send bytes that are no decent request; only what becomes of the connection is compared."""
        outcomes = []
        for twin in (self.ours, self.theirs):
            answer = twin.send(frame, question)
            outcomes.append(answer if isinstance(answer, str) else "an answer")
        self.compare(question, -1, (outcomes[0], outcomes[1]))

    def settle(self) -> None:
        """Let a change arrive everywhere."""
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
