"""Messages are found where they are, in the order that a page promises."""

import http.client
import random
import re

import pytest

from runnel.client.offsets import end_offsets, start_offsets
from runnel.gateway.console import message_reading
from runnel.gateway.console.message_reading import (
    Source,
    cursor_text,
    newest,
    onwards,
    read_cursor,
    scan,
)
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.gateway.gateways import Visitor

SHOWN = re.compile(r'data-open="(\d+):(\d+)"')


def shown(html: str) -> list[tuple[int, int]]:
    return [(int(partition), int(offset)) for partition, offset in SHOWN.findall(html)]


@pytest.fixture(scope="module")
def random_topic(broker: Broker):
    """Two partitions with timestamps in order, gaps and large batches."""
    dice = random.Random(7)
    with broker.client() as client:
        client.create_topic("random", partitions=3, settings={"retention.ms": "-1"})
        moment = 1_790_000_000_000
        for _ in range(40):
            moment += dice.randrange(1, 50)
            partition = dice.randrange(3)
            client.send("random", b"%d" % moment, partition=partition, timestamp_ms=moment)
        client.send_all("random", [(b"k%d" % number, b"x" * 100) for number in range(400)])
        yield client


def everything(client) -> list[tuple[int, int, int]]:
    return [(each.timestamp_ms, each.partition, each.offset) for each in client.read("random")]


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_newest_first_is_complete_and_in_order(random_topic, limit: int) -> None:
    async def pages(cluster) -> list[tuple[int, int, int]]:
        partitions = [TopicPartition("random", number) for number in range(3)]
        low = await start_offsets(cluster, partitions)
        high = await end_offsets(cluster, partitions)
        found = []
        while True:
            page = await newest(Source(cluster), low, high, limit)
            found += [(each.timestamp_ms, each.partition, each.offset) for each in page.messages]
            assert len(page.messages) <= limit
            high = read_cursor(cursor_text(page.cursor), "random")
            if not page.has_more:
                return found

    found = random_topic.run(pages)
    assert sorted(found) == sorted(everything(random_topic))
    assert [each[0] for each in found] == sorted((each[0] for each in found), reverse=True)


@pytest.mark.parametrize("limit", [1, 33])
def test_onwards_is_complete_and_in_order(random_topic, limit: int) -> None:
    async def pages(cluster) -> list[tuple[int, int, int]]:
        partitions = [TopicPartition("random", number) for number in range(3)]
        first = await start_offsets(cluster, partitions)
        ends = await end_offsets(cluster, partitions)
        found = []
        while True:
            page = await onwards(Source(cluster), first, ends, limit)
            found += [(each.timestamp_ms, each.partition, each.offset) for each in page.messages]
            first = page.cursor
            if not page.has_more:
                return found

    found = random_topic.run(pages)
    assert sorted(found) == sorted(everything(random_topic))
    assert [each[0] for each in found] == sorted(each[0] for each in found)


@pytest.mark.parametrize("held_bytes", [1, 300, 64 * 1024 * 1024])
def test_a_scan_sees_every_message_once(random_topic, monkeypatch, held_bytes: int) -> None:
    """Also of those that do not fit into memory at the same time."""
    monkeypatch.setattr(message_reading, "HELD_BYTES_MAX", held_bytes)

    async def all_of_it(cluster) -> list[tuple[int, int, int]]:
        partitions = [TopicPartition("random", number) for number in range(3)]
        low = await start_offsets(cluster, partitions)
        high = await end_offsets(cluster, partitions)
        found = []
        async for step in scan(Source(cluster), low, high, lambda message: True):
            found += [(each.timestamp_ms, each.partition, each.offset) for each in step.matches]
        assert step.offsets_done == step.offsets_total
        return found

    assert sorted(random_topic.run(all_of_it)) == sorted(everything(random_topic))


def test_large_messages_are_paged_too(broker: Broker) -> None:
    with broker.client() as client:
        client.create_topic("large", partitions=1)
        for number in range(40):
            client.send("large", b"%02d" % number + b"x" * 900_000)

        async def page(cluster) -> list[int]:
            partition = TopicPartition("large", 0)
            found = await newest(Source(cluster), {partition: 0}, {partition: 40}, 50)
            return [message.offset for message in found.messages]

        offsets = client.run(page)
        assert offsets == list(range(39, 39 - len(offsets), -1)) and len(offsets) >= 10


def test_pages_of_a_topic_lead_to_all_messages(visitor: Visitor) -> None:
    path, found = "/console/topics/orders/messages", []
    while path:
        html = visitor.content(path).text
        found += shown(html)
        link = re.search(r'rel="next" href="([^"]+)"', html)
        path = link[1].replace("&amp;", "&") if link else ""
    assert sorted(found) == sorted((number, offset) for number in (0, 1) for offset in range(61))


@pytest.mark.parametrize(
    ("wanted", "text"), [("", "0xff"), ("json", "�"), ("hex", "ff 00 fe"), ("text", "�")]
)
def test_a_message_is_decoded(visitor: Visitor, wanted: str, text: str) -> None:
    html = visitor.get(f"/console/topics/orders/message?partition=1&offset=60&as={wanted}").text
    assert text in html or "ff 00 fe" in html
    assert "runnel consume orders --partition 1 --from 60" in html


def test_a_message_that_is_gone(visitor: Visitor) -> None:
    assert visitor.get("/console/topics/orders/message?partition=1&offset=999").status == 404
    assert visitor.get("/console/topics/none/message?partition=1&offset=9").status == 404


def events(visitor: Visitor, path: str, until: str) -> list[tuple[str, str]]:
    """The events of a stream, up to one of a name."""
    connection = http.client.HTTPConnection(visitor.host, visitor.port, timeout=20)
    found: list[tuple[str, str]] = []
    try:
        connection.request("GET", path, headers={"Accept": "text/event-stream"})
        response = connection.getresponse()
        assert response.status == 200 and response.headers["content-type"].startswith("text/event-stream")
        name = ""
        data: list[str] = []
        while True:
            line = response.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                name, data = line.removeprefix("event: "), []
            elif line.startswith("data: "):
                data.append(line.removeprefix("data: "))
            elif not line and name:
                found.append((name, "\n".join(data)))
                if name == until:
                    return found
                name = ""
    finally:
        connection.close()


def test_a_search_goes_through_the_whole_topic(visitor: Visitor) -> None:
    found = events(visitor, "/console/topics/orders/search?filter=%24.country%3DDE+%24.id%3E100", "end")
    rows = [place for name, data in found if name == "rows" for place in shown(data)]
    assert sorted(rows) == [(1, offset) for offset in range(50, 60)]
    assert '"done": 122, "total": 122' in found[-2][1]
    hostile = events(visitor, "/console/topics/orders/search?filter=alert", "end")
    assert any("&lt;script&gt;" in data for _, data in hostile)
    assert not any("<script>" in data for _, data in hostile)


def test_a_tail_shows_what_arrives(broker: Broker, visitor: Visitor) -> None:
    import threading

    with broker.client() as client:
        client.create_topic("arriving", partitions=2)
        stop = threading.Event()

        def write() -> None:
            while not stop.wait(0.05):
                client.send("arriving", b"news", key=b"k")
                client.send("arriving", b"noise")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            found = events(visitor, "/console/topics/arriving/tail?filter=news", "rows")
        finally:
            stop.set()
            writer.join()
    assert found[0][0] == "ready" and "news" in found[-1][1] and "noise" not in found[-1][1]
