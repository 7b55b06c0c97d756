"""The page of alerts reads and writes the records of the evaluator."""

import json

from runnel.gateway.alerts.state_topic import TOPIC
from runnel.testing import Broker
from tests.gateway.gateways import Visitor
from tests.gateway.test_lag_history import until

LABELS = {"alertname": "DiskSpaceLow", "severity": "critical", "broker": "1"}
ALERT = {
    "labels": LABELS,
    "state": "firing",
    "active_ms": 1_790_000_000_000,
    "value": 0.93,
    "value_ms": 1_790_000_000_000,
    "summary": "disk of broker 1 is <b>full</b>",
    "description": "",
    "fired_ms": 1_790_000_000_000,
    "resolved_ms": None,
    "missing_ms": None,
}


def test_alerts_and_silences(broker: Broker, visitor: Visitor) -> None:
    assert "not evaluated yet" in visitor.content("/console/alerts").text
    with broker.client() as client:
        client.create_topic(TOPIC, partitions=1, settings={"cleanup.policy": "compact"})
        resolved = {**ALERT, "labels": {**LABELS, "broker": "2"}, "state": "resolved"}
        client.send(TOPIC, json.dumps(ALERT).encode(), key=b"alert/1")
        client.send(TOPIC, json.dumps(resolved).encode(), key=b"alert/2")
        client.send(TOPIC, b'{"instance": "x"}', key=b"evaluator")
        client.send(TOPIC, b"not JSON", key=b"alert/3")
        page = until(visitor, "/console/alerts", "resolved")
        assert "1 alert firing" in page and "resolved" in page and "&lt;b&gt;full" in page
        path, labels = "/console/alerts/silence", json.dumps(LABELS)
        assert visitor.post(path, labels=labels, **{"for": "2h", "why": "x"}).status == 422
        assert (
            visitor.post(path, labels=labels, **{"for": "x", "why": "x", "label:broker": "1"}).status == 422
        )
        form = {"labels": labels, "for": "2h", "why": "a new disk is on its way", "label:broker": "1"}
        assert visitor.post(path, **form).status == 200
        page = visitor.content("/console/alerts").text
        assert "silenced" in page and "a new disk is on its way" in page and "broker=1" in page
        [silence] = [each for each in client.read(TOPIC) if (each.key or b"").startswith(b"silence/")]
        written = json.loads(silence.value or b"")
        assert written["matchers"] == [["broker", "=", "1"]]
        assert written["ends_ms"] - written["starts_ms"] == 7_200_000
        name = (silence.key or b"").decode().removeprefix("silence/")
        assert visitor.post("/console/alerts/end-silence", id=name).status == 200
        assert "a new disk" not in visitor.content("/console/alerts").text
        assert visitor.post("/console/alerts/end-silence", id="none").status == 404
        pattern = {**written, "matchers": [["alertname", "=~", "Disk.*"]], "why": "by pattern"}
        client.send(TOPIC, json.dumps(pattern).encode(), key=b"silence/pattern")
        assert ">silenced<" in until(visitor, "/console/alerts", "by pattern")
        client.delete_topic(TOPIC)
