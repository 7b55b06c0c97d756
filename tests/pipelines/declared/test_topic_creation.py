"""The topics that a pipeline creates, and their maximum message size."""

from pathlib import Path

from runnel.pipelines.broker import BrokerView
from runnel.pipelines.declared.topic_creation import MARGIN_BYTES, create_topics
from runnel.testing import Broker
from tests.pipelines.declared.shop import declared

LOGS = """
name: logs
sources:
  logs: {pattern: "logs-.*", format: string}
  events: {pattern: "events-.*", format: string, dead-letter-topic: events-bad}
  raw: {topic: raw, format: bytes}
  missing: {topic: missing, format: string}
sinks:
  all: {from: logs, topic: all, partitions: 2}
  events: {from: events, console: true}
  raw: {from: raw, console: true}
  missing: {from: missing, console: true}
"""
LARGE = 5_000_000


def names(broker: BrokerView) -> list[str]:
    return sorted(view.name for view in broker.topics())


def test_dead_letter_topics_have_no_dead_letter_topics(runnel: Broker, tmp_path: Path) -> None:
    pipeline = declared(tmp_path, LOGS, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with BrokerView(runnel.bootstrap_servers) as broker:
        for topic in ("logs-web", "events-a", "raw"):
            broker.create_topic(topic)
        create_topics(pipeline, broker)
        made = names(broker)
        # Each start used to make one more level, as the pattern matches what the last one made.
        create_topics(pipeline, broker)
        assert names(broker) == made
    assert made == [
        "all", "events-a", "events-bad", "logs-web", "logs-web.dead-letters", "missing.dead-letters", "raw",
    ]  # fmt: skip


def test_a_dead_letter_topic_accepts_all_records_of_its_topics(runnel: Broker, tmp_path: Path) -> None:
    pipeline = declared(tmp_path, LOGS, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with BrokerView(runnel.bootstrap_servers) as broker:
        for topic, size in (("logs-a", LARGE), ("logs-b", 3000), ("events-a", 3000), ("events-b", LARGE)):
            broker.create_topic(topic, settings={"max.message.bytes": str(size)})
        broker.create_topic("logs-c", settings={"max.message.bytes": str(2**31 - 1)})
        create_topics(pipeline, broker)
        sizes = {
            topic: int(broker.topic_settings(f"{topic}")["max.message.bytes"] or 0)
            for topic in ("logs-a.dead-letters", "logs-b.dead-letters", "logs-c.dead-letters", "events-bad")
        }
    assert sizes == {
        "logs-a.dead-letters": LARGE + MARGIN_BYTES,
        "logs-b.dead-letters": 3000 + MARGIN_BYTES,
        "logs-c.dead-letters": 2**31 - 1,
        "events-bad": LARGE + MARGIN_BYTES,
    }
