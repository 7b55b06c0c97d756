"""CloudEvents in and out, in all modes, and as other programs find them in the log."""

import json

import pytest

from tests.gateway.http.clients import Client

EVENT = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
CE = {"id": "7", "source": "/shop", "specversion": "1.0", "type": "order.placed"}


def headers_of(**attributes: str) -> dict[str, str]:
    return {f"ce-{name}": value for name, value in {**CE, **attributes}.items()}


def stored(broker, topic: str):
    with broker.client() as client:
        return [(m.key, m.value, dict(m.headers)) for m in client.read(topic)]


def test_binary(http_broker, client: Client, topic) -> None:
    path = f"/topics/{topic}/publish"
    sent = headers_of(subject="gr%C3%BC%C3%9Fe", partitionkey="anna") | {"Content-Type": "text/xml"}
    assert client.call("POST", path, b"<a/>", sent).status == 200
    assert client.call("POST", path, b"", headers_of(id="8")).status == 200
    (key, value, headers), (_, empty, _) = stored(http_broker, topic)
    assert (key, value, empty) == (b"anna", b"<a/>", None)
    assert headers["ce_subject"] == "grüße".encode() and headers["content-type"] == b"text/xml"
    assert headers["ce_id"] == b"7" and headers["ce_specversion"] == b"1.0"
    back = client.get(f"/topics/{topic}/subscribe?offset=0&max=1&format=cloudevents")
    assert (back.status, back.body, back.headers["content-type"]) == (200, b"<a/>", "text/xml")
    none = client.get(f"/topics/{topic}/subscribe?offset=1&format=cloudevents")
    assert (none.body, none.headers["content-type"]) == (b"", "application/octet-stream")
    assert back.headers["ce-subject"] == "gr%C3%BC%C3%9Fe" and back.headers["ce-messageid"]


def test_a_record_is_no_page_of_the_gateway(client: Client, topic) -> None:
    """Its content type is the sender's choice: as HTML it could load another record as a script."""
    sent = {**headers_of(), "Content-Type": "text/html"}
    body = f'<script src="/topics/{topic}/subscribe?offset=1&format=cloudevents"></script>'.encode()
    assert client.call("POST", f"/topics/{topic}/publish", body, sent).status == 200
    back = client.get(f"/topics/{topic}/subscribe?offset=0&max=1&format=cloudevents")
    assert (back.body, back.headers["content-type"]) == (body, "text/html")
    assert back.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert back.headers["content-disposition"] == "attachment"
    assert back.headers["x-content-type-options"] == "nosniff"


def test_structured(http_broker, client: Client, topic, group) -> None:
    event = json.dumps({**CE, "data": {"b": 1, "a": 1.50}, "partitionkey": "anna"}).encode()
    assert client.post(f"/topics/{topic}/publish", event, Content_Type=EVENT).status == 200
    [(key, value, headers)] = stored(http_broker, topic)
    assert (key, value) == (b"anna", event)
    assert headers["content-type"].startswith(EVENT.encode())
    back = client.get(f"/topics/{topic}/subscribe?group={group}", Accept=EVENT)
    assert back.headers["content-type"] == EVENT
    assert back.json | CE == back.json and back.json["data"] == {"b": 1, "a": 1.5}
    assert client.post(f"/topics/{topic}/ack", {"messageId": back.json["messageid"]}).status == 200
    assert client.get(f"/topics/{topic}/subscribe?group={group}", Accept=EVENT).status == 204


def test_batch_and_records_that_are_no_events(http_broker, client: Client, topic) -> None:
    events = [{**CE, "id": str(n), "data": n} for n in range(3)]
    answer = client.post(f"/topics/{topic}/publish", json.dumps(events).encode(), Content_Type=BATCH)
    assert answer.status == 200 and len(answer.json["results"]) == 3
    client.publish(topic, {"key": "k", "value": "plain"}, {"value_base64": "/w=="}, {"value": {"a": 1}})
    back = client.get(f"/topics/{topic}/subscribe?offset=0", Accept=BATCH)
    assert back.headers["content-type"] == BATCH and back.headers["runnel-next"]
    *found, plain, binary, other = back.json
    assert [(event["id"], event["data"]) for event in found] == [("0", 0), ("1", 1), ("2", 2)]
    assert (plain["data"], plain["partitionkey"], plain["source"]) == ("plain", "k", f"/topics/{topic}")
    assert binary["data_base64"] == "/w==" and other["data"] == {"a": 1}
    first = client.get(f"/topics/{topic}/subscribe?offset=0", Accept=EVENT)
    assert (first.status, first.json["id"]) == (200, "0")
    assert client.get(f"/topics/{topic}/subscribe?offset=0&max=2", Accept=EVENT).status == 422


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {"Content-Type": EVENT}, 400),
        (b"{}", {"Content-Type": EVENT}, 422),
        (json.dumps({**CE, "id": ""}).encode(), {"Content-Type": EVENT}, 422),
        (json.dumps({**CE, "specversion": "0.3"}).encode(), {"Content-Type": EVENT}, 422),
        (json.dumps(CE).encode(), {"Content-Type": BATCH}, 422),
        (b"x", headers_of(id="%zz"), 422),
        (b"x", headers_of(id="%ff"), 422),
        (b"x", {**headers_of(), "ce-under_score": "1"}, 422),
        (b"x", {"ce-specversion": "1.0"}, 422),
    ],
)
def test_events_that_are_none(client: Client, topic, body, headers, status) -> None:
    assert client.call("POST", f"/topics/{topic}/publish", body, headers).status == status
