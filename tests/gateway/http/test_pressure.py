"""Too much, too slow, or nothing behind the gateway: statuses that tell a client what to do."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from runnel.client.accumulator import Delivery
from runnel.client.cluster import Cluster, TopicView
from runnel.gateway.http import limits, publishing
from runnel.gateway.options import GatewayOptions
from runnel.gateway.protocols import SocketProtocol
from tests.gateway.gateways import serving
from tests.gateway.http.clients import JSON, NDJSON, PROBLEM, Client
from tests.observe.scraping import scrape, value
from tools.broker_process import BrokerProcess


def retry_after(answer) -> int:
    assert answer.json["retryAfter"] == int(answer.headers["retry-after"])
    return int(answer.headers["retry-after"])


def test_a_full_buffer_is_a_429(client: Client, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.publishing.BUFFER_REFUSED_SHARE", 0)
    refused = client.post(f"/topics/{topic}/publish", {"value": "x"})
    assert refused.status == 429 and 1 <= retry_after(refused) <= 3
    batch = client.post(f"/topics/{topic}/publish", [{"value": "x"}])
    assert (batch.status, batch.json["results"][0]["error"]["status"]) == (207, 429)


def test_too_many_requests_are_a_429(client: Client, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.principals.REQUESTS_MAX", 0)
    assert retry_after(client.get("/topics")) >= 1


EVENT = b'{"id":"7","source":"/shop","specversion":"1.0","type":"t"}'
CHUNKED = (
    b"POST /topics/TOPIC/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (b"GET /topics HTTP/1.1\r\nX-Long: ", b"x" * 65536),
        (CHUNKED + b"2\r\n{}\r\n0\r\nX-Long: ", b"x" * 65536),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"x: y\r\n" * 10_000),
        (CHUNKED + b"2;", b"x" * 65536),
    ],
    ids=["header", "trailer", "trailers", "chunk extension"],
)
def test_what_has_no_end_is_refused(client: Client, topic, start: bytes, part: bytes) -> None:
    with socket.create_connection((client.host, client.port), timeout=30) as line:
        line.sendall(start.replace(b"TOPIC", topic.encode()))
        received = b""
        try:
            # More than both kernels buffer: it can only be sent if the gateway reads it all.
            for _ in range(1000):
                line.sendall(part)
            pytest.fail("all of it was read")
        except ConnectionError:
            pass
        with suppress(ConnectionError):
            while data := line.recv(65536):
                received += data
    assert not received or received.startswith(b"HTTP/1.1 431 ")


def test_trailers_are_no_headers(client: Client, topic) -> None:
    with socket.create_connection((client.host, client.port), timeout=30) as line:
        head = CHUNKED.replace(b"TOPIC", topic.encode())
        line.sendall(head + b'b\r\n{"value":1}\r\n')
        # Idempotency-Key is refused as a header.
        line.sendall(b"0\r\nIdempotency-Key: a\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 200"


def test_a_body_that_pauses_is_a_408(client: Client, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_READ_S", 0.2)
    with socket.create_connection((client.host, client.port), timeout=30) as line:
        head = (
            f"POST /topics/{topic}/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        line.sendall(f"{head}Content-Length: 20\r\n\r\n{{".encode())
        assert line.recv(12) == b"HTTP/1.1 408"


@contextmanager
def slow_deliveries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Records are acknowledged half a second after they are."""
    send = publishing.send

    async def slow(*arguments: Any, **named: Any) -> "asyncio.Future[Delivery]":
        sent = await send(*arguments, **named)

        async def later() -> Delivery:
            await asyncio.sleep(0.5)
            return await sent

        return asyncio.ensure_future(later())

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "send", slow)
        yield


def eventually(client: Client, is_so: Callable[[float], bool]) -> None:
    """Until this is so of the memory of bodies."""
    deadline = time.monotonic() + 20
    while not is_so(held := value(scrape(f"{client.host}:{client.port}"), "runnel_http_body_memory_bytes")):
        assert time.monotonic() < deadline, held
        time.sleep(0.02)


