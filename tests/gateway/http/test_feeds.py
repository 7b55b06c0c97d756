"""What feeds keep, without a broker."""

import asyncio

from runnel.client.cluster import Cluster
from runnel.gateway.http.limits import RING_BYTES_MAX
from runnel.gateway.http.records import View
from runnel.gateway.http.streams.feeds import Entry, Feed, FeedKey
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
