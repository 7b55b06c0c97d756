"""The lag of groups at their coordinator, against a walk over the whole log, in virtual time."""

import asyncio
from random import Random
from typing import Any

import pytest

from runnel.broker.runtime.group_lag import IDLE_INTERVAL_MS, INTERVAL_MS
from runnel.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from runnel.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from runnel.observe.lag.partitions import BY_RECORD_TIME, NO_RECORD, OPEN_TRANSACTION
from runnel.observe.lag.timeline import COARSE_MS, RECENT_MAX
from tests.broker.lag_world import TOPIC, LagWorld, Transactions, play, records

YEAR_MS = 31_536_000_000
SLACK_MS = 100
"""Requests and reads take some milliseconds."""
ROUND = INTERVAL_MS / 1000


async def check(
    world: LagWorld, committed: int, *, aborted: tuple[int, ...] = (), interval_ms: int = INTERVAL_MS
) -> dict:
    """Compare the group with the log; returns it. Samples are so far apart."""
    reference_ms = await world.reference_ms(committed, aborted)
    found = world.lag()
    [partition] = found["partitions"]
    assert (partition["committed"], found["lag"]) == (committed, partition["end"] - committed)
    lag_ms = partition["lag_seconds"] * 1000
    assert found["lag_seconds"] == partition["lag_seconds"]
    # Old points are a minute apart.
    tolerance_ms = COARSE_MS if reference_ms > RECENT_MAX * 1000 else interval_ms
    assert -INTERVAL_MS - SLACK_MS <= lag_ms - reference_ms <= tolerance_ms + SLACK_MS, (lag_ms, reference_ms)
    return found


def test_a_backfill_is_not_a_year_behind(monkeypatch):
    async def scenario(world: LagWorld) -> None:
        await world.create()
        await world.find("g")
        await world.commit(0)
        await asyncio.sleep(2 * ROUND)
        old_ms = world.incarnation.clock.now_ms() - YEAR_MS
        for second in range(60):
            await world.produce(records(10, old_ms + second * 86_400_000))
            if second % 5 == 0:
                await world.commit(5 * second)
            await asyncio.sleep(1)
        found = await check(world, 275)
        assert found["partitions"][0]["reason"] is None
        assert (found["verdict"], found["forecast"]) == ("lagging", "never")
        # The group catches up.
        for second in range(20):
            await world.commit(275 + 12 * second)
            await asyncio.sleep(1)
            await check(world, 275 + 12 * second)
        found = await check(world, 503)
        assert (found["verdict"], found["forecast"]) == ("ok", "catching up")
        assert found["forecast_seconds"] == pytest.approx(97 / 12, rel=0.2)

    play(monkeypatch, scenario)


def test_a_stopped_consumer(monkeypatch):
    async def scenario(world: LagWorld) -> None:
        await world.create()
        await world.find("g")
        await world.produce(records(3, 0))
        await world.commit(3)
        await asyncio.sleep(2 * ROUND)
        found = await check(world, 3)
        assert (found["lag_seconds"], found["verdict"], found["forecast"]) == (0, "ok", "caught up")
        for second in range(2400):
            await world.produce(records(1, 0))
            await asyncio.sleep(1)
            if second in (0, 5, 30, 300, 1000, 2399):
                found = await check(world, 3)
                if second != 30:
                    assert found["verdict"] == ("ok" if second < 10 else "stopped")
        assert found["forecast"] == "never"
        assert found["lag_seconds"] > 2390
        await world.commit(2003)
        await asyncio.sleep(2 * ROUND)
        await check(world, 2003)
        await world.commit(2403)
        await asyncio.sleep(2 * ROUND)
        found = await check(world, 2403)
        assert (found["lag"], found["lag_seconds"], found["verdict"]) == (0, 0, "ok")

    play(monkeypatch, scenario)


