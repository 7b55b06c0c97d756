"""The five calls of the API, and what they answer to requests that are none."""

import base64
import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from runnel.gateway.http.message_ids import read_message_id
from runnel.testing import Broker
from tests.gateway.http.clients import NDJSON, PROBLEM

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


def stored(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None, list]]:
    with broker.client() as client:
        return [(m.key, m.value, list(m.headers)) for m in client.read(topic)]


# Publish.


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        ({"key": "anna", "value": "a cup of tea"}, b"anna", b"a cup of tea"),
        ({"value": "grüße \u0000 \U0001f600"}, None, "grüße \u0000 \U0001f600".encode()),
        ({"key": 7, "value": {"b": 1, "a": [1.50, None]}}, b"7", b'{"b": 1, "a": [1.5, null]}'),
        ({"key": None, "value": None}, None, None),
        ({"key": "", "value": ""}, b"", b""),
        ({"value": True}, None, b"true"),
        ({"value": [1]}, None, b"[1]"),
        ({"key_base64": "/w==", "value_base64": "AP8="}, b"\xff", b"\x00\xff"),
    ],
)
def test_what_is_stored(http_broker, client, topic, record, key, value) -> None:
    [published] = client.publish(topic, record)
    assert published["partition"] == 0 and published["offset"] == 0 and published["messageId"]
    assert stored(http_broker, topic) == [(key, value, [])]


def test_numbers_are_stored_as_they_are_written(http_broker, client, topic) -> None:
    body = b'{"value": {"big": 123456789012345678901234567890, "a": 1.0, "a": 2e5}}'
    assert client.post(f"/topics/{topic}/publish", body).status == 200
    [(_, value, _)] = stored(http_broker, topic)
    assert value == b'{"big": 123456789012345678901234567890, "a": 1.0, "a": 2e5}'


def test_headers_repeat_and_may_be_bytes_or_null(http_broker, client, topic) -> None:
    pairs = [{"name": "b", "value": "2"}, {"name": "b"}, {"name": "c", "value_base64": "/w=="}]
    record = {"value": "x", "headers": {"a": "1", "n": None}, "headersList": pairs}
    answer = client.post(f"/topics/{topic}/publish", record, traceparent=TRACE)
    assert answer.status == 200
    [(_, _, headers)] = stored(http_broker, topic)
    assert headers == [
        ("a", b"1"),
        ("n", None),
        ("b", b"2"),
        ("b", None),
        ("c", b"\xff"),
        ("traceparent", TRACE.encode()),
    ]
    [message] = client.get(f"/topics/{topic}/subscribe?offset=0").json["messages"]
    assert message["headers"] == {"a": "1", "n": None, "b": None, "traceparent": TRACE}
    assert [header["name"] for header in message["headersList"]] == ["a", "n", "b", "b", "c", "traceparent"]


@pytest.mark.parametrize(
    "trace", ["00-1-2-01", TRACE.upper(), TRACE + "x" * 50_000, TRACE.replace("a", "0"), "ff" + TRACE[2:], ""]
)
def test_a_trace_that_is_none_is_not_copied_to_records(http_broker, client, topic, trace) -> None:
    assert client.post(f"/topics/{topic}/publish", [{"value": 1}], traceparent=trace).status == 200
    assert stored(http_broker, topic) == [(None, b"1", [])]


def test_batches(http_broker, client, topic) -> None:
    answer = client.post(f"/topics/{topic}/publish", [{"value": str(n)} for n in range(50)])
    assert answer.status == 200
    assert [result["offset"] for result in answer.json["results"]] == list(range(50))
    assert [value for _, value, _ in stored(http_broker, topic)] == [str(n).encode() for n in range(50)]
    assert client.post(f"/topics/{topic}/publish", []).json == {"results": []}


def test_a_batch_of_which_some_is_refused(http_broker, client) -> None:
    client.create("compacted-http", retentionPolicy="compact")
    records = [{"key": "a", "value": "1"}, {"value": "no key"}, {"key": "b", "value": "2"}]
    answer = client.post("/topics/compacted-http/publish", records)
    assert answer.status == 207
    first, bad, last = answer.json["results"]
    assert "messageId" in first and "messageId" in last and bad["error"]["status"] == 422
    assert [key for key, _, _ in stored(http_broker, "compacted-http")] == [b"a", b"b"]
    alone = client.post("/topics/compacted-http/publish", {"value": "no key"})
    assert (alone.status, alone.json["error"]) == (422, "INVALID_RECORD")