def test_slow_senders_do_not_take_all_memory(http_broker, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.api.BODIES_BYTES_MAX", 300_000)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        client = Client.of(visitor)
        head = CHUNKED.replace(b"TOPIC", topic.encode()).replace(
            b"Transfer-Encoding: chunked", b"Content-Length: 200000"
        )

        record = {"value": "x" * 150_000}
        with socket.create_connection((client.host, client.port), timeout=30) as line:
            line.sendall(head + b'{"value": "' + b"x" * 180_000)
            eventually(client, lambda held: held > 180_000)
            refused = client.post(f"/topics/{topic}/publish", record)
            assert refused.status == 503 and retry_after(refused) >= 1 and "300000" in refused.json["detail"]
            with connect(f"ws://{client.host}:{client.port}/topics/{topic}/subscribe") as socket_line:
                socket_line.send(json.dumps({"type": "publish", "record": record, "id": 7}))
                answer = json.loads(socket_line.recv(timeout=20))
            assert (answer["type"], answer["id"], answer["problem"]["status"]) == ("error", 7, 503)
            assert client.post(f"/topics/{topic}/publish", {"value": "small"}).status == 200
        eventually(client, lambda held: held == 0)
        assert client.post(f"/topics/{topic}/publish", record).status == 200


def test_a_body_that_trickles_is_a_408(client: Client, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_S", 0.3)
    head = CHUNKED.replace(b"TOPIC", topic.encode())
    with socket.create_connection((client.host, client.port), timeout=30) as line:
        line.sendall(head)
        line.settimeout(0.05)
        received = b""
        deadline = time.monotonic() + 20
        while not received and time.monotonic() < deadline:
            line.sendall(b"1\r\n \r\n")
            with suppress(TimeoutError):
                received = line.recv(12)
    assert received == b"HTTP/1.1 408"


PARTS = [
    b"\x81\xff" + (1_000_000).to_bytes(8, "big") + bytes(4),
    b"\x01\xfe" + (200).to_bytes(2, "big") + bytes(4),
]
"""The first bytes of a frame of a megabyte, and a frame of 200 bytes of a message that goes on."""


@pytest.mark.parametrize("part", PARTS, ids=["frame", "fragments"])
def test_messages_of_sockets_that_are_begun_count_as_bodies(http_broker, topic, monkeypatch, part) -> None:
    monkeypatch.setattr("runnel.gateway.http.api.BODIES_BYTES_MAX", 300_000)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        client = Client.of(visitor)
        address = f"ws://{client.host}:{client.port}/topics/{topic}/subscribe"
        with connect(address) as first, connect(address) as second:
            # The next fragments.
            rest = b"x" * 200_000 if part is PARTS[0] else (b"x" * 200 + b"\x00" + part[1:]) * 900
            first.socket.sendall(part + rest)
            eventually(client, lambda held: held > 180_000)
            assert client.post(f"/topics/{topic}/publish", {"value": "x" * 150_000}).status == 503
            with suppress(ConnectionError):
                second.socket.sendall(part + rest)
            with pytest.raises(ConnectionClosed):
                second.recv(timeout=20)
            # Small messages go on.
            with connect(address) as third:
                third.send(json.dumps({"type": "publish", "record": {"value": "a"}}))
                assert json.loads(third.recv(timeout=20))["type"] in ("published", "message")
            first.socket.close()
        eventually(client, lambda held: held == 0)


@pytest.mark.parametrize("part", PARTS, ids=["frame", "fragments"])
def test_a_message_of_a_socket_has_a_deadline(client: Client, topic, monkeypatch, part) -> None:
    monkeypatch.setattr("runnel.gateway.protocols.BODY_S", 0.3)
    with connect(f"ws://{client.host}:{client.port}/topics/{topic}/subscribe?credit=0") as line:
        began = time.monotonic()
        while time.monotonic() < began + 0.6:
            # Complete ones have a time of their own.
            line.send(json.dumps({"type": "publish", "record": {"value": "a"}}))
            assert json.loads(line.recv(timeout=20))["type"] == "published"
        line.socket.sendall(part + b"x" * 200)
        with pytest.raises(ConnectionClosed):
            line.recv(timeout=20)
        assert line.close_code == 1008


def deaf(client: Client, topic: str) -> socket.socket:
    """A WebSocket of a client that has read nothing but the response to the upgrade."""
    line = socket.socket()
    line.settimeout(30)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect((client.host, client.port))
    head = (
        f"GET /topics/{topic}/subscribe?offset=0&credit=10000 HTTP/1.1\r\nHost: localhost\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    line.sendall(head.encode())
    received = b""
    while b"\r\n\r\n" not in received:
        received += line.recv(1)
    assert received.startswith(b"HTTP/1.1 101 ")
    return line


@pytest.mark.parametrize("cause", ["late message", "ping"])
def test_a_socket_that_is_closed_is_dropped_if_its_client_does_not_read(
    http_broker, topic, monkeypatch, cause
) -> None:
    monkeypatch.setattr("runnel.gateway.protocols.STREAM_STUCK_S", 0.5)
    if cause == "ping":
        start = SocketProtocol.start_keepalive

        def start_soon(self: SocketProtocol) -> None:
            self.ping_interval, self.ping_timeout = 0.5, 0.5
            start(self)

        monkeypatch.setattr(SocketProtocol, "start_keepalive", start_soon)
    else:
        monkeypatch.setattr("runnel.gateway.protocols.BODY_S", 1.0)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        client = Client.of(visitor)
        # More than both kernels buffer.
        for _ in range(4):
            batch = [{"value": "x" * 10_000} for _ in range(300)]
            assert client.post(f"/topics/{topic}/publish", batch).status == 200
        with deaf(client, topic) as line:
            line.sendall(PARTS[0] + b"x" * 200_000)
            eventually(client, lambda held: held > 180_000)
            eventually(client, lambda held: held == 0)


def upload(client: Client, topic: str, accept: str) -> socket.socket:
    """An upload that has begun with two lines."""
    line = socket.create_connection((client.host, client.port), timeout=30)
    head = CHUNKED.replace(b"TOPIC", topic.encode()).replace(b"application/json", NDJSON.encode())
    line.sendall(head.replace(b"\r\n\r\n", f"\r\nAccept: {accept}\r\n\r\n".encode()))
    line.sendall(b'18\r\n{"value":1}\n{"value":2}\n\r\n')
    return line


def check_report(line: socket.socket, accept: str, status: int) -> None:
    """Two lines were written, then the upload has ended."""
    response = http.client.HTTPResponse(line)
    response.begin()
    if accept == NDJSON:
        *written, last = [json.loads(each) for each in response.read().splitlines()]
        assert response.status == 200 and [each["offset"] for each in written] == [0, 1]
    else:
        last = json.loads(response.read())
        assert response.status == 207 and response.getheader("connection") == "close"
        assert (last["published"], last["failed"], last["errors"]) == (2, 0, [])
    assert last["error"]["status"] == status


@pytest.mark.parametrize("accept", [JSON, NDJSON])
def test_an_upload_that_pauses_reports_what_was_written(client: Client, topic, monkeypatch, accept) -> None:
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_READ_S", 0.3)
    # The outcomes come after the pause.
    with slow_deliveries(monkeypatch), upload(client, topic, accept) as line:
        check_report(line, accept, 408)


@pytest.mark.parametrize("accept", [JSON, NDJSON])
def test_an_upload_without_room_reports_what_was_written(http_broker, topic, monkeypatch, accept) -> None:
    monkeypatch.setattr("runnel.gateway.http.api.BODIES_BYTES_MAX", 300_000)
    monkeypatch.setattr("runnel.gateway.http.bodies.BODY_ROOM_S", 0.2)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        client = Client.of(visitor)
        with (
            socket.create_connection((client.host, client.port), timeout=30) as slow,
            upload(client, topic, accept) as line,
        ):
            deadline = time.monotonic() + 20
            while not client.get(f"/topics/{topic}/subscribe?offset=1").json["messages"]:
                assert time.monotonic() < deadline
            slow.sendall(CHUNKED.replace(b"TOPIC", topic.encode()) + b"3e800\r\n" + b"x" * 240_000)
            eventually(client, lambda held: held >= 240_000)
            assert client.post(f"/topics/{topic}/publish", {"value": "x" * 100_000}).status == 503
            # A line that needs more room than there is, and its end.
            line.sendall(b"30d40\r\n" + b"x" * 200_000 + b"\r\n")
            eventually(client, lambda held: held > 300_000)
            eventually(client, lambda held: held < 300_000)
            line.sendall(b"1\r\n\n\r\n0\r\n\r\n")
            check_report(line, accept, 503)


@pytest.mark.parametrize(
    ("path", "kind", "start", "good", "between"),
    [
        ("/topics/{topic}/publish", "application/json", b"[", b'{"value":1}', b","),
        ("/topics/{topic}/publish", "application/cloudevents-batch+json", b"[", EVENT, b","),
        ("/topics/{topic}", "application/vnd.kafka.binary.v2+json", b'{"records":[', b'{"value":""}', b","),
        ("/topics/{topic}", "application/vnd.kafka.json.v2+json", b'{"records":[', b'{"value":1}', b","),
        ("/v3/clusters/{cluster}/topics/{topic}/records", "application/json", b"", b"{}", b""),
        (
            "/v3/clusters/{cluster}/topics/{topic}/records:batch",
            "application/json",
            b'{"entries":[',
            b'{"id":"1"}',
            b",",
        ),
    ],
)
def test_records_are_counted_before_they_are_decoded(
    client: Client, topic, path, kind, start, good, between
) -> None:
    """What is no JSON, behind the last record that is allowed, is not looked at."""
    [cluster] = client.get("/v3/clusters").json["data"]
    body = start + between.join([good] * (limits.BATCH_RECORDS_MAX + 1)) + b"?" * 1000
    answer = client.post(path.format(topic=topic, cluster=cluster["cluster_id"]), body, Content_Type=kind)
    assert answer.status == 413 and str(limits.BATCH_RECORDS_MAX) in answer.body.decode(), answer.body[:300]


@pytest.mark.parametrize(
    ("path", "kind", "good", "bad"),
    [
        ("/topics/{topic}/publish", "application/json", b'{"value":1}', b"{}"),
        ("/topics/{topic}/publish", "application/cloudevents-batch+json", EVENT, b"{}"),
        ("/v3/clusters/{cluster}/topics/{topic}/records", "application/json", b"{}", b"}"),
    ],
)
def test_too_many_records_are_refused_before_they_are_converted(
    client: Client, topic, path, kind, good, bad
) -> None:
    """One that is not valid, behind the last that is allowed, is not looked at."""
    [cluster] = client.get("/v3/clusters").json["data"]
    is_list = path.endswith("publish")
    body = (b"," if is_list else b"").join([good] * limits.BATCH_RECORDS_MAX + [good, bad])
    answer = client.post(
        path.format(topic=topic, cluster=cluster["cluster_id"]),
        b"[%b]" % body if is_list else body,
        Content_Type=kind,
    )
    assert answer.status == 413 and str(limits.BATCH_RECORDS_MAX) in answer.body.decode(), answer.body[:300]


def test_lists_of_all_topics_share_one_request(http_broker, monkeypatch) -> None:
    asked = 0
    fetch = Cluster.topics

    async def counted(self: Cluster) -> list[TopicView]:
        nonlocal asked
        asked += 1
        return await fetch(self)

    monkeypatch.setattr(Cluster, "topics", counted)
    monkeypatch.setattr("runnel.gateway.http.principals.TOPICS_S", 600.0)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        client = Client.of(visitor)
        [cluster] = client.get("/v3/clusters").json["data"]
        for path in ("/topics", f"/v3/clusters/{cluster['cluster_id']}/topics", "/topics"):
            assert client.get(path).status == 200
        assert asked == 1
        # A change by the same client is seen at once.
        client.create("listed-http")
        assert "listed-http" in client.get("/topics").json
        assert client.call("DELETE", "/topics/listed-http").status == 204
        assert "listed-http" not in client.get("/topics").json


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch) -> Iterator[tuple[BrokerProcess, Client]]:
    """A broker that can be stopped, and a gateway that does not wait for long."""
    monkeypatch.setattr("runnel.gateway.http.principals.DELIVERY_S", 1.0)
    monkeypatch.setattr("runnel.gateway.http.principals.API_TIMEOUT_S", 0.5)
    monkeypatch.setattr("runnel.gateway.http.publishing.OUTCOME_S", 2.0)
    with (
        BrokerProcess(tmp_path / "data", {}) as broker,
        serving(GatewayOptions(broker.bootstrap)) as visitor,
    ):
        client = Client.of(visitor)
        client.create("t")
        client.publish("t", {"value": "first"})
        yield broker, client


def test_no_broker_is_a_503_and_it_recovers(impatient: tuple[BrokerProcess, Client]) -> None:
    broker, client = impatient
    broker.kill()
    answers = [
        client.get("/topics"),
        client.get("/topics/t/subscribe?offset=0"),
        client.post("/topics/t/publish", {"value": "x"}),
    ]
    # The connection was lost before the record was sent, or with it.
    assert [answer.status for answer in answers[:2]] == [503, 503]
    assert answers[2].status in (503, 504)
    assert all(answer.headers["content-type"] == PROBLEM for answer in answers)
    assert retry_after(answers[0]) >= 1
    broker.start()
    deadline = time.monotonic() + 60
    while client.post("/topics/t/publish", {"value": "again"}).status != 200:
        assert time.monotonic() < deadline
    assert client.get("/topics/t/subscribe?offset=-1").json["messages"][0]["value"] == "again"


def test_a_broker_that_does_not_answer_is_a_504(impatient: tuple[BrokerProcess, Client]) -> None:
    broker, client = impatient
    with broker.held():
        late = client.post("/topics/t/publish", {"value": "x"})
        batch = client.post("/topics/t/publish", [{"value": "y"}])
    assert late.status == 504 and "unknown" in late.json["detail"]
    assert (batch.status, batch.json["results"][0]["error"]["status"]) == (207, 504)
