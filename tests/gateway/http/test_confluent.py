"""Programs written for Confluent's REST proxy: its paths, fields and error codes."""

import base64
import json

import pytest

from runnel.gateway.http import limits
from tests.gateway.http.clients import Client
from tests.gateway.http.test_calls import stored

BINARY = "application/vnd.kafka.binary.v2+json"
JSON_V2 = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"


@pytest.fixture(scope="module")
def base(client: Client) -> str:
    [cluster] = client.get("/v3/clusters").json["data"]
    assert cluster["kind"] == "KafkaCluster"
    assert client.get(f"/v3/clusters/{cluster['cluster_id']}").json["cluster_id"] == cluster["cluster_id"]
    return f"/v3/clusters/{cluster['cluster_id']}"


def test_v2_produces_binary_and_json(http_broker, client: Client, topic) -> None:
    records = [{"key": "aw==", "value": "/w=="}, {"value": "AA==", "partition": 0}]
    answer = client.post(f"/topics/{topic}", {"records": records}, Content_Type=BINARY)
    assert (answer.status, answer.headers["content-type"]) == (200, V2)
    assert [each["offset"] for each in answer.json["offsets"]] == [0, 1]
    body = {"records": [{"key": "k", "value": {"a": 1}}, {"value": "text"}]}
    assert client.post(f"/topics/{topic}/partitions/0", body, Content_Type=JSON_V2).status == 200
    values = [(key, value) for key, value, _ in stored(http_broker, topic)]
    assert values == [(b"k", b"\xff"), (None, b"\x00"), (b'"k"', b'{"a": 1}'), (None, b'"text"')]


@pytest.mark.parametrize(
    ("path", "body", "content_type", "status", "code"),
    [
        ("/topics/none-v2", {"records": [{"value": "AA=="}]}, BINARY, 404, 40401),
        ("/topics/{topic}/partitions/9", {"records": [{"value": "AA=="}]}, BINARY, 404, 40402),
        ("/topics/{topic}/partitions/x", {"records": [{"value": "AA=="}]}, BINARY, 404, 40402),
        ("/topics/{topic}", b"{", BINARY, 422, 42203),
        ("/topics/{topic}", {"records": [{"value": "?"}]}, BINARY, 422, 42206),
        ("/topics/{topic}", {"records": []}, BINARY, 422, 42206),
        ("/topics/{topic}", {"records": [{"value": "x"}]}, "application/json", 415, 415),
        ("/topics/__consumer_offsets", {"records": [{"value": "AA=="}]}, BINARY, 403, 403),
    ],
)
def test_v2_errors(client: Client, topic, group, path, body, content_type, status, code) -> None:
    client.get(f"/topics/{topic}/subscribe?group={group}")
    answer = client.post(path.format(topic=topic), body, Content_Type=content_type)
    assert (answer.status, answer.json["error_code"]) == (status, code), answer
    assert answer.json["message"] and answer.headers["content-type"] == "application/json"


def test_v2_metadata(client: Client, topic) -> None:
    assert topic in client.get("/topics", Accept=V2).json
    shown = client.get(f"/topics/{topic}", Accept=V2)
    assert shown.headers["content-type"] == V2
    replica = {"broker": 1, "leader": True, "in_sync": True}
    assert shown.json["partitions"] == [{"partition": 0, "leader": 1, "replicas": [replica]}]
    assert "retention.ms" in shown.json["configs"]
    assert client.get(f"/topics/{topic}/partitions").json == shown.json["partitions"]
    assert client.get(f"/topics/{topic}/partitions/0").json == shown.json["partitions"][0]
    client.publish(topic, {"value": "a"})
    assert client.get(f"/topics/{topic}/partitions/0/offsets").json == {
        "beginning_offset": 0,
        "end_offset": 1,
    }
    assert client.get("/brokers").json == {"brokers": [1]}