def test_an_upload_of_lines(http_broker, client, topic) -> None:
    lines = [json.dumps({"key": str(n), "value": {"n": n}}).encode() for n in range(3000)]
    lines[7] = b"{broken"
    body = b"\n".join(lines[:2000]) + b"\r\n\n" + b"\n".join(lines[2000:])
    answer = client.post(f"/topics/{topic}/publish", body, Content_Type=NDJSON)
    assert answer.status == 207
    assert (answer.json["published"], answer.json["failed"]) == (2999, 1)
    assert answer.json["errors"][0]["line"] == 8
    assert [int(key or b"") for key, _, _ in stored(http_broker, topic)] == [n for n in range(3000) if n != 7]


def test_an_upload_in_chunks_with_a_result_for_each_line(http_broker, client, topic) -> None:
    def parts():
        for n in range(100):
            yield b'{"val'
            yield b'ue": "%d"}\n' % n

    answer = client.call(
        "POST", f"/topics/{topic}/publish", parts(), {"Content-Type": NDJSON, "Accept": NDJSON}
    )
    assert (answer.status, answer.headers["content-type"]) == (200, NDJSON)
    assert [line["offset"] for line in answer.lines] == list(range(100))


def test_an_upload_skips_a_line_that_is_too_long(http_broker, client, topic, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.bodies.LINE_BYTES_MAX", 1000)
    body = b'{"value": 1}\n{"value": "' + b"x" * 500_000 + b'"}\n{"value": 3}\n'
    answer = client.post(f"/topics/{topic}/publish", body, Content_Type=NDJSON)
    assert (answer.status, answer.json["published"], answer.json["errors"][0]["line"]) == (207, 2, 2)
    assert answer.json["errors"][0]["error"]["status"] == 413


def test_a_topic_is_created_only_on_request(client) -> None:
    missing = client.post("/topics/nowhere/publish", {"value": 1})
    assert missing.status == 404 and "nowhere" in missing.json["detail"]
    assert "nowhere" not in client.get("/topics").json
    assert client.post("/topics/nowhere/publish?create=true", {"value": 1}).status == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"\xff", {}, 400),
        (b'{"value": "\\ud800"}', {}, 400),
        (b'{"value": ' + b"[" * 100_000, {}, 400),
        (b"{}", {}, 422),
        (b"3", {}, 422),
        (b'{"value": 1, "vaule": 2}', {}, 422),
        (b'{"value": 1, "value_base64": "AA=="}', {}, 422),
        (b'{"value_base64": "A"}', {}, 422),
        (b'{"value_base64": "AA==AA=="}', {}, 422),
        (b'{"key_base64": "A A=", "value": 1}', {}, 422),
        (b'{"value_base64": "\xc3\xbc\xc3\xbc"}', {}, 422),
        (b'{"value": 1, "headersList": [{"name": "a", "value_base64": "-_8="}]}', {}, 422),
        (b'{"value": 1, "headers": {"a": 1}}', {}, 422),
        (b'{"value": 1, "partition": -1}', {}, 422),
        (b'{"value": 1, "partition": 99}', {}, 404),
        (b'{"value": 1, "timestamp": 99999999999999999999}', {}, 422),
        (b'{"value": 1}', {"Content-Type": "text/plain"}, 415),
        (b'{"value": 1}', {"Idempotency-Key": "a"}, 400),
        (b"x" * 17 * 1024 * 1024, {}, 413),
    ],
)
def test_bad_bodies(client, topic, body, headers, status) -> None:
    answer = client.call("POST", f"/topics/{topic}/publish", body, headers)
    assert (answer.status, answer.headers["content-type"]) == (status, PROBLEM), answer
    assert answer.json["status"] == status and answer.json["detail"]


def test_a_record_that_is_too_large_for_the_topic(client) -> None:
    client.create("small-http", settings={"max.message.bytes": "2000"})
    big = client.post("/topics/small-http/publish", {"value": "x" * 5000})
    assert (big.status, big.json["error"]) == (413, "MESSAGE_TOO_LARGE")
    batch = client.post("/topics/small-http/publish", [{"value": "x" * 900} for _ in range(10)])
    assert batch.status == 200, batch


