"""Streams: server-sent events and WebSocket, with resume, credit, and slow clients."""

import json
import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from runnel.gateway.http import limits
from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker, LocalGateway
from tests.gateway.gateways import serving
from tests.gateway.http.clients import Client


@contextmanager
def opened(client: Client, path: str, **headers: str) -> Iterator[ClientConnection]:
    with connect(f"ws://{client.host}:{client.port}{path}", additional_headers=headers) as line:
        yield line


def receive(line: ClientConnection) -> Any:
    return json.loads(line.recv(timeout=20))


# Server-sent events.


def test_events_from_an_offset_then_as_they_arrive(client, topic) -> None:
    client.publish(topic, *({"value": str(n)} for n in range(5)))
    with client.events(f"/topics/{topic}/subscribe?offset=2") as events:
        assert [m["value"] for m in events.take(3)] == ["2", "3", "4"]
        client.publish(topic, {"value": "5"}, {"value": "6"})
        assert [m["value"] for m in events.take(2)] == ["5", "6"]


def test_a_cut_line_resumes_without_a_gap_or_a_duplicate(client) -> None:
    client.create("resumed-http", partitions=4)
    seen: list[int] = []
    last = ""
    number = 0
    for _ in range(6):
        headers = {"Last-Event-ID": last} if last else {}
        with client.events("/topics/resumed-http/subscribe?offset=earliest", **headers) as events:
            batch = [{"value": str(n), "partition": n % 4} for n in range(number, number + 50)]
            assert client.post("/topics/resumed-http/publish", batch).status == 200
            number += 50
            # Cut in the middle: what was sent and not read comes again.
            seen += [int(m["value"]) for m in events.take(33)]
            last = events.last_id
    with client.events("/topics/resumed-http/subscribe", Last_Event_ID=last) as events:
        seen += [int(m["value"]) for m in events.take(number - len(seen))]
    assert sorted(seen) == list(range(number))
    by_partition = [[n for n in seen if n % 4 == p] for p in range(4)]
    assert all(part == sorted(part) for part in by_partition)


def test_a_stream_resumes_at_another_gateway_after_a_kill(http_broker: Broker, client, topic) -> None:
    gateway = LocalGateway(http_broker.bootstrap_servers, "PLAINTEXT")
    try:
        other = Client("127.0.0.1", int(gateway.url.rstrip("/").rpartition(":")[2]))
        client.publish(topic, *({"value": str(n)} for n in range(20)))
        with other.events(f"/topics/{topic}/subscribe?offset=0") as events:
            seen = [m["value"] for m in events.take(7)]
            os.kill(gateway.pid, signal.SIGKILL)
            last = events.last_id
        client.publish(topic, *({"value": str(n)} for n in range(20, 30)))
        with client.events(f"/topics/{topic}/subscribe?offset=0", Last_Event_ID=last) as events:
            seen += [m["value"] for m in events.take(23)]
        assert seen == [str(n) for n in range(30)]
    finally:
        gateway.close()


def test_two_streams_share_a_feed_and_one_begins_elsewhere(client, topic) -> None:
    client.publish(topic, *({"value": str(n)} for n in range(3)))
    with (
        client.events(f"/topics/{topic}/subscribe?offset=latest") as tail,
        client.events(f"/topics/{topic}/subscribe?offset=0") as all_of_it,
    ):
        assert [m["value"] for m in all_of_it.take(3)] == ["0", "1", "2"]
        client.publish(topic, {"value": "3"})
        assert [m["value"] for m in tail.take(1)] == [m["value"] for m in all_of_it.take(1)] == ["3"]
        assert tail.last_id == all_of_it.last_id


def test_a_stream_of_a_group_begins_at_its_position(client, topic, group) -> None:
    client.publish(topic, *({"value": str(n)} for n in range(4)))
    first = client.get(f"/topics/{topic}/subscribe?group={group}").json
    client.post(f"/topics/{topic}/ack", {"messageId": first["messageId"]})
    with client.events(f"/topics/{topic}/subscribe?group={group}") as events:
        one, two, _ = events.take(3)
        assert (one["value"], two["value"]) == ("1", "2")
        client.post(f"/topics/{topic}/ack", {"messageId": two["messageId"]})
    assert client.get(f"/topics/{topic}/subscribe?group={group}").json["value"] == "3"


def test_a_stream_of_a_group_that_resumes_is_no_replay(client, topic, group) -> None:
    client.publish(topic, *({"value": str(n)} for n in range(4)))
    path = f"/topics/{topic}/subscribe?group={group}"
    with client.events(path) as events:
        events.take(2)
    with client.events(path, Last_Event_ID=events.last_id) as resumed:
        [third] = resumed.take(1)
    assert third["value"] == "2"
    acked = client.post(f"/topics/{topic}/ack", {"messageId": third["messageId"]})
    assert acked.json == {"committed": [{"partition": 0, "offset": 3}]}
    assert client.get(path).json["value"] == "3"
    # A replay that resumes stays one.
    with client.events(f"{path}&offset=0", Last_Event_ID=events.last_id) as replay:
        [third] = replay.take(1)
    assert client.post(f"/topics/{topic}/ack", {"messageId": third["messageId"]}).json == {"committed": []}


