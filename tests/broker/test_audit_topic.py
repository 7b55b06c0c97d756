"""The queue of the audit topic: bounded, and what is lost is counted."""

import asyncio
import logging
from typing import Any

import pytest

from runnel.batch.header import read_header
from runnel.broker.runtime import audit_topic
from runnel.broker.runtime.audit_topic import AuditTopic
from tests.broker.authorized import SETTINGS


def test_what_does_not_fit_into_the_queue_is_counted(tell):
    async def scenario(world: Any) -> None:
        broker = world.broker
        topic = AuditTopic(broker, "audit", queue_max=3)
        event = {"timestamp_ms": 1, "outcome": "denied"}
        for number in range(10):
            topic.offer({**event, "number": number})
        topic.suppress()
        topic.start()
        async with asyncio.timeout(20):
            await topic.close()
        partition = broker.partition("audit", 0)
        assert partition.high_watermark == 4
        batches = partition.read(0, 10_000, 4, at_least_one=True, may_block=True)
        assert b'"dropped": 7' in b"".join(map(bytes, batches.parts))
        assert b'"denials_over_limit": 1' in b"".join(map(bytes, batches.parts))

    tell(scenario, SETTINGS)


def test_an_outage_and_its_lost_events_are_reported(tell, caplog):
    caplog.set_level(logging.WARNING, "runnel.broker")

    async def scenario(world: Any) -> None:
        broker = world.broker
        topic = AuditTopic(broker, "..", queue_max=2)
        topic.offer({"timestamp_ms": 1})
        topic.start()
        async with asyncio.timeout(20):
            while "cannot be written" not in caplog.text:
                await asyncio.sleep(0.01)
        for _ in range(5):
            topic.offer({"timestamp_ms": 1})
        await topic.close()
        assert "6 events were not written" in caplog.text

    tell(scenario, SETTINGS)


def test_a_flood_of_denials_is_no_flood_of_records(tell, monkeypatch):
    monkeypatch.setattr(audit_topic, "COUNTS_SECONDS", 3600.0)

    async def scenario(world: Any) -> None:
        broker = world.broker
        topic = AuditTopic(broker, "audit", queue_max=3)
        topic.start()
        topic.suppress()
        async with asyncio.timeout(20):
            while "audit" not in broker.metadata.image.topics or (
                broker.partition("audit", 0).high_watermark < 1
            ):
                await asyncio.sleep(0.01)
            partition = broker.partition("audit", 0)
            for _ in range(50):
                topic.suppress()
                await asyncio.sleep(0)
            topic.offer({"timestamp_ms": 1, "outcome": "denied"})
            while partition.high_watermark < 2:
                await asyncio.sleep(0.01)
            await topic.close()
        assert partition.high_watermark == 3
        batches = partition.read(0, 10_000, 3, at_least_one=True, may_block=True)
        assert b"".join(map(bytes, batches.parts)).count(b'"denials_over_limit": 50') == 1

    tell(scenario, SETTINGS)


@pytest.mark.parametrize("days", [-10_000, 10_000])
def test_an_event_of_a_wrong_clock_is_written_with_the_time_of_the_leader(tell, days):
    async def scenario(world: Any) -> None:
        broker = world.broker
        topic = AuditTopic(broker, "audit", queue_max=3)
        now_ms = broker.clock.now_ms()
        topic.offer({"timestamp_ms": max(0, now_ms + days * 86_400_000), "outcome": "denied"})
        topic.start()
        async with asyncio.timeout(20):
            await topic.close()
        partition = broker.partition("audit", 0)
        assert partition.high_watermark == 1
        (stored,) = partition.read(0, 10_000, 1, at_least_one=True, may_block=True).parts
        assert now_ms <= read_header(bytes(stored)).max_timestamp <= broker.clock.now_ms()

    tell(scenario, {**SETTINGS, "audit.log.topic": "audit"})


def test_a_stop_waits_once_for_a_topic_that_cannot_be_written(tell, monkeypatch):
    monkeypatch.setattr(audit_topic, "CLOSE_SECONDS", 0.1)

    async def scenario(world: Any) -> None:
        topic = AuditTopic(world.broker, "..", queue_max=2)
        topic.offer({"timestamp_ms": 1})
        topic.start()
        await topic.flush()
        waits: list[float] = []

        def timeout(seconds: float) -> asyncio.Timeout:
            waits.append(seconds)
            return asyncio.timeout_at(0)

        monkeypatch.setattr(asyncio, "timeout", timeout)
        await topic.close()
        assert waits[0] == 0.0

    tell(scenario, SETTINGS)


def test_a_small_limit_of_messages_loses_no_event(tell):
    async def scenario(world: Any) -> None:
        broker = world.broker
        topic = AuditTopic(broker, "audit", queue_max=300)
        for _ in range(300):
            topic.offer({"timestamp_ms": 1, "principal": "é" * 1024, "client_id": "é" * 1024})
        topic.start()
        async with asyncio.timeout(20):
            await topic.close()
        assert broker.partition("audit", 0).high_watermark == 300

    tell(scenario, {**SETTINGS, "audit.log.topic": "audit", "message.max.bytes": "1000"})