# Subscribe.


def test_replays_by_offset_and_time(client, topic) -> None:
    now = int(time.time() * 1000)
    client.publish(topic, *({"value": str(n), "timestamp": now - 10_000 + n * 1000} for n in range(10)))

    def values(query: str) -> list[str]:
        answer = client.get(f"/topics/{topic}/subscribe?{query}")
        assert answer.status == 200, answer
        return [message["value"] for message in answer.json["messages"]]

    assert values("") == values("offset=earliest") == [str(n) for n in range(10)]
    assert values("offset=7") == ["7", "8", "9"]
    assert values("offset=-2") == ["8", "9"]
    assert values(f"offset=@{now - 10_000 + 5000}") == ["5", "6", "7", "8", "9"]
    assert values("offset=1h") == [str(n) for n in range(10)]
    assert values("offset=latest") == values("offset=9999999999999999999") == []
    assert values("offset=3&max=2") == ["3", "4"]


def test_a_cursor_resumes_over_all_partitions(client) -> None:
    client.create("many-http", partitions=3)
    written = [{"value": str(n), "partition": n % 3} for n in range(90)]
    assert client.post("/topics/many-http/publish", written).status == 200
    seen, cursor = [], None
    while True:
        query = "max=7" + (f"&cursor={cursor}" if cursor else "")
        page = client.get(f"/topics/many-http/subscribe?{query}").json
        seen += [message["value"] for message in page["messages"]]
        cursor = page["next"]
        if not page["messages"]:
            break
    assert sorted(seen, key=int) == [str(n) for n in range(90)]
    only = client.get("/topics/many-http/subscribe?partition=1&max=1000").json
    assert [int(message["value"]) % 3 for message in only["messages"]] == [1] * 30
    assert client.get("/topics/many-http/subscribe?partition=3").status == 404


def test_headers_count_for_the_size_of_a_response(client, topic, monkeypatch) -> None:
    batch = [{"value": "", "headers": {"h": "x" * 1000}} for _ in range(20)]
    assert client.post(f"/topics/{topic}/publish", batch).status == 200
    monkeypatch.setattr("runnel.gateway.http.polling.POLL_BYTES_MAX", 1000)
    page = client.get(f"/topics/{topic}/subscribe?offset=0").json
    assert len(page["messages"]) == 4
    rest = client.get(f"/topics/{topic}/subscribe?max=1&cursor={page['next']}").json["messages"]
    assert rest[0]["offset"] == 4


def test_lines_out(client, topic) -> None:
    client.post(f"/topics/{topic}/publish", [{"value": "a\nb"}, {"value_base64": "ewoiYSI6CjEKfQ=="}])
    answer = client.get(f"/topics/{topic}/subscribe", Accept=NDJSON)
    assert [line["value"] for line in answer.lines] == ["a\nb", {"a": 1}]
    again = client.get(f"/topics/{topic}/subscribe?cursor={answer.headers['runnel-next']}", Accept=NDJSON)
    assert again.lines == []


def test_formats(client, topic) -> None:
    client.publish(topic, {"key": "k", "value": {"a": 1}}, {"value_base64": "/w=="})

    def shown(form: str) -> Any:
        return client.get(f"/topics/{topic}/subscribe?format={form}").json["messages"]

    assert [m.get("value", m.get("value_base64")) for m in shown("json")] == [{"a": 1}, "/w=="]
    assert shown("text")[0]["value"] == '{"a": 1}'
    assert shown("base64")[0]["value_base64"] == base64.b64encode(b'{"a": 1}').decode()
    assert shown("base64")[0]["key_base64"] == "aw=="


