"""What feeds keep, without a broker."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.client.cluster import Cluster
from runnel.gateway.http.limits import RING_BYTES_MAX
from runnel.gateway.http.records import View
from runnel.gateway.http.streams import feeds
from runnel.gateway.http.streams.feeds import Entry, Feed, FeedKey, Feeds
from runnel.gateway.http.streams.following import _wait_for
from runnel.model.ids import TopicPartition


def a_feed() -> Feed:
    return Feed(Cluster("localhost:1"), FeedKey("t", None, 0, View(bytes(16))), [TopicPartition("t", 0)])


def test_cursors_and_all_encodings_count_for_the_size_of_a_ring() -> None:
    feed = a_feed()
    kept: list[Entry] = []
    for number in range(3000):
        entry = Entry(0, number, b'{"a":1}', "c" * 5_000)
        feed._append(entry)
        kept.append(entry)
    ring = feed.entries(feed._first, 10**9)
    assert ring == kept[-len(ring) :] and len(ring) > 10
    taken = sum(len(each.data) + len(each.cursor) + len(each.event) + len(each.frame) for each in ring)
    assert taken <= RING_BYTES_MAX


def test_waiters_that_time_out_or_are_cancelled_are_forgotten() -> None:
    async def check() -> None:
        feed = a_feed()
        for _ in range(10):
            assert not await feed.changed(0.001)
        waiting = asyncio.create_task(feed.changed(60))
        await asyncio.sleep(0)
        assert len(feed._waiters) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not feed._waiters
        waiting = asyncio.create_task(feed.changed(60))
        await asyncio.sleep(0)
        feed.stop()
        assert await waiting and not feed._waiters

    asyncio.run(check())


def test_a_feed_that_is_stopped_while_it_starts_is_not_waited_for() -> None:
    """It does not know where its partitions end."""

    async def check() -> None:
        feed = a_feed()
        feed.stop()
        found: Any = SimpleNamespace(positions={TopicPartition("t", 0): 7})
        assert [part async for part in _wait_for(feed, found)] == []

    asyncio.run(check())


def test_feeds_are_watched_after_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeds, "FEED_METADATA_S", 0.0)
    caplog.set_level(logging.ERROR, "runnel.gateway")

    class FailsOnce(Cluster):
        asked = 0

        async def refresh(self, *given: Any, **named: Any) -> Any:
            self.asked += 1
            if self.asked == 1:
                raise RuntimeError("a bug")
            return SimpleNamespace(topics=[])

    async def check() -> None:
        cluster = FailsOnce("localhost:1")
        all_of_them = Feeds(cluster)
        feed = a_feed()
        all_of_them._feeds[feed.key] = feed
        all_of_them._watcher = asyncio.create_task(all_of_them._watch())
        async with asyncio.timeout(20):
            while cluster.asked < 3 and not all_of_them._watcher.done():
                await asyncio.sleep(0)
        assert cluster.asked == 3
        assert "not compared with metadata" in caplog.text
        await all_of_them.close()
        assert all_of_them._watcher is None

    asyncio.run(check())


def test_feeds_are_closed_whatever_became_of_their_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async def fails() -> None:
            raise RuntimeError("a bug")

        all_of_them = Feeds(Cluster("localhost:1"))
        feed = a_feed()
        all_of_them._feeds[feed.key] = feed
        all_of_them._watcher = asyncio.create_task(fails())
        await asyncio.sleep(0)
        await all_of_them.close()
        assert feed.is_stopped and not all_of_them._feeds

    asyncio.run(check())
