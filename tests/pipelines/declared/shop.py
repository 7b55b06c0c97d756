"""A shop for tests: topics with orders and payments, and the expected results by plain Python."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from runnel.pipelines.declared.declaration import Declaration
from runnel.pipelines.declared.example.events import MALFORMED, Event
from runnel.pipelines.declared.reading import read_file
from runnel.testing import Broker


def declared(folder: Path, text: str, **environment: str) -> Declaration:
    """A valid pipeline."""
    path = folder / "pipeline.yaml"
    path.write_text(text, "utf-8")
    declaration, findings = read_file(path, environment)
    assert declaration is not None
    assert [finding.line(path.name) for finding in findings] == []
    return declaration


def send(broker: Broker, events: Iterable[Event]) -> None:
    """Send events to their topics, which are created with three partitions."""
    by_topic: dict[str, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    for event in events:
        by_topic[event.topic].append((event.key.encode(), event.value.encode()))
    with broker.client() as client:
        for topic, records in by_topic.items():
            if topic not in client.topics():
                client.create_topic(topic, partitions=3)
            client.send_all(topic, records)


def parsed(events: Iterable[Event], topic: str) -> dict[str, dict]:
    """The well-formed values of a topic, by order."""
    values = [
        json.loads(event.value) for event in events if event.topic == topic and event.value not in MALFORMED
    ]
    return {value["order_id"]: value for value in values}


def revenue(events: list[Event], *, before: str) -> Counter:
    """(minute, country) → cents, of all minutes that begin before the one given."""
    orders, payments = parsed(events, "orders"), parsed(events, "payments")
    total: Counter = Counter()
    for order_id, payment in payments.items():
        order = orders[order_id]
        minute = order["at"][:16]
        if minute < before[:16]:
            total[minute, order["country"]] += round(payment["paid"] * 100)
    return total


def minute_text(moment: datetime) -> str:
    """A moment of UTC as events write theirs, down to the minute."""
    return moment.strftime("%Y-%m-%dT%H:%M")