def test_a_stream_reports_gaps(http_broker, client, topic) -> None:
    from runnel.client.admin import Admin
    from runnel.model.ids import TopicPartition

    client.publish(topic, *({"value": str(n)} for n in range(6)))
    cursor = client.get(f"/topics/{topic}/subscribe?max=1").json["next"]
    with http_broker.client() as kafka:
        kafka.run(lambda cluster: Admin(cluster).delete_records({TopicPartition(topic, 0): 4}))
    with client.events(f"/topics/{topic}/subscribe", Last_Event_ID=cursor) as events:
        assert events.next() == ("gap", {"partition": 0, "from": 1, "to": 4})
        assert [m["value"] for m in events.take(2)] == ["4", "5"]


def test_signs_of_life(client, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.following.STREAM_IDLE_S", 0.1)
    with client.events(f"/topics/{topic}/subscribe") as events:
        lines = [events.response.readline() for _ in range(6)]
        assert lines == [b"retry: 3000\n", b"\n", b": still here\n", b"\n", b": still here\n", b"\n"]


def test_a_slow_client_falls_out_of_the_ring_and_loses_nothing(client, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.feeds.RING_BYTES_MAX", 20_000)
    with client.events(f"/topics/{topic}/subscribe?offset=0") as events:
        for start in range(0, 3000, 500):
            batch = [{"value": f"{n} " + "x" * 1000} for n in range(start, start + 500)]
            assert client.post(f"/topics/{topic}/publish", batch).status == 200
        seen = [int(m["value"].split()[0]) for m in events.take(3000)]
    assert seen == list(range(3000))


@pytest.mark.parametrize(
    ("accept", "timer"),
    [
        ("text/event-stream", "runnel.gateway.http.responses.STREAM_STUCK_S"),
        ("application/json", "runnel.gateway.protocols.STREAM_STUCK_S"),
    ],
)
def test_a_client_that_does_not_read_is_cut_off(topic, client, monkeypatch, accept, timer) -> None:
    monkeypatch.setattr(timer, 0.3)
    batch = [{"value": "x" * 10_000} for _ in range(1000)]
    assert client.post(f"/topics/{topic}/publish", batch).status == 200
    with socket.create_connection((client.host, client.port)) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = f"GET /topics/{topic}/subscribe?offset=0&max=1000 HTTP/1.1\r\nHost: localhost\r\n"
        # Several responses: the kernel buffers a few megabytes.
        line.sendall(f"{request}Accept: {accept}\r\n\r\n".encode() * 20)
        assert line.recv(12) == b"HTTP/1.1 200"
        # Nothing is read until the connection has failed.
        watching = select.poll()
        watching.register(line, select.POLLERR | select.POLLHUP)
        assert watching.poll(20_000)


def test_streams_are_limited(client, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.sse.STREAMS_MAX", 0)
    answer = client.get(f"/topics/{topic}/subscribe", Accept="text/event-stream")
    assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1
    with opened(client, f"/topics/{topic}/subscribe") as line:
        with pytest.raises(ConnectionClosed):
            line.recv(timeout=10)
        assert line.close_code == 1013


def test_streams_end_when_the_gateway_stops(http_broker: Broker, client, topic) -> None:
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        other = Client.of(visitor)
        events = other.events(f"/topics/{topic}/subscribe?offset=0")
        stream = events.__enter__()
        line = opened(other, f"/topics/{topic}/subscribe")
        socket_line = line.__enter__()
        other.publish(topic, {"value": "a"})
        assert stream.take(1)[0]["value"] == "a" and receive(socket_line)["value"] == "a"
    # The server has ended them, not their clients.
    assert stream.response.read() == b""
    with pytest.raises(ConnectionClosed):
        socket_line.recv(timeout=10)
    events.__exit__(None, None, None)
    line.__exit__(None, None, None)


def test_a_topic_with_too_many_partitions_is_followed_by_partition(client) -> None:
    client.create("wide-http", partitions=limits.STREAM_PARTITIONS_MAX + 1)
    path = "/topics/wide-http/subscribe"
    assert client.get(path, Accept="text/event-stream").status == 422
    with client.events(f"{path}?partition=7&offset=0") as events:
        client.publish("wide-http", {"value": "a", "partition": 7})
        assert events.take(1)[0]["partition"] == 7


def test_waiting_polls_of_all_groups_and_formats_share_a_feed(
    http_broker: Broker, topic, group, monkeypatch
) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.feeds.FEEDS_MAX", 1)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        path = f"/topics/{topic}/subscribe?wait=50"
        queries = ("", f"&group={group}", f"&group={group}-2", "&format=text", f"&group={group}&offset=0")
        statuses = [Client.of(visitor).get(path + query).status for query in queries]
    assert statuses == [200, 204, 204, 200, 200]


# WebSocket.


def test_messages_acks_and_publishes_on_one_line(client, topic, group) -> None:
    with opened(client, f"/topics/{topic}/subscribe?group={group}") as line:
        line.send(json.dumps({"type": "publish", "record": {"key": "k", "value": {"a": 1}}, "id": "p1"}))
        frames = {frame["type"]: frame for frame in (receive(line), receive(line))}
        assert frames["published"]["id"] == "p1" and frames["published"]["offset"] == 0
        assert frames["message"]["value"] == {"a": 1} and frames["message"]["cursor"]
        line.send(json.dumps({"type": "ack", "messageId": frames["message"]["messageId"], "id": 2}))
        acked = receive(line)
        assert acked == {"type": "acknowledged", "committed": [{"partition": 0, "offset": 1}], "id": 2}
    assert client.get(f"/topics/{topic}/subscribe?group={group}").status == 204


def test_credit_limits_what_is_sent(client, topic) -> None:
    client.publish(topic, *({"value": str(n)} for n in range(10)))
    with opened(client, f"/topics/{topic}/subscribe?offset=0&credit=3") as line:
        assert [receive(line)["value"] for _ in range(3)] == ["0", "1", "2"]
        with pytest.raises(TimeoutError):
            line.recv(timeout=0.5)
        line.send('{"type": "credit", "messages": 2}')
        assert [receive(line)["value"] for _ in range(2)] == ["3", "4"]
        line.send('{"type": "credit", "messages": 100}')
        assert [receive(line)["value"] for _ in range(5)] == ["5", "6", "7", "8", "9"]


def test_frames_that_have_no_meaning(client, topic) -> None:
    with opened(client, f"/topics/{topic}/subscribe?credit=0") as line:
        for frame, status in (
            ("{", 400),
            ("{}", 422),
            ('{"type": "dance"}', 422),
            ('{"type": "credit", "messages": 0}', 422),
            ('{"type": "ack", "messageId": "x", "id": 5}', 422),
            ('{"type": "publish", "record": {}}', 422),
            ('{"type": "publish", "record": {"value": 1}, "id": "%s"}' % ("x" * 201), 422),
            ('{"type": "publish", "record": {"value": 1}, "id": %s}' % ("9" * 30), 422),
            (b"\xff\xfe", 400),
        ):
            line.send(frame)
            answer = receive(line)
            assert (answer["type"], answer["problem"]["status"]) == ("error", status), (frame, answer)
        line.send('{"type": "publish", "record": {"value": 1}}')
        assert receive(line)["type"] == "published"


def test_bytes_in_flight_are_bounded(client, topic, monkeypatch) -> None:
    from runnel.gateway.http.streams.socket import Conversation

    monkeypatch.setattr("runnel.gateway.http.streams.socket.SOCKET_IN_FLIGHT_BYTES", 2_500)
    seen: list[tuple[int, int]] = []
    serve = Conversation._serve

    async def watched(self: Conversation, data: bytes | str) -> None:
        seen.append((len(self._in_flight), self._in_flight_bytes))
        await serve(self, data)

    monkeypatch.setattr(Conversation, "_serve", watched)
    sizes = [*[1_000] * 40, 5_000, 10]
    with opened(client, f"/topics/{topic}/subscribe?credit=0") as line:
        for number, size in enumerate(sizes):
            record = {"value": "x" * size}
            line.send(json.dumps({"type": "publish", "record": record, "id": number}))
        answers = [receive(line) for _ in sizes]
    assert sorted(answer["id"] for answer in answers) == list(range(len(sizes)))
    assert all(count == 1 or size <= 2_500 for count, size in seen)


def test_websockets_that_are_refused(client, topic) -> None:
    for path, status in (
        ("/topics/none-http/subscribe", 404),
        (f"/topics/{topic}/subscribe?offset=never", 400),
        (f"/topics/{topic}/subscribe?credit=-1", 400),
        ("/subjects", 403),
        ("/schemas/ids/1", 403),
    ):
        with pytest.raises(InvalidStatus) as refused, opened(client, path):
            pass
        assert refused.value.response.status_code == status
    with (
        pytest.raises(InvalidStatus) as refused,
        opened(client, f"/topics/{topic}/subscribe", Origin="http://evil.example"),
    ):
        pass
    assert refused.value.response.status_code == 403


def test_a_line_resumes_by_cursor(client, topic) -> None:
    client.publish(topic, *({"value": str(n)} for n in range(6)))
    with opened(client, f"/topics/{topic}/subscribe?offset=0") as line:
        frames = [receive(line) for _ in range(3)]
    with opened(client, f"/topics/{topic}/subscribe?cursor={frames[-1]['cursor']}") as line:
        assert [receive(line)["value"] for _ in range(3)] == ["3", "4", "5"]