def test_a_long_poll_waits_for_a_message(client, topic) -> None:
    found: list = []
    path = f"/topics/{topic}/subscribe?offset=latest&wait=20000"
    waiting = threading.Thread(target=lambda: found.append(client.get(path).json))
    waiting.start()
    while client.get(f"/topics/{topic}/subscribe?offset=latest&wait=300").json["messages"]:
        pass
    # It may have begun after this record: another one follows until it has seen one.
    while waiting.is_alive():
        client.publish(topic, {"value": "now"})
        waiting.join(0.5)
    assert found[0]["messages"][0]["value"] == "now"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("ofset=3", 400),
        ("offset=3&offset=4", 400),
        ("offset=yesterday", 400),
        ("offset=0001-01-01T00:00", 422),
        ("offset=@999999999999999", 200),
        ("offset=2026-13-01T00:00", 422),
        ("offset=999999999d", 200),
        ("offset=" + "1" * 20, 400),
        ("cursor=v1.a.0-1", 400),
        ("cursor=nonsense", 400),
        ("cursor=v1.AAAAAAAAAAAAAAAAAAAAAA.0-1", 409),
        ("max=0", 400),
        ("wait=60001", 400),
        ("wait=ten", 400),
        ("partition=-1", 400),
        ("partition=null", 400),
        ("max=NULL", 400),
        ("group=null&max=1", 200),
        ("partition=2147483648", 400),
        ("isolation=dirty", 400),
        ("group=%00", 400),
        ("group=%ff", 400),
        ("group=", 400),
    ],
)
def test_bad_queries(client, topic, query, status) -> None:
    answer = client.get(f"/topics/{topic}/subscribe?{query}")
    assert answer.status == status, answer


def test_names_that_no_topic_has(client) -> None:
    for name in ("%00", "a%2Fb", "a%20b", "%F0%9F%98%80", "%ff", "x" * 250, "a:b"):
        for method, path in (("GET", "subscribe"), ("POST", "publish"), ("POST", "ack")):
            body = {"value": 1} if method == "POST" else None
            answer = client.call(method, f"/topics/{name}/{path}", body)
            assert answer.status in (404, 422), (name, path, answer)


# Groups.


def test_a_group_reads_in_order_and_an_ack_moves_it(client, topic, group) -> None:
    path = f"/topics/{topic}/subscribe?group={group}"
    assert client.get(path).status == 204
    client.publish(topic, *({"value": str(n)} for n in range(4)))
    first = client.get(path)
    assert (first.status, first.json["value"]) == (200, "0")
    # Not acknowledged: it comes again, from any gateway.
    assert client.get(path).json["messageId"] == first.json["messageId"]
    done = client.post(f"/topics/{topic}/ack", {"messageId": first.json["messageId"]})
    assert (done.status, done.json) == (200, {"committed": [{"partition": 0, "offset": 1}]})
    assert [m["value"] for m in client.get(f"{path}&max=10").json["messages"]] == ["1", "2", "3"]
    ids = [m["messageId"] for m in client.get(f"{path}&max=10").json["messages"]]
    assert client.post(f"/topics/{topic}/ack", {"messageIds": ids}).json["committed"][0]["offset"] == 4
    # A late ack does not move the group back.
    late = client.post(f"/topics/{topic}/ack", {"messageId": first.json["messageId"]})
    assert late.json["committed"] == [{"partition": 0, "offset": 4}]
    assert client.get(path).status == 204


def test_a_replay_does_not_move_the_group(client, topic, group) -> None:
    client.publish(topic, {"value": "a"}, {"value": "b"})
    replay = client.get(f"/topics/{topic}/subscribe?group={group}&offset=1").json
    assert [m["value"] for m in replay["messages"]] == ["b"]
    acked = client.post(f"/topics/{topic}/ack", {"messageId": replay["messages"][0]["messageId"]})
    assert (acked.status, acked.json) == (200, {"committed": []})
    assert client.get(f"/topics/{topic}/subscribe?group={group}").json["value"] == "a"


def test_acks_that_have_no_meaning(client, topic, group) -> None:
    client.publish(topic, {"value": "a"})
    path = f"/topics/{topic}/ack"
    plain = client.get(f"/topics/{topic}/subscribe?offset=0").json["messages"][0]["messageId"]
    assert client.post(path, {"messageId": plain}).status == 422
    for text in ("x", "AQ", "", "ü", "A" * 999, "AQBOxEVWKDJOQ1JiwOPhkjRd_____w8A"):
        assert client.post(path, {"messageId": text}).status == 422, text
    mine = read_message_id(client.get(f"/topics/{topic}/subscribe?group={group}").json["messageId"])
    for offset in (2**63 - 1, 2**63):
        forged = replace(mine, offset=offset).text()
        assert client.post(path, {"messageId": forged}).status == 422, offset
    assert client.post(path, {}).status == 422
    mine = client.get(f"/topics/{topic}/subscribe?group={group}").json["messageId"]
    assert client.post(path, {"messageId": mine, "action": "reject"}).status == 422
    assert client.call("DELETE", f"/topics/{topic}").status == 204
    client.create(topic)
    assert client.post(path, {"messageId": mine}).status == 409