def test_a_transactional_reader(monkeypatch):
    async def scenario(world: LagWorld) -> None:
        await world.create()
        await world.find("g")
        producer = Transactions(world, "tx")
        await producer.open()
        await world.commit(0)
        await asyncio.sleep(2 * ROUND)
        # An open transaction: nothing to read for the group.
        await producer.produce(records(5, 0))
        for _ in range(3):
            await asyncio.sleep(10)
            found = await check(world, 0)
            assert (found["lag"], found["lag_seconds"]) == (5, 0)
            assert found["partitions"][0]["reason"] == OPEN_TRANSACTION
        # It ends: the records have waited since they were appended.
        await producer.end(is_commit=True)
        await asyncio.sleep(3 * ROUND)
        found = await check(world, 0)
        assert found["lag_seconds"] > 30
        # All is read but the marker, which clients do not commit.
        await world.commit(5)
        await asyncio.sleep(60)
        found = await check(world, 5)
        assert (found["lag"], found["lag_seconds"], found["verdict"]) == (1, 0, "ok")
        assert found["partitions"][0]["reason"] == NO_RECORD
        # Only aborted records remain.
        aborted = producer.producer_id
        await producer.produce(records(4, 0))
        await producer.end(is_commit=False)
        await asyncio.sleep(60)
        found = await check(world, 5, aborted=(aborted,))
        assert (found["lag"], found["lag_seconds"]) == (6, 0)
        # A record after them.
        await world.produce(records(1, 0))
        await asyncio.sleep(30)
        found = await check(world, 5, aborted=(aborted,), interval_ms=IDLE_INTERVAL_MS)
        assert found["lag_seconds"] > 28

    play(monkeypatch, scenario)


def test_a_compacted_topic(monkeypatch):
    async def scenario(world: LagWorld) -> None:
        await world.create(
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            segment_ms="300",
            segment_bytes="1048576",
        )
        await world.find("g")
        await world.commit(0)
        await asyncio.sleep(2 * ROUND)
        for number in range(40):
            await world.produce(records(3, world.incarnation.clock.now_ms(), key=b"%d" % (number % 4)))
            await asyncio.sleep(1)
        await world.commit(10)
        for _ in range(120):
            await asyncio.sleep(1)
        # Nothing is left of what the group would have read first.
        log = world.broker.partition(TOPIC, 0)
        reference_ms = await world.reference_ms(10)
        assert reference_ms < world.now_ms - world.appended_ms[60], "the log was not compacted"
        found = await check(world, 10)
        assert found["lag"] == log.high_watermark - 10

    play(monkeypatch, scenario)


def test_records_from_before_the_start_of_the_coordinator(monkeypatch):
    async def before(world: LagWorld) -> None:
        await world.create()
        await world.create("stamped", message_timestamp_type="LogAppendTime")
        await world.find("g")
        for topic in (TOPIC, "stamped"):
            await world.produce(records(10, world.incarnation.clock.now_ms() - 5000), topic)
            await world.commit(4, topic=topic)

    simulation = play(monkeypatch, before)
    began_ms = simulation._seconds * 1000

    async def after(world: LagWorld) -> None:
        await asyncio.sleep(20)
        own, stamped = (
            next(row for row in world.lag()["partitions"] if row["topic"] == topic)
            for topic in (TOPIC, "stamped")
        )
        age_ms = world.now_ms - began_ms
        assert age_ms < stamped["lag_seconds"] * 1000 < age_ms + 2000
        assert own["lag_seconds"] * 1000 > age_ms + 5000
        assert (own["reason"], stamped["reason"]) == (BY_RECORD_TIME, None)

    play(monkeypatch, after, simulation)


async def append(world: LagWorld, random: Random) -> None:
    while True:
        await world.produce(records(random.randrange(1, 9), 0))
        await asyncio.sleep(random.random() * 0.2)


async def consume(world: LagWorld, random: Random, group: str) -> None:
    while True:
        # As soon as it is there.
        await world.commit(world.broker.partition(TOPIC, 0).high_watermark, group)
        await asyncio.sleep(random.random() * 0.2)


