"""Records over time: by lookups of offsets, against counting the records."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.client.cluster import Cluster
from runnel.client.offsets import READ_UNCOMMITTED
from runnel.gateway import time_histogram as module
from runnel.gateway.options import GatewayOptions
from runnel.gateway.time_histogram import Interval, Stretch, edges_between, time_histogram
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.gateway.gateways import Visitor, serving

START_MS = 1_790_000_000_000
MINUTE_MS = 60_000
TOPIC = "clicks"
# The second partition is out of order, the third one is empty.
TIMES = {
    0: [START_MS + number * MINUTE_MS // 2 for number in range(120)],
    1: [START_MS + (number * 37 % 60) * MINUTE_MS for number in range(60)],
    2: [],
}


@pytest.fixture(scope="module")
def clicks() -> Iterator[Broker]:
    with Broker() as broker, broker.client() as client:
        client.create_topic(TOPIC, partitions=3, settings={"retention.ms": "-1"})
        for partition, times in TIMES.items():
            for at_ms in times:
                client.send(TOPIC, b"x", partition=partition, timestamp_ms=at_ms)
        yield broker


@pytest.fixture(scope="module")
def visitor(clicks: Broker) -> Iterator[Visitor]:
    with serving(GatewayOptions(clicks.bootstrap_servers)) as found:
        yield found


def counted(broker: Broker, until_ms: int | None = None) -> list[Interval] | None:
    async def run() -> list[Interval] | None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            partitions = tuple(TopicPartition(TOPIC, number) for number in TIMES)
            return await time_histogram(cluster, Stretch(partitions, READ_UNCOMMITTED, until_ms))

    return asyncio.run(run())


def first_since(times: list[int], at_ms: int) -> int:
    return next((offset for offset, each in enumerate(times) if each >= at_ms), len(times))


@given(st.integers(0, 4 * 10**12), st.integers(0, 10**12), st.integers(4, 60))
def test_edges_are_few_and_reach_around_all(first_ms: int, span_ms: int, count: int) -> None:
    edges = edges_between(first_ms, first_ms + span_ms, count)
    assert edges[0] <= first_ms < edges[1] and edges[-2] <= first_ms + span_ms < edges[-1]
    assert edges == sorted(set(edges)) and len(edges) <= count + 2


def test_intervals_are_those_of_counting(clicks: Broker) -> None:
    found = counted(clicks)
    assert found is not None and len(found) > 20
    for each in found:
        expected = sum(
            first_since(times, each.end_ms) - first_since(times, each.start_ms) for times in TIMES.values()
        )
        assert each.count == expected, each
    assert sum(each.count for each in found) == sum(map(len, TIMES.values()))


def test_what_came_later_is_left_out(clicks: Broker) -> None:
    until_ms = START_MS + 20 * MINUTE_MS
    found = counted(clicks, until_ms)
    assert found is not None and found[-1].start_ms <= until_ms
    assert sum(each.count for each in found) == sum(first_since(times, until_ms) for times in TIMES.values())
    assert counted(clicks, START_MS - 1) == []


def test_many_partitions_have_fewer_intervals_or_none(clicks: Broker, monkeypatch) -> None:
    monkeypatch.setattr(module, "LOOKUPS_MAX", 30)
    found = counted(clicks)
    assert found is not None and len(found) <= 12
    monkeypatch.setattr(module, "LOOKUPS_MAX", 9)
    assert counted(clicks) is None


def test_bars_lead_to_their_records(visitor: Visitor) -> None:
    page = visitor.content(f"/console/topics/{TOPIC}/messages").text
    assert f'hx-get="/console/topics/{TOPIC}/histogram"' in page
    drawn = visitor.get(f"/console/topics/{TOPIC}/histogram?partition=0").text
    at_ms = START_MS // (2 * MINUTE_MS) * 2 * MINUTE_MS
    assert f"/console/topics/{TOPIC}/messages?at=time&amp;time=%40{at_ms}&amp;partition=0" in drawn
    assert "style=" not in drawn
    shown = visitor.content(
        f"/console/topics/{TOPIC}/messages?at=time&time=%40{START_MS + 1}&partition=0"
    ).text
    assert "Message 1 of partition 0" in shown and "Message 0 of partition 0" not in shown


def test_messages_as_of_a_time(visitor: Visitor) -> None:
    as_of = f"asof=%40{START_MS + 10 * MINUTE_MS}"
    content = visitor.content(f"/console/topics/{TOPIC}/messages?partition=0&{as_of}").text
    assert "Message 19 of partition 0" in content and "Message 20 of partition 0" not in content
    page = visitor.get(f"/console/topics/{TOPIC}/messages?partition=0&{as_of}").text
    assert "Back to now" in page and "Live tail" not in page
    assert "As of <strong>2026-09-21 14:23:20 UTC</strong>" in page
    before = visitor.content(f"/console/topics/{TOPIC}/messages?asof=2020-01-01").text
    assert "topic is empty" in before
    # In UTC, as all times of the console.
    utc = visitor.content(f"/console/topics/{TOPIC}/messages?partition=0&asof=2026-09-21T14:23:20").text
    assert "Message 19 of partition 0" in utc and "Message 20 of partition 0" not in utc
    for wrong in ("tomorrow", "9999999999999999999", "%40253402300800001", "-1"):
        assert visitor.content(f"/console/topics/{TOPIC}/messages?asof={wrong}").status == 422


def test_a_search_as_of_a_time(visitor: Visitor) -> None:
    query = f"filter=x&partition=0&asof=%40{START_MS + 10 * MINUTE_MS}"
    found = visitor.get(f"/console/topics/{TOPIC}/search?{query}").text
    assert '"matches": 20' in found
