"""Requests to the HTTP API, over real sockets."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.gateways import Visitor

JSON = "application/json"
NDJSON = "application/x-ndjson"
PROBLEM = "application/problem+json"


@dataclass
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


@dataclass
class Client:
    """Sends requests, each on a connection of its own."""

    host: str
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, visitor: Visitor, **headers: str) -> "Client":
        return cls(visitor.host, visitor.port, headers)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Bytes are sent as they are, other bodies as JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            sent = {**self.headers}
            if body is not None and not isinstance(body, bytes | Iterator):
                body = json.dumps(body).encode()
            if body is not None:
                sent["Content-Type"] = JSON
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, headers={name.replace("_", "-"): headers[name] for name in headers})

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.call("POST", path, body, {name.replace("_", "-"): headers[name] for name in headers})

    def publish(self, topic: str, *records: Mapping[str, Any]) -> list[Any]:
        """Publish records, one request each."""
        answers = [self.post(f"/topics/{topic}/publish", record) for record in records]
        assert [answer.status for answer in answers] == [200] * len(records), answers
        return [answer.json for answer in answers]

    def create(self, topic: str, partitions: int = 1, **more: Any) -> None:
        answer = self.post("/topics", {"name": topic, "partitions": partitions, **more})
        assert answer.status == 201, answer

    @contextmanager
    def events(self, path: str, **headers: str) -> "Iterator[Events]":
        """A stream of events."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            sent = {**self.headers, "Accept": "text/event-stream"}
            sent |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET", path, headers=sent)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("content-type", "").startswith("text/event-stream")
            yield Events(response)
        finally:
            connection.close()


@dataclass
class Events:
    """Parses a stream of server-sent events."""

    response: http.client.HTTPResponse
    last_id: str = ""

    def next(self) -> tuple[str, Any]:
        """The next event: its name and its data; comments and `retry` are skipped."""
        name = "message"
        data: list[str] = []
        while True:
            line = self.response.readline().decode().rstrip("\n")
            assert line or data or name != "message" or self.response.fp is not None
            kind, _, value = line.partition(": ")
            if kind == "event":
                name = value
            elif kind == "data":
                data.append(value)
            elif kind == "id":
                self.last_id = value
            elif not line and data:
                return name, json.loads("\n".join(data))
            elif not line and self.response.isclosed():
                raise EOFError

    def take(self, count: int) -> list[Any]:
        """The data of the next messages."""
        found: list[Any] = []
        while len(found) < count:
            name, data = self.next()
            assert name == "message", (name, data)
            found.append(data)
        return found
