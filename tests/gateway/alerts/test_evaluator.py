"""The evaluator against a real broker, with local metrics and a local webhook: restarts and failures."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.producer import Producer
from runnel.gateway.alerts import evaluator as module
from runnel.gateway.alerts.config import parsed_config
from runnel.gateway.alerts.evaluator import HOLDER, Evaluator, EvaluatorOptions, SteadyClock, run
from runnel.gateway.alerts.state_topic import TOPIC, StoredRecords, read_records, write_silence
from runnel.model.configs import ResourceType
from runnel.observe.alerts.silences import Silence, parse_matcher
from runnel.testing import Broker
from tests.gateway.alerts.servers import Metrics, Webhook, metrics, webhook

QUIET = "kafka_server_replicamanager_underminisrpartitioncount 0\n"
ALARM = "kafka_server_replicamanager_underminisrpartitioncount 3\n"
RULE = "UnderMinIsrPartitions"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"transaction.state.log.num.partitions": 2}) as broker:
        yield broker


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


@pytest.fixture
def scraped() -> Iterator[Metrics]:
    with metrics() as scraped:
        scraped.text = QUIET
        yield scraped


@pytest.fixture(autouse=True)
def short_lease(monkeypatch):
    monkeypatch.setattr(module, "LEASE_MIN_S", 0.6)


def options(broker: Broker, hook: Webhook, scraped: Metrics, **more: str) -> EvaluatorOptions:
    settings, receivers = parsed_config(
        {
            "alerts.interval": "100ms",
            "alerts.group.wait": "0",
            "alerts.group.interval": "100ms",
            f"alerts.{RULE}.for": "200ms",
            "alerts.admin.addresses": f"1=127.0.0.1:{scraped.port}",
            "alerts.receiver.ops.type": "webhook",
            "alerts.receiver.ops.url": hook.url,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )
    return EvaluatorOptions(broker.bootstrap_servers, {}, settings, receivers)


@asynccontextmanager
async def running(given: EvaluatorOptions) -> AsyncIterator[Evaluator]:
    evaluator = Evaluator(given)
    task = asyncio.create_task(run(evaluator))
    try:
        yield evaluator
    finally:
        evaluator.stop()
        await task


async def kill(task: asyncio.Task[None]) -> None:
    """End as by a crash: no outcome is stored any more, and no other evaluator is informed."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def eventually(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


async def records_when(broker: Broker, condition: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    async with asyncio.timeout(30), Cluster(broker.bootstrap_servers) as cluster:
        while not condition(records := await read_records(cluster)):
            await asyncio.sleep(0.05)
        return records


def notified(records: dict[str, str]) -> Any:
    [text] = [text for key, text in records.items() if key.startswith("group/")]
    return json.loads(text)["notified"].get("ops", {})


def has_group(records: dict[str, str]) -> bool:
    return any(key.startswith("group/") for key in records)


def played(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 100))


def test_an_alert_is_delivered_once_and_its_resolution_once(broker, hook, scraped):
    async def scenario() -> None:
        async with running(options(broker, hook, scraped)) as evaluator:
            await eventually(lambda: evaluator.is_active and scraped.scrapes > 2)
            scraped.text = ALARM
            await asyncio.to_thread(hook.wait_for, 1)
            scrapes = scraped.scrapes
            await eventually(lambda: scraped.scrapes > scrapes + 10)
            assert hook.statuses == ["firing"]
            scraped.text = QUIET
            await asyncio.to_thread(hook.wait_for, 2)
        assert hook.statuses == ["firing", "resolved"]
        [alert] = hook.bodies[0]["alerts"]
        assert alert["labels"] == {"alertname": RULE, "severity": "critical", "broker": "1"}
        assert alert["annotations"]["summary"] == "Partitions of broker 1 with too few in-sync replicas: 3"
        # Another one begins where it has ended.
        records = await records_when(broker, lambda records: HOLDER not in records)
        assert notified(records)["firing"] == []

    played(scenario)


def test_a_restart_neither_repeats_nor_loses_a_notification(broker, hook, scraped):
    async def scenario() -> None:
        given = options(broker, hook, scraped)
        scraped.text = ALARM
        async with running(given):
            await asyncio.to_thread(hook.wait_for, 1)
        async with running(given) as evaluator:
            scrapes = scraped.scrapes
            await eventually(lambda: evaluator.is_active and scraped.scrapes > scrapes + 10)
            assert hook.statuses == ["firing"]
        # It is resolved while no evaluator runs.
        scraped.text = QUIET
        async with running(given):
            await asyncio.to_thread(hook.wait_for, 2)
        assert hook.statuses == ["firing", "resolved"]
        fingerprints = {alert["fingerprint"] for body in hook.bodies for alert in body["alerts"]}
        assert len(fingerprints) == len({body["groupKey"] for body in hook.bodies}) == 1

    played(scenario)


