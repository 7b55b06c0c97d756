"""What feeds keep, without a broker."""

import asyncio

from runnel.client.cluster import Cluster
from runnel.gateway.http.records import View
from runnel.gateway.http.streams.feeds import Feed, FeedKey


def a_feed() -> Feed:
    return Feed(Cluster("localhost:1"), FeedKey("t", None, 0, View(bytes(16))))


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
