"""Publishes with an idempotency key: at several gateways, in every form, and when the outcome is unknown."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from websockets.sync.client import connect

from runnel.gateway.http.openapi import document
from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import serving
from tests.gateway.http.clients import NDJSON, PROBLEM, Answer, Client
from tools.broker_process import BrokerProcess

SETTINGS = {"dedup.window.ms": "600000"}


@pytest.fixture
def keyed(client: Client) -> str:
    """A topic that remembers keys."""
    name = f"keyed-{uuid4().hex[:10]}"
    client.create(name, partitions=8, settings=SETTINGS)
    return name


@pytest.fixture(scope="module")
def other(http_broker: Broker) -> Iterator[Client]:
    """Another gateway of the same brokers."""
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        yield Client.of(visitor)


def publish(client: Client, topic: str, record: Any, key: str) -> Answer:
    return client.post(f"/topics/{topic}/publish", record, Idempotency_Key=key)


def messages(client: Client, topic: str) -> list[Any]:
    found = client.get(f"/topics/{topic}/subscribe?offset=earliest&max=1000").json
    return list(found["messages"])


def refused(answer: Answer, status: int, reason: str) -> bool:
    assert (answer.status, answer.headers["content-type"]) == (status, PROBLEM), answer
    assert reason in answer.json["detail"], answer.json
    return True


def test_a_publish_that_is_repeated_is_stored_once(client: Client, other: Client, keyed: str) -> None:
    places = set()
    for number in range(20):
        record = {"value": {"number": number}, "headers": {"a": "b"}}
        answers = [publish(each, keyed, record, f"key-{number}") for each in (client, other, client)]
        assert [answer.status for answer in answers] == [200] * 3, answers
        assert answers[0].json == answers[1].json == answers[2].json
        places.add((answers[0].json["partition"], answers[0].json["offset"]))
    assert len(places) == 20
    assert len({partition for partition, _ in places}) > 1, "keys are spread over the partitions"
    found = messages(client, keyed)
    assert {(each["partition"], each["offset"]) for each in found} == places
    assert all(each["headers"]["runnel-idempotency-key"].startswith("key-") for each in found)


def test_keys_may_be_quoted_and_traces_differ(client: Client, keyed: str) -> None:
    traces = [{"traceparent": f"00-{number:032x}-{number:016x}-01"} for number in (1, 2)]
    answers = [
        client.post(f"/topics/{keyed}/publish", {"value": "a"}, Idempotency_Key=key, **trace)
        for key, trace in zip(("a-1", '"a-1"'), traces, strict=True)
    ]
    assert answers[0].json == answers[1].json
    assert len(messages(client, keyed)) == 1


@pytest.mark.parametrize("key", ['"', '""', '"a', "a b", "a\\b", "x" * 256, "ü"])
def test_keys_that_are_not_valid(client: Client, keyed: str, key: str) -> None:
    assert refused(
        publish(client, keyed, {"value": "a"}, key.encode().decode("latin-1")), 400, "Idempotency-Key"
    )


def test_another_record_with_the_key_is_refused(client: Client, other: Client, keyed: str) -> None:
    assert publish(client, keyed, {"value": "a"}, "k").status == 200
    again = publish(other, keyed, {"value": "b"}, "k")
    assert refused(again, 422, "another record") and again.json["error"] == "DUPLICATE_RESOURCE"
    assert publish(client, keyed, {"value": "a"}, "k").status == 200
    assert len(messages(client, keyed)) == 1


def test_topics_without_the_setting_refuse_keys(client: Client, topic: str) -> None:
    assert refused(publish(client, topic, {"value": "a"}, "k"), 400, "dedup.window.ms")
    line = client.post(f"/topics/{topic}/publish", [{"value": "a", "idempotencyKey": "k"}, {"value": "b"}])
    assert line.status == 207
    assert [(result.get("error") or {}).get("status") for result in line.json["results"]] == [400, None]
    assert [each["value"] for each in messages(client, topic)] == ["b"]


def test_requests_that_have_no_meaning(client: Client, keyed: str) -> None:
    batch = [{"value": "a"}, {"value": "b"}]
    assert refused(publish(client, keyed, batch, "k"), 422, "idempotencyKey")
    lines = client.call(
        "POST",
        f"/topics/{keyed}/publish",
        b'{"value": 1}\n',
        {"Content-Type": NDJSON, "Idempotency-Key": "k"},
    )
    assert refused(lines, 422, "idempotencyKey")
    assert refused(publish(client, keyed, {"value": "a", "idempotencyKey": "k"}, "k"), 422, "Idempotency-Key")
    assert refused(publish(client, keyed, {"value": "a", "timestamp": 5}, "k"), 422, "timestamp")
    long = client.post(f"/topics/{keyed}/publish", {"value": "a", "idempotencyKey": "ü" * 200})
    assert refused(long, 422, "255 bytes")
    header = {"value": "a", "headers": {"runnel-idempotency-key": "k"}}
    assert refused(client.post(f"/topics/{keyed}/publish", header), 422, "neither idempotent")
    assert refused(publish(client, keyed, {"value": "a", "partition": 99}, "k"), 404, "99")
    assert messages(client, keyed) == []


def test_many_records_with_keys(client: Client, other: Client, keyed: str) -> None:
    records = [{"value": str(number), "idempotencyKey": f"n-{number % 30}"} for number in range(60)]
    results = [
        (result.get("offset"), (result.get("error") or {}).get("status"))
        for result in client.post(f"/topics/{keyed}/publish", records).json["results"]
    ]
    assert all(offset is not None and status is None for offset, status in results[:30])
    assert [status for _, status in results[30:]] == [422] * 30
    body = b"".join(json.dumps(each).encode() + b"\n" for each in records[:30])
    again = other.call("POST", f"/topics/{keyed}/publish", body, {"Content-Type": NDJSON, "Accept": NDJSON})
    assert [(line["offset"], None) for line in again.lines] == results[:30]
    assert len(messages(client, keyed)) == 30


def test_each_result_is_of_its_record_with_or_without_a_key(client: Client, keyed: str) -> None:
    records: list[dict[str, Any]] = [{"value": str(number), "partition": 0} for number in range(600)]
    for number in range(0, len(records), 3):
        records[number]["idempotencyKey"] = f"m-{number}"
    results = client.post(f"/topics/{keyed}/publish", records).json["results"]
    page = client.get(f"/topics/{keyed}/subscribe?offset=0&partition=0&max=1000").json
    stored = {each["offset"]: each["value"] for each in page["messages"]}
    assert [stored[result["offset"]] for result in results] == [each["value"] for each in records]
    assert len(stored) == len(records)


def test_records_with_their_own_partition(client: Client, keyed: str) -> None:
    by_key = [
        publish(client, keyed, {"key": "anna", "value": str(each)}, f"k{each}").json for each in range(5)
    ]
    assert len({answer["partition"] for answer in by_key}) == 1
    given = publish(client, keyed, {"value": "a", "partition": 6}, "p")
    assert given.json["partition"] == 6
    assert publish(client, keyed, {"value": "a", "partition": 6}, "p").json == given.json


def test_cloud_events_and_websockets(client: Client, keyed: str) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"a": 1}}
    kind = {"Content-Type": "application/cloudevents+json", "Idempotency-Key": "event"}
    answers = [client.call("POST", f"/topics/{keyed}/publish", event, kind).json for _ in range(2)]
    assert answers[0] == answers[1]
    with connect(f"ws://{client.host}:{client.port}/topics/{keyed}/subscribe") as line:
        found: list[Any] = []
        for value in ("a", "a", "b"):
            record = {"value": value, "idempotencyKey": "socket"}
            line.send(json.dumps({"type": "publish", "record": record, "id": len(found)}))
            while (answer := json.loads(line.recv(timeout=20)))["type"] == "message":
                pass
            found.append(answer)
    assert [each["type"] for each in found] == ["published", "published", "error"]
    assert found[0]["messageId"] == found[1]["messageId"]
    assert found[2]["problem"]["status"] == 422
    assert len(messages(client, keyed)) == 2


def test_keys_are_known_after_the_broker_was_killed(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", {}) as broker,
        serving(GatewayOptions(broker.bootstrap)) as visitor,
    ):
        client = Client.of(visitor)
        client.create("t", partitions=3, settings=SETTINGS)
        first = [publish(client, "t", {"value": str(number)}, f"k{number}").json for number in range(10)]
        broker.kill()
        broker.start()
        again = [publish(client, "t", {"value": str(number)}, f"k{number}") for number in range(10)]
        assert [answer.json for answer in again] == first, again
        assert len(messages(client, "t")) == 10


def test_an_unknown_outcome_advises_to_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.principals.DELIVERY_S", 1.0)
    monkeypatch.setattr("runnel.gateway.http.idempotency.DEDUP_S", 600.0)
    monkeypatch.setattr("runnel.gateway.http.principals.METADATA_MAX_AGE_S", 600.0)
    with (
        BrokerProcess(tmp_path / "data", {}) as broker,
        serving(GatewayOptions(broker.bootstrap)) as visitor,
    ):
        client = Client.of(visitor)
        client.create("t", settings=SETTINGS)
        assert publish(client, "t", {"value": "a"}, "first").status == 200
        with broker.held():
            late = publish(client, "t", {"value": "b"}, "second")
        assert refused(late, 504, "send it again with the same idempotency key")
        assert publish(client, "t", {"value": "b"}, "second").json["offset"] == 1
        assert [each["value"] for each in messages(client, "t")] == ["a", "b"]


def test_full_partitions_are_a_429(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"keyed-{uuid4().hex[:10]}"
    client.create(name, settings={**SETTINGS, "dedup.keys.max": "1"})
    assert publish(client, name, {"value": "a"}, "first").status == 200
    answer = publish(client, name, {"value": "a"}, "second")
    assert refused(answer, 429, "dedup.keys.max") and answer.json["error"] == "THROTTLING_QUOTA_EXCEEDED"
    assert publish(client, name, {"value": "a"}, "first").status == 200


def test_the_header_is_documented() -> None:
    operation = document()["paths"]["/topics/{topic}/publish"]["post"]
    [header] = [each for each in operation["parameters"] if each["in"] == "header"]
    assert header["name"] == "Idempotency-Key" and not header["required"]
