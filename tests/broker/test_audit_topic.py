"""The queue of the audit topic: bounded, and what is lost is counted."""

import asyncio
import logging
from typing import Any

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


def test_denials_over_the_limit_do_not_lead_to_a_write_each(tell, monkeypatch):
    monkeypatch.setattr("runnel.broker.runtime.audit_topic.COUNTS_INTERVAL_SECONDS", 3600.0)

    async def scenario(world: Any) -> None:
        topic = AuditTopic(world.broker, "audit", queue_max=100)
        topic.start()
        topic.suppress()
        async with asyncio.timeout(20):
            while "audit" not in world.broker.metadata.image.topics or not end_of(world):
                await asyncio.sleep(0)
            for number in range(50):
                topic.suppress()
                if number % 10 == 0:
                    topic.offer({"timestamp_ms": 1, "outcome": "denied"})
                while topic._queue or topic._writing:
                    await asyncio.sleep(0)
            assert end_of(world) == 6
            await topic.close()
        assert end_of(world) == 7
        batches = world.broker.partition("audit", 0).read(0, 10_000, 7, at_least_one=True, may_block=True)
        assert b'"denials_over_limit": 50' in b"".join(map(bytes, batches.parts))

    def end_of(world: Any) -> int:
        return int(world.broker.partition("audit", 0).high_watermark)

    tell(scenario, SETTINGS)