def test_a_group_with_members_is_in_conflict(http_broker, client, topic, group) -> None:
    from confluent_kafka import Consumer

    client.publish(topic, {"value": "a"})
    mine = client.get(f"/topics/{topic}/subscribe?group={group}").json["messageId"]
    consumer = Consumer({"bootstrap.servers": http_broker.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])
    try:
        deadline = time.monotonic() + 30
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.1)
        assert client.post(f"/topics/{topic}/ack", {"messageId": mine}).status == 409
    finally:
        consumer.close()


def test_records_that_were_deleted_are_a_gap(http_broker, client, topic) -> None:
    from runnel.client.admin import Admin
    from runnel.model.ids import TopicPartition

    client.publish(topic, *({"value": str(n)} for n in range(6)))
    cursor = client.get(f"/topics/{topic}/subscribe?max=1").json["next"]
    with http_broker.client() as kafka:
        kafka.run(lambda cluster: Admin(cluster).delete_records({TopicPartition(topic, 0): 4}))
    page = client.get(f"/topics/{topic}/subscribe?cursor={cursor}").json
    assert [m["value"] for m in page["messages"]] == ["4", "5"]
    assert page["gaps"] == [{"partition": 0, "from": 1, "to": 4}]


def test_read_committed(http_broker, client, topic) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": http_broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for number, ends in enumerate((producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.flush()
        ends()
    path = f"/topics/{topic}/subscribe?max=1&isolation="
    assert [m["value"] for m in client.get(f"{path}read_committed").json["messages"]] == ["1"]
    assert [m["value"] for m in client.get(f"{path}read_uncommitted").json["messages"]] == ["0"]


def test_an_offset_outside_of_the_log_is_moved_into_it(http_broker, client, topic) -> None:
    from runnel.client.admin import Admin
    from runnel.model.ids import TopicPartition

    client.publish(topic, *({"value": str(n)} for n in range(6)))
    with http_broker.client() as kafka:
        kafka.run(lambda cluster: Admin(cluster).delete_records({TopicPartition(topic, 0): 4}))
    for where in ("offset=1", "offset=1&partition=0"):
        page = client.get(f"/topics/{topic}/subscribe?{where}").json
        assert ([m["value"] for m in page["messages"]], page.get("gaps")) == (["4", "5"], None)
    page = client.get(f"/topics/{topic}/subscribe?offset=100").json
    assert page["messages"] == []
    client.publish(topic, {"value": "6"})
    page = client.get(f"/topics/{topic}/subscribe?cursor={page['next']}").json
    assert [m["value"] for m in page["messages"]] == ["6"]


def test_an_offset_in_only_some_partitions(client) -> None:
    client.create("uneven-http", partitions=2)
    written = [{"value": str(n), "partition": int(n > 1)} for n in range(6)]
    assert client.post("/topics/uneven-http/publish", written).status == 200
    page = client.get("/topics/uneven-http/subscribe?offset=3").json
    assert [m["value"] for m in page["messages"]] == ["5"]
    client.publish("uneven-http", {"value": "6", "partition": 0}, {"value": "7", "partition": 1})
    page = client.get(f"/topics/uneven-http/subscribe?cursor={page['next']}").json
    assert sorted(m["value"] for m in page["messages"]) == ["6", "7"]


def test_an_offset_in_an_open_transaction_is_moved_before_it(http_broker, client, topic) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": http_broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, str(number))
    producer.flush()
    page = client.get(f"/topics/{topic}/subscribe?offset=2&isolation=read_committed").json
    assert page["messages"] == []
    producer.commit_transaction()
    page = client.get(f"/topics/{topic}/subscribe?cursor={page['next']}&isolation=read_committed").json
    assert [m["value"] for m in page["messages"]] == ["0", "1", "2"]


