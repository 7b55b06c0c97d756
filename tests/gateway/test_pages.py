"""Every page shows what the cluster has, and shows it as text."""

import asyncio
import time

import pytest

from runnel.gateway.options import GatewayOptions
from runnel.gateway.shared import Shared, SharedByKey
from runnel.testing import Broker
from tests.gateway.conftest import HOSTILE
from tests.gateway.gateways import Visitor, serving

PAGES = {
    "/console/": "The broker is up",
    "/console/topics": "orders",
    "/console/topics?q=ord&sort=size": "orders",
    "/console/topics?internal=1": "__consumer_offsets",
    "/console/topics/orders": "Partition 1",
    "/console/topics/orders/messages": "key-119",
    "/console/topics/orders/messages?at=oldest": "key-0",
    "/console/topics/orders/messages?at=offset&offset=30&partition=1": "key-61",
    "/console/topics/orders/messages?at=time&time=@1790000100000": "key-100",
    "/console/topics/orders/groups": "billing",
    "/console/topics/orders/settings": "cleanup.policy",
    "/console/groups": "billing",
    "/console/groups?sort=lag": "billing",
    "/console/group?id=billing": "orders-1",
    "/console/brokers": "Broker 1",
    "/console/brokers/map": "orders",
    "/console/settings": "Dynamic defaults",
    "/console/settings/1": "log.retention.hours",
    "/console/settings/1?q=retention": "log.retention.ms",
    "/console/transactions": "Transactional ids",
    "/console/dead-letters": "No dead letters",
    "/console/pipelines": "No reports yet",
    "/console/schemas": "No schemas yet",
}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_a_frame_with_its_content(visitor: Visitor, path: str) -> None:
    page, content = visitor.get(path), visitor.content(path)
    assert (page.status, content.status) == (200, 200)
    assert PAGES[path] in content.text
    assert page.text.startswith("<!doctype html>") and "<html" not in content.text
    assert 'id="content"' in page.text
    assert page.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
def test_names_and_records_are_text(visitor: Visitor, path: str) -> None:
    assert "<script>alert" not in visitor.get(path).text
    assert "<script>alert" not in visitor.content(path).text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/console/topics/none", 404),
        ("/console/group?id=none", 404),
        ("/console/group", 404),
        ("/console/topics/orders/messages?partition=7", 404),
        ("/console/topics/orders/messages?at=offset&offset=x", 422),
        ("/console/topics/orders/messages?at=time&time=x", 422),
        ("/console/topics/orders/messages?filter=%2F%28%2F", 422),
        ("/console/settings/x", 404),
        ("/console/nowhere", 404),
        ("/console/static/../app.py", 404),
    ],
)
def test_what_is_not_there_is_said(visitor: Visitor, path: str, status: int) -> None:
    assert visitor.content(path).status == status


def test_hostile_names_have_pages_too(visitor: Visitor) -> None:
    from urllib.parse import quote

    reply = visitor.content(f"/console/group?id={quote(HOSTILE)}")
    assert reply.status == 200
    page = visitor.get(f"/console/group?id={quote(HOSTILE)}").text
    assert "&lt;script&gt;" in page and "<script>alert" not in page


def test_a_frame_does_not_wait_for_a_cluster_that_does_not_answer() -> None:
    with serving(GatewayOptions("127.0.0.1:1")) as visitor:
        page = visitor.get("/console/topics")
        assert page.status == 200 and "data-missing" in page.text
        content = visitor.content("/console/topics")
        assert content.status == 503 and "no broker available" in content.text


def test_the_root_is_the_console_for_people(visitor: Visitor) -> None:
    assert visitor.get("/").headers["location"] == "/console/"
    assert visitor.get("/", Accept="application/json").text == "{}"


def test_throughput_is_json(visitor: Visitor) -> None:
    import json

    columns = json.loads(visitor.get("/console/throughput.json").text)
    assert len({len(column) for column in columns.values()}) == 1


def test_a_list_of_topics_is_paged(broker: Broker, visitor: Visitor) -> None:
    with broker.client() as client:
        for number in range(60):
            client.create_topic(f"topic-{number:02d}", partitions=1)
        # What a page shows may be a second old.
        deadline_s = time.monotonic() + 20
        while 't-topic-59"' not in visitor.content("/console/topics?q=topic-59").text:
            assert time.monotonic() < deadline_s
        first, second = (
            visitor.content("/console/topics?q=topic"),
            visitor.content("/console/topics?q=topic&page=2"),
        )
        assert "t-topic-49" in first.text and "t-topic-50" not in first.text
        assert "t-topic-50" in second.text and "t-topic-49" not in second.text
        for number in range(60):
            client.delete_topic(f"topic-{number:02d}")


def test_one_fetch_serves_all() -> None:
    async def check() -> None:
        calls = 0

        async def fetch() -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.01)
            return calls

        shared = Shared(fetch, 60)
        assert await asyncio.gather(*(shared.get() for _ in range(50))) == [1] * 50
        assert await shared.get() == 1
        shared.invalidate()
        assert await shared.get() == 2

    asyncio.run(check())


def test_a_caller_that_leaves_does_not_end_the_fetch_of_others() -> None:
    async def check() -> None:
        may_end = asyncio.Event()

        async def fetch() -> str:
            await may_end.wait()
            return "value"

        shared = Shared(fetch, 60)
        first, second = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
        await asyncio.sleep(0)
        first.cancel()
        may_end.set()
        assert await second == "value"

    asyncio.run(check())


def test_shared_values_are_bounded() -> None:
    async def check() -> None:
        async def fetch(key: int) -> int:
            return key

        shared: SharedByKey[int, int] = SharedByKey(fetch, 60, 10)
        for key in range(100):
            assert await shared.get(key) == key
        assert len(shared._values) == 10

    asyncio.run(check())


def test_a_value_may_be_stale_while_it_is_fetched_again() -> None:
    async def check() -> None:
        calls = 0

        async def fetch() -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0)
            return calls

        shared = Shared(fetch, 0.0, stale_s=60)
        assert await shared.get() == 1
        while await shared.get() == 1:
            await asyncio.sleep(0)
        shared.invalidate()
        before = calls
        assert await shared.get() > before

    asyncio.run(check())


@pytest.mark.parametrize("digits", ["9" * 60_000, "@" + "9" * 60_000])
def test_a_time_of_any_length_is_refused_at_once(visitor: Visitor, digits: str) -> None:
    """To look for a unit behind each digit would take a minute."""
    for path in ("/console/groups?asof=", "/console/topics/orders/messages?at=time&time="):
        assert visitor.content(path + digits).status == 422
    assert visitor.get("/console/groups?asof=" + digits).status in (200, 422)
