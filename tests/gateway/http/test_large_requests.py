"""Requests of legal sizes whose elements would take long: they are refused before they are decoded."""

import pytest

from runnel.gateway.http import limits
from tests.gateway.http.clients import NDJSON, Client

MANY_HEADERS = b'{"value": 1, "headersList": [' + b",".join([b'{"name":""}'] * 100_000) + b"]}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/topics/{topic}/ack", b'{"messageIds": [' + b'"a",' * 600_000 + b'"a"]}'),
        ("/topics", b'{"name": "large-settings", "settings": {%b}}' % (b'"a":"",' * 400_000 + b'"a":""')),
        (
            "/v3/clusters/{cluster}/topics/{topic}/configs:alter",
            b'{"data": [%b]}' % (b'{"name":""},' * 200_000),
        ),
    ],
)
def test_bodies_without_records_are_small(client: Client, topic: str, path: str, body: bytes) -> None:
    [cluster] = client.get("/v3/clusters").json["data"]
    assert limits.SMALL_BODY_BYTES_MAX < len(body) < limits.BODY_BYTES_MAX
    answer = client.post(path.format(topic=topic, cluster=cluster["cluster_id"]), body)
    assert answer.status == 413 and NDJSON not in answer.body.decode()


@pytest.mark.parametrize("body", [MANY_HEADERS, b"[" + MANY_HEADERS + b"]"])
def test_headers_have_a_size_as_they_are_sent(client: Client, topic: str, body: bytes) -> None:
    answer = client.post(f"/topics/{topic}/publish", body)
    assert answer.status == 413 and "headersList" in answer.json["detail"]
    assert client.get(f"/topics/{topic}/subscribe?offset=0").json["messages"] == []


def test_headers_of_lines_have_a_size(client: Client, topic: str) -> None:
    answer = client.post(f"/topics/{topic}/publish", MANY_HEADERS + b'\n{"value": 2}\n', Content_Type=NDJSON)
    assert (answer.status, answer.json["published"], answer.json["failed"]) == (207, 1, 1)
    assert answer.json["errors"][0]["error"]["status"] == 413


def test_records_of_version_3_are_one_object_or_lines(client: Client, topic: str) -> None:
    """Others are parsed by Python, which makes objects of all that it passes."""
    [cluster] = client.get("/v3/clusters").json["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}/topics/{topic}/records"
    record = b'{"value": {"type": "JSON", "data": [' + b"[]," * 500_000 + b"[]]}}"
    refused = client.post(path, record + b"?")
    assert (refused.status, refused.json["error_code"]) == (422, 42203)
    assert "one JSON object in each line" in refused.json["message"]
    large = b'{"value": {"type": "JSON", "data": [' + b"[]," * 100_000 + b"[]]}}"
    for body in (large, large + b"\n" + large + b"\n"):
        assert client.post(path, body).status == 200
    assert [
        len(each["value"]) for each in client.get(f"/topics/{topic}/subscribe?offset=0").json["messages"]
    ] == [100_001] * 3


def test_topics_of_many_partitions_are_read_by_partition(client: Client, monkeypatch) -> None:
    client.create("polled-wide-http", partitions=3)
    monkeypatch.setattr("runnel.gateway.http.polling.POLL_PARTITIONS_MAX", 2)
    for query in ("offset=0", "group=g", "cursor=v1.AAAAAAAAAAAAAAAAAAAAAA"):
        refused = client.get(f"/topics/polled-wide-http/subscribe?{query}")
        assert refused.status == 422 and "partition=" in refused.json["detail"]
    assert client.get("/topics/polled-wide-http/subscribe?offset=0&partition=1").status == 200