def test_a_crash_before_a_delivery_is_stored_repeats_it_and_pending_times_go_on(broker, hook, scraped):
    async def scenario() -> None:
        given = options(broker, hook, scraped, **{f"alerts_{RULE}_for": "3s"})
        scraped.text = ALARM
        first = Evaluator(given)
        task = asyncio.create_task(first.run())
        records = await records_when(broker, lambda found: any("pending" in text for text in found.values()))
        [pending] = [json.loads(text) for key, text in records.items() if key.startswith("alert/")]
        await kill(task)
        second = Evaluator(given)
        # Delivered, but never stored: the next evaluator cannot know.
        second._delivered = lambda notification, error: None  # type: ignore[method-assign]
        task = asyncio.create_task(second.run())
        await eventually(lambda: bool(second.alerting.alerts))
        [alert] = second.alerting.alerts.values()
        assert alert.active_ms == pending["active_ms"]
        await asyncio.to_thread(hook.wait_for, 1)
        await kill(task)
        async with running(given):
            await asyncio.to_thread(hook.wait_for, 2)
            records = await records_when(
                broker, lambda found: has_group(found) and bool(notified(found)["firing"])
            )
        assert hook.statuses == ["firing", "firing"]
        starts = {alert["startsAt"] for body in hook.bodies for alert in body["alerts"]}
        assert len(starts) == len({body["groupKey"] for body in hook.bodies}) == 1

    played(scenario)


def test_failures_are_retried_and_visible_and_do_not_stop_the_evaluation(broker, hook, scraped, monkeypatch):
    monkeypatch.setattr("runnel.observe.alerts.groups.RETRY_MIN_MS", 100)

    async def scenario() -> None:
        hook.status = 500
        scraped.text = ALARM
        async with running(options(broker, hook, scraped)):
            records = await records_when(
                broker, lambda found: has_group(found) and notified(found).get("attempts", 0) >= 2
            )
            assert notified(records)["error"] == "HTTP status 500 Internal Server Error"
            scrapes = scraped.scrapes
            await eventually(lambda: scraped.scrapes > scrapes + 3)
            hook.status = 200
            await asyncio.to_thread(hook.wait_for, 1)
            await records_when(broker, lambda found: notified(found)["error"] is None)

    played(scenario)


def test_of_two_evaluators_one_is_active_and_the_other_takes_over(broker, hook, scraped):
    async def scenario() -> None:
        given = options(broker, hook, scraped)
        scraped.text = ALARM
        first, second = Evaluator(given), Evaluator(given)
        tasks = {each: asyncio.create_task(run(each)) for each in (first, second)}
        await asyncio.to_thread(hook.wait_for, 1)
        # If both began at once, one of them is fenced by its first transaction.
        await eventually(lambda: first.is_active != second.is_active)
        scrapes = scraped.scrapes
        await eventually(lambda: scraped.scrapes > scrapes + 10)
        assert hook.statuses == ["firing"]
        active, other = (first, second) if first.is_active else (second, first)
        assert not other.is_active
        await kill(tasks[active])
        await eventually(lambda: other.is_active)
        scraped.text = QUIET
        await asyncio.to_thread(hook.wait_for, 2)
        other.stop()
        await tasks[other]
        assert hook.statuses == ["firing", "resolved"]

    played(scenario)


def test_an_evaluator_that_was_replaced_stops_writing(broker, hook, scraped):
    async def scenario() -> None:
        given = options(broker, hook, scraped)
        async with running(given) as first:
            await eventually(lambda: first.is_active)
            await records_when(broker, lambda found: HOLDER in found)
            # Paused for so long that another one takes over.
            first._round = lambda *arguments: asyncio.sleep(0.05)  # type: ignore[method-assign]
            async with running(given) as second:
                await eventually(lambda: second.is_active)
                del first._round
                await eventually(lambda: not first.is_active)
                records = await records_when(broker, lambda found: second.instance in found.get(HOLDER, ""))
                assert json.loads(records[HOLDER])["term"] == 2
            # And takes over again when that one ends.
            await eventually(lambda: first.is_active)

    played(scenario)


