"""The console in Chromium: every page and every action, on a desk and on a phone, by day and by night."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.groups import Groups
from runnel.client.producer import Producer
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.gateway.browsers import MARKS, seen_as, violations
from tests.gateway.conftest import HOSTILE

pytestmark = MARKS

PAGES = {
    "": "Throughput",
    "topics": "orders",
    "topics/orders": "Partition 2",
    "topics/orders/messages": "c96",
    "topics/orders/groups": "billing",
    "topics/orders/settings": "cleanup.policy",
    "groups": "billing",
    "group?id=billing": "orders-1",
    "brokers": "Broker 3",
    "brokers/map": "orders",
    "settings": "Dynamic defaults",
    "settings/1?q=retention": "log.retention.ms",
    "transactions": "Transactional ids",
    "pipelines": "No reports yet",
    "schemas": "No schemas yet",
    "alerts": "not evaluated yet",
    "dead-letters": "orders.dead-letters",
    "dead-letters/orders.dead-letters": "not JSON",
}


async def seed(bootstrap: str) -> None:
    """Topics, records, dead letters and groups."""
    async with Cluster(bootstrap) as cluster:
        admin = Admin(cluster)
        for name, partitions in (("orders", 3), ("clicks", 3), ("orders.dead-letters", 1)):
            await admin.create_topic(name, partitions=partitions, replication_factor=3)
        async with Producer(cluster) as producer:
            sent = []
            now_ms = int(time.time() * 1000)
            for number in range(600):
                value = {"id": number, "country": ("DE", "FR")[number % 2], "total": number % 500}
                key, stamp = b"c%d" % (number % 97), now_ms - (600 - number) * 1000
                headers = [("trace", b"%d" % number)]
                order = json.dumps(value).encode()
                sent.append(
                    await producer.send("orders", order, key=key, headers=headers, timestamp_ms=stamp)
                )
            attack = HOSTILE.encode() + b"<img src=x onerror=\"document.title='owned'\">"
            hostile = [(HOSTILE, attack)]
            sent.append(await producer.send("orders", attack, key=attack, headers=hostile))
            reason = [("runnel.dead-letter.reason", b"not JSON"), ("runnel.dead-letter.topic", b"orders")]
            sent.append(await producer.send("orders.dead-letters", attack, headers=reason))
            await asyncio.gather(*sent)
        for group in ("billing", HOSTILE):
            committed = {TopicPartition("orders", number): 20 for number in range(3)}
            await Groups(cluster).commit(group, committed)


@contextmanager
def load(bootstrap: str) -> Iterator[None]:
    """Records that arrive all the time."""
    stop = threading.Event()

    async def write() -> None:
        async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
            while not stop.is_set():
                await producer.send_and_wait("clicks", b'{"page": "/home"}')
                await asyncio.sleep(0.1)

    thread = threading.Thread(target=lambda: asyncio.run(write()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def console() -> Iterator[Broker]:
    with Broker(nodes=3, gateway=True) as broker:
        asyncio.run(seed(broker.bootstrap_servers))
        with load(broker.bootstrap_servers):
            yield broker


def look_at(console: Broker, page, sights: list[tuple[str, str]]) -> None:
    """Every page in these sizes and themes: complete, accessible, and not wider than the screen."""
    for path, text in PAGES.items():
        page.goto(f"{console.gateway_url}console/{path}")
        page.locator("#content").get_by_text(text).first.wait_for()
        if path.endswith("/messages"):
            page.locator("#histogram svg:visible").wait_for()
        for size, theme in sights:
            seen_as(page, size, theme)
            assert violations(page) == [], (path, size, theme)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} px too wide on a {size}"
    assert page.title() != "owned"


@pytest.mark.long
def test_every_page_on_a_desk_by_day_and_a_phone_by_night(console: Broker, page) -> None:
    look_at(console, page, [("desk", "light"), ("phone", "dark")])


@pytest.mark.long
def test_every_page_on_a_desk_by_night_and_a_phone_by_day(console: Broker, page) -> None:
    look_at(console, page, [("desk", "dark"), ("phone", "light")])


def test_axe_objects_to_what_cannot_be_read(console: Broker, page) -> None:
    page.goto(f"{console.gateway_url}console/login")
    page.wait_for_url("**/console/")
    page.evaluate("document.querySelector('h1').style.color = '#ddd'")
    assert any(found.startswith("color-contrast") for found in violations(page))


def test_create_produce_filter_tail_and_delete(console: Broker, page) -> None:
    url = f"{console.gateway_url}console/topics"
    page.goto(url)
    page.get_by_role("button", name="Create topic").click()
    page.locator("dialog input[name=name]").fill("tea")
    assert violations(page) == []
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/console/topics/tea")
    page.get_by_text("created topic tea").wait_for()
    page.get_by_role("link", name="Messages").click()
    page.get_by_role("button", name="Live tail").click()
    page.get_by_role("button", name="Produce").click()
    page.locator("dialog input[name=key]").fill("anna")
    page.locator("dialog textarea[name=value]").fill('{"cups": 2}')
    page.locator("dialog").get_by_role("button", name="Produce").click()
    page.get_by_text("produced to tea-").wait_for()
    page.locator("#content tr[data-open]").first.wait_for()
    page.locator("#content tr[data-open] button").first.click()
    page.locator("dialog").get_by_text('"cups": 2').first.wait_for()
    assert "open=" in page.url
    assert violations(page) == []
    page.locator("dialog").get_by_role("button", name="hex").click()
    page.locator("dialog").get_by_text("00000000").first.wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="detached")
    page.locator("input[name=filter]").fill("$.cups=2")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("Done: 1 found").wait_for()
    assert "filter=" in page.url
    page.get_by_role("button", name="Delete topic").click()
    page.locator("dialog input[name=confirm]").fill("tea")
    page.locator("dialog").get_by_role("button", name="Delete topic").click()
    page.wait_for_url("**/console/topics")


def test_search_reset_keys_and_theme(console: Broker, page) -> None:
    page.goto(f"{console.gateway_url}console/topics")
    page.get_by_role("link", name="clicks").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.wait_for_url("**q=ord*")
    page.get_by_role("link", name="clicks").wait_for(state="detached")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.wait_for_url("**/console/groups")
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="billing").click()
    page.get_by_role("button", name="Reset offsets").click()
    page.locator("dialog").get_by_role("button", name="Preview").click()
    page.locator("dialog").get_by_role("button", name="Reset 3 offsets").click()
    page.get_by_text("reset 3 offsets of group billing").wait_for()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_a_line_that_is_down_is_told_and_recovers(console: Broker, page) -> None:
    page.goto(f"{console.gateway_url}console/topics")
    page.get_by_role("link", name="clicks").wait_for()
    page.context.set_offline(True)
    page.get_by_text("Connection lost").wait_for()
    page.context.set_offline(False)
    page.locator("#line-down").wait_for(state="hidden")
    # The browser itself reports what failed meanwhile.
    assert all("ERR_INTERNET_DISCONNECTED" in fault or "fetch" in fault for fault in page.faults)
    page.faults.clear()


def test_attacks_in_records_and_names_are_text(console: Broker, page) -> None:
    page.goto(f"{console.gateway_url}console/topics/orders/messages?filter=alert")
    page.get_by_text("Done: 1 found").wait_for()
    page.locator("#content tr[data-open] button").first.click()
    page.locator("dialog").get_by_text("<script>alert").first.wait_for()
    page.goto(f"{console.gateway_url}console/groups")
    page.get_by_role("link", name=HOSTILE).click()
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page.goto(f"{console.gateway_url}console/dead-letters/orders.dead-letters")
    page.get_by_text("<script>alert").first.wait_for()
    assert page.title() != "owned"