def test_v3_topics_and_configs(client: Client, base, group) -> None:
    new = {"topic_name": group, "partitions_count": 2, "configs": [{"name": "retention.ms", "value": "5000"}]}
    created = client.post(f"{base}/topics", new)
    assert (created.status, created.json["partitions_count"]) == (201, 2)
    assert client.post(f"{base}/topics", new).json["error_code"] == 40002
    assert client.get(f"{base}/topics/{group}").json == created.json
    assert created.json in client.get(f"{base}/topics").json["data"]
    config = f"{base}/topics/{group}/configs/retention.ms"
    assert client.get(config).json["value"] == "5000"
    assert client.call("PUT", config, {"value": "7000"}).status == 204
    assert (client.get(config).json["value"], client.get(config).json["is_default"]) == ("7000", False)
    assert client.call("DELETE", config).status == 204
    assert client.get(config).json["is_default"] is True
    changes = {
        "data": [{"name": "retention.ms", "value": "9000"}, {"name": "segment.ms", "operation": "DELETE"}]
    }
    assert client.post(f"{base}/topics/{group}/configs:alter", changes).status == 204
    assert client.get(config).json["value"] == "9000"
    assert client.call("PUT", config, {"value": "long"}).status == 422
    assert client.get(f"{base}/topics/{group}/configs/none").status == 404
    assert len(client.get(f"{base}/topics/{group}/configs").json["data"]) > 10
    assert [p["partition_id"] for p in client.get(f"{base}/topics/{group}/partitions").json["data"]] == [0, 1]
    assert client.get(f"{base}/topics/{group}/partitions/1").json["partition_id"] == 1
    assert client.get(f"{base}/topics/{group}/partitions/2").json["error_code"] == 40402
    assert client.call("DELETE", f"{base}/topics/{group}").status == 204
    assert client.get(f"{base}/topics/{group}").json["error_code"] == 40401
    assert client.get("/v3/clusters/other/topics").status == 404


def test_v3_records(http_broker, client: Client, base, topic) -> None:
    text = {"type": "STRING", "data": "k"}
    header = [{"name": "h", "value": base64.b64encode(b"\xff").decode()}]
    one = {"key": text, "value": {"type": "JSON", "data": {"a": 1}}, "headers": header}
    two = {"value": {"type": "BINARY", "data": "/w=="}, "partition_id": 0}
    path = f"{base}/topics/{topic}/records"
    single = client.post(path, one)
    assert (single.status, single.json["error_code"], single.json["offset"]) == (200, 200, 0)
    many = client.post(path, json.dumps(one).encode() + json.dumps(two).encode() + b"\n{}")
    assert [line["offset"] for line in many.lines] == [1, 2, 3]
    batch = client.post(f"{path}:batch", {"entries": [{"id": "1", **one}, {"id": "2", "partition_id": 7}]})
    assert batch.status == 207
    assert [each["id"] for each in batch.json["successes"]] == ["1"]
    assert [(each["id"], each["error_code"]) for each in batch.json["failures"]] == [("2", 404)]
    found = stored(http_broker, topic)
    assert found[0] == (b"k", b'{"a": 1}', [("h", b"\xff")])
    assert [value for _, value, _ in found] == [b'{"a": 1}', b'{"a": 1}', b"\xff", None, b'{"a": 1}']
    for bad, code in (
        (b"{", 42203),
        (b'{"value": {"type": "AVRO", "data": "x"}}', 42206),
        (b'{"value": {"type": "BINARY", "data": "?"}}', 42206),
        (b'{"value": {"type": "STRING", "data": 1}}', 42206),
        (b'{"value": 1}', 422),
    ):
        assert client.post(path, bad).json["error_code"] == code, bad


def test_v3_records_have_a_limited_number_of_headers(client: Client, base, topic) -> None:
    def status(count: int) -> int:
        record = {"headers": [{"name": "h"}] * count}
        return client.post(f"{base}/topics/{topic}/records", record).status

    assert [status(limits.RECORD_HEADERS_MAX + more) for more in (0, 1)] == [200, 422]


def test_v3_groups_and_lags(client: Client, base, topic, group) -> None:
    client.publish(topic, *({"value": str(n)} for n in range(5)))
    first = client.get(f"/topics/{topic}/subscribe?group={group}").json["messageId"]
    client.post(f"/topics/{topic}/ack", {"messageId": first})
    groups = client.get(f"{base}/consumer-groups").json["data"]
    assert group in [each["consumer_group_id"] for each in groups]
    assert client.get(f"{base}/consumer-groups/{group}").json["state"] == "EMPTY"
    [lag] = client.get(f"{base}/consumer-groups/{group}/lags").json["data"]
    assert (lag["topic_name"], lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (topic, 1, 5, 4)
    summary = client.get(f"{base}/consumer-groups/{group}/lag-summary").json
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_topic_name"]) == (4, 4, topic)
    assert client.get(f"{base}/consumer-groups/none-v3/lags").json["error_code"] == 40403