@pytest.mark.parametrize(("count", "size"), [(3, 10_000), (60, 5_000), (12, 30_000)])
def test_as_many_large_messages_as_there_are(client, topic, count: int, size: int) -> None:
    written = [{"value": f"{n:03}" + "x" * size} for n in range(count + 1)]
    client.publish(topic, *written)
    page = client.get(f"/topics/{topic}/subscribe?offset=0&max={count}").json
    assert [m["value"][:3] for m in page["messages"]] == [f"{n:03}" for n in range(count)]
    rest = client.get(f"/topics/{topic}/subscribe?cursor={page['next']}&max={count}").json
    assert [m["value"][:3] for m in rest["messages"]] == [f"{count:03}"]


# Topics.


@pytest.mark.parametrize(
    ("policy", "shown", "settings"),
    [
        ("7d", "7d", {"retention.ms": "604800000"}),
        ("90m", "90m", {"retention.ms": "5400000"}),
        ({"time": "1h", "size": "10MiB"}, {"time": "1h", "size": 10485760}, {"retention.bytes": "10485760"}),
        ({"size": 1000}, {"size": 1000}, {"retention.ms": "-1", "retention.bytes": "1000"}),
        ("compact", "compact", {"cleanup.policy": "compact"}),
        ("forever", "forever", {"retention.ms": "-1"}),
    ],
)
def test_topics_with_a_retention_policy(client, policy, shown, settings, group) -> None:
    answer = client.post("/topics", {"name": group, "partitions": 3, "retentionPolicy": policy})
    assert (answer.status, answer.headers["location"]) == (201, f"/topics/{group}")
    assert (answer.json["partitions"], answer.json["retentionPolicy"]) == (3, shown)
    assert answer.json["settings"] | settings == answer.json["settings"]
    assert client.get(f"/topics/{group}").json == answer.json
    assert client.post("/topics", {"name": group}).status == 409
    assert client.call("DELETE", f"/topics/{group}").status == 204
    assert client.call("DELETE", f"/topics/{group}").status == 404
    assert client.get(f"/topics/{group}").status == 404


@pytest.mark.parametrize(
    "topic",
    [
        {},
        {"name": ""},
        {"name": "a/b"},
        {"name": ".."},
        {"name": "x" * 250},
        {"name": "bad-http", "partitions": 0},
        {"name": "bad-http", "partitions": 10**9},
        {"name": "bad-http", "retentionPolicy": "soon"},
        {"name": "bad-http", "retentionPolicy": "99999999999999999999999d"},
        {"name": "bad-http", "retentionPolicy": {}},
        {"name": "bad-http", "retentionPolicy": {"size": "big"}},
        {"name": "bad-http", "settings": {"no.such.setting": "1"}},
        {"name": "bad-http", "settings": {"retention.ms": "x"}},
        {"name": "bad-http", "retentionPolicy": "1d", "settings": {"retention.ms": "1"}},
        {"name": "bad-http", "replicationFactor": 5},
    ],
)
def test_topics_that_cannot_be(client, topic) -> None:
    assert client.post("/topics", topic).status == 422
    assert client.get("/topics/bad-http").status == 404


def test_internal_topics_are_read_only(client, topic, group) -> None:
    client.publish(topic, {"value": "a"})
    mine = client.get(f"/topics/{topic}/subscribe?group={group}").json["messageId"]
    client.post(f"/topics/{topic}/ack", {"messageId": mine})
    assert client.post("/topics/__consumer_offsets/publish", {"value": "x"}).status == 403
    assert client.call("DELETE", "/topics/__consumer_offsets").status == 403
    assert client.get("/topics/__consumer_offsets/subscribe?max=1").status == 200


# Methods, paths, pages.


def test_other_methods_and_paths(client, topic) -> None:
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "HEAD"):
        answer = client.call(method, f"/topics/{topic}/publish")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert client.get(f"/topics/{topic}/nothing").headers["content-type"] == PROBLEM
    assert "access-control-allow-origin" not in client.get("/topics").headers


def test_pages_of_other_sites_are_refused(client, topic) -> None:
    record = {"value": "x"}
    assert client.post(f"/topics/{topic}/publish", record, Origin="http://evil.example").status == 403
    assert client.get("/topics", Host="evil.example").status == 421


def test_docs(client) -> None:
    page = client.get("/docs")
    assert page.status == 200 and b"/topics/{topic}/publish" in page.body
    assert b"<script" not in page.body and b"http://" not in page.body and b"https://" not in page.body
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/docs/style.css").status == 200
    assert client.get("/openapi.json").json["openapi"] == "3.1.0"