async def watch(world: LagWorld, random: Random, groups: list[str]) -> int:
    """Look at the groups for a minute; returns how often a lag was known."""
    count = 0
    until_ms = world.now_ms + 60_000
    while world.now_ms < until_ms:
        await asyncio.sleep(random.random() * 0.1)
        rows = [row for group in groups for row in world.lag(group)["partitions"] if row["lag"] is not None]
        count += len(rows)
        for row in rows:
            assert row["lag"] >= 0 and (row["lag_seconds"] is None or row["lag_seconds"] >= 0)
            assert row["committed"] <= row["end"]
    return count


def test_lag_is_never_negative_while_groups_commit_and_producers_append(monkeypatch):
    async def scenario(world: LagWorld) -> None:
        await world.create()
        groups, random = ["g", "h", "i"], Random(5)
        for group in groups:
            await world.find(group)
            await world.commit(0, group)
        clients = [append(world, random), append(world, random)]
        clients += [consume(world, random, group) for group in groups]
        tasks = [asyncio.ensure_future(client) for client in clients]
        assert await watch(world, random, groups) > 1000
        for task in tasks:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    play(monkeypatch, scenario)


def test_groups_of_both_protocols(monkeypatch):
    async def scenario(world: LagWorld) -> None:
        await world.create()
        for group in ("g", "c"):
            await world.find(group)
        await world.produce(records(5, 0))
        await world.commit(3)
        request = ConsumerGroupHeartbeatRequest(
            "c", "m", rebalance_timeout_ms=10_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
        )
        joined = await world.ask(request, ConsumerGroupHeartbeatResponse)
        assert joined.error_code == 0
        await world.commit(2, "c", generation=joined.member_epoch, member_id="m")
        await asyncio.sleep(2 * ROUND)
        simple, consumer = world.lag("g"), world.lag("c")
        assert (simple["state"], simple["protocol"]) == ("Empty", "classic")
        assert (simple["members"], simple["lag"]) == (0, 2)
        assert (consumer["protocol"], consumer["members"], consumer["lag"]) == ("consumer", 1, 3)
        families: dict[str, dict[Any, Any]]
        families = {each.name: dict(each.samples) for each in world.broker.groups.lags.collect() if each}
        assert families["kafka_consumergroup_members"] == {
            (("consumergroup", "g"),): 0,
            (("consumergroup", "c"),): 1,
        }
        assert sorted(families["kafka_consumergroup_lag_sum"].values()) == [2, 3]

    play(monkeypatch, scenario)


def test_what_is_deleted_is_dropped_and_an_idle_broker_samples_rarely(monkeypatch):
    async def scenario(world: LagWorld) -> None:
        lags = world.broker.groups.lags
        assert lags._timer is None, "there are no groups"
        await world.create()
        await world.create("other")
        for group, topic in (("g", TOPIC), ("g", "other"), ("h", "other")):
            await world.find(group)
            await world.produce(records(5, 0), topic)
            await world.commit(2, group, topic)
        await asyncio.sleep(3 * ROUND)
        assert [row["topic"] for row in world.lag()["partitions"]] == ["other", TOPIC]
        await world.ask(
            DeleteTopicsRequest([DeleteTopicState("other")], ["other"], 1000), DeleteTopicsResponse
        )
        await asyncio.sleep(3 * ROUND)
        assert [row["topic"] for row in world.lag()["partitions"]] == [TOPIC]
        assert set(lags.tracker.partitions) == {(TOPIC, 0)}
        await world.ask(DeleteGroupsRequest(["g"]), DeleteGroupsResponse)
        await asyncio.sleep(3 * ROUND)
        assert not lags.tracker.groups and not lags.tracker.partitions
        rounds = count_rounds(monkeypatch, lags)
        await asyncio.sleep(60)
        assert len(rounds) <= 60_000 / IDLE_INTERVAL_MS + 10

    play(monkeypatch, scenario)


def count_rounds(monkeypatch, lags) -> list[None]:
    rounds: list[None] = []
    sample = lags.sample

    async def counted() -> None:
        rounds.append(None)
        await sample()

    monkeypatch.setattr(lags, "sample", counted)
    return rounds