def test_silences_are_read_while_it_runs(broker, hook, scraped):
    async def scenario() -> None:
        now_ms = time.time_ns() // 1_000_000
        silence = Silence(
            "s1", (parse_matcher(f"alertname={RULE}"),), now_ms, now_ms + 600_000, "test", "anna"
        )
        async with Cluster(broker.bootstrap_servers) as cluster:
            async with running(options(broker, hook, scraped)) as evaluator:
                await eventually(lambda: evaluator.is_active)
                await write_silence(cluster, silence)
                await eventually(lambda: "s1" in evaluator.alerting.silences)
                scraped.text = ALARM
                await eventually(
                    lambda: [alert.state for alert in evaluator.alerting.alerts.values()] == ["firing"]
                )
                scrapes = scraped.scrapes
                await eventually(lambda: scraped.scrapes > scrapes + 5)
                assert hook.statuses == []
                await write_silence(cluster, silence.expired(time.time_ns() // 1_000_000))
                await asyncio.to_thread(hook.wait_for, 1)
            assert "s1" in "".join(await read_records(cluster))

    played(scenario)


def test_no_silence_is_lost_while_it_stores_states(broker, hook, scraped):
    async def scenario() -> None:
        now_ms = time.time_ns() // 1_000_000
        matchers = (parse_matcher("alertname=Other"),)
        async with (
            Cluster(broker.bootstrap_servers) as cluster,
            running(options(broker, hook, scraped, alerts_interval="20ms")) as evaluator,
        ):
            await eventually(lambda: evaluator.is_active)
            for number in range(60):
                silence = Silence(f"s{number}", matchers, now_ms, now_ms + 600_000, "test", "anna")
                await write_silence(cluster, silence)
            await eventually(lambda: len(evaluator.alerting.silences) == 60)
            scrapes = scraped.scrapes
            await eventually(lambda: scraped.scrapes > scrapes + 5)
            kept = [key for key in await read_records(cluster) if key.startswith("silence/")]
        assert len(kept) == 60

    played(scenario)


def test_a_cluster_that_is_down_is_reported(broker, hook, scraped, monkeypatch):
    monkeypatch.setattr(module, "STORE_WAIT_S", 0.3)
    monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 1.0)

    async def scenario() -> None:
        given = options(broker, hook, scraped, alerts_BrokerDown_for="200ms")
        async with running(given) as evaluator:
            await eventually(lambda: evaluator.is_active and scraped.scrapes > 2)
            scraped.text = None
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(hook.wait_for, 1)
            assert hook.bodies[0]["groupLabels"] == {"alertname": "BrokerDown"}
            scraped.text = QUIET
            await asyncio.to_thread(broker.start)
            await asyncio.to_thread(hook.wait_for, 2)
            assert hook.statuses == ["firing", "resolved"]
            # What could not be stored is stored then.
            records = await records_when(
                broker, lambda found: has_group(found) and notified(found)["firing"] == []
            )
            assert records[HOLDER]

    played(scenario)


def test_the_topic_is_compacted(broker, hook, scraped):
    async def scenario() -> None:
        async with running(options(broker, hook, scraped)) as evaluator:
            await eventually(lambda: evaluator.is_active)

    played(scenario)
    with broker.client() as client:
        found = client.run(
            lambda cluster: Admin(cluster).settings(ResourceType.TOPIC, TOPIC, keys=["cleanup.policy"])
        )
    assert [each.value for each in found] == ["compact"]


def test_readers_read_what_is_new(broker):
    """Not all of it again, as long as the topic is the same one."""

    async def scenario(client: Cluster) -> None:
        admin, stored = Admin(client), StoredRecords(client, ("alert/", "silence/"))
        for attempt in range(2):
            await admin.create_topic(TOPIC, partitions=1, settings={"cleanup.policy": "compact"})
            async with Producer(client) as producer:
                for key, value in (("alert/1", b"a"), ("history/1", b"h"), ("alert/2", b"b")):
                    await producer.send_and_wait(TOPIC, value, key=key.encode(), partition=0)
                assert await stored.read() == {"alert/1": "a", "alert/2": "b"}
                if attempt == 0:
                    await producer.send_and_wait(TOPIC, None, key=b"alert/1", partition=0)
                    await producer.send_and_wait(TOPIC, b"c", key=b"alert/2", partition=0)
                    assert await stored.read() == {"alert/2": "c"}
                    assert stored._position == 5
            await admin.delete_topic(TOPIC)

    with broker.client() as client:
        client.run(scenario)


def test_the_clock_never_goes_back(monkeypatch):
    clock = SteadyClock()
    before = clock.now_ms()
    clock.at_least(before + 10_000)
    assert clock.now_ms() >= before + 10_000
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert clock.now_ms() >= before + 10_000
