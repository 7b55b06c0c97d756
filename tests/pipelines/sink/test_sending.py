"""When batches are sent: after their back-off, and not while a request to their leader is in flight."""

import asyncio

from runnel.client.accumulator import ProducerIdentity
from runnel.model.ids import TopicPartition
from runnel.pipelines.sink.sending import BatchSender

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class SilentCluster:
    """Leaders that accept a request and never respond."""

    timeout_s = 5.0

    def __init__(self, leaders: dict[TopicPartition, int], lookup_s: float = 0) -> None:
        self._leaders, self._lookup_s = leaders, lookup_s
        self.lookups = 0
        self.visited: set[int] = set()
        self.visit = asyncio.Event()

    async def leader(self, partition: TopicPartition) -> int:
        self.lookups += 1
        await asyncio.sleep(self._lookup_s)
        return self._leaders[partition]

    async def connection(self, leader: int) -> None:
        self.visited.add(leader)
        self.visit.set()
        await asyncio.Event().wait()


async def paused(sender: BatchSender, partition: TopicPartition, pause_s: float) -> None:
    """Enqueue a batch that was rejected once and is backing off."""
    await sender.put([(partition, bytearray(b"x"))])
    sender._queues[partition][0].retry_at_s = asyncio.get_running_loop().time() + pause_s


def test_a_batch_that_is_due_waits_for_the_request_in_flight_without_spinning():
    async def play() -> None:
        cluster = SilentCluster({FIRST: 1, SECOND: 1})
        sender = BatchSender(cluster, ProducerIdentity(1, 0), timeout_s=60)  # type: ignore[arg-type]
        await sender.put([(FIRST, bytearray(b"x"))])
        await cluster.visit.wait()
        await paused(sender, SECOND, -0.001)
        for _ in range(300):
            await asyncio.sleep(0)
        assert cluster.lookups < 10
        await sender.close()

    asyncio.run(play())


def test_a_back_off_that_ends_during_leader_lookup_is_not_missed():
    async def play() -> None:
        cluster = SilentCluster({FIRST: 1, SECOND: 2}, lookup_s=0.05)
        sender = BatchSender(cluster, ProducerIdentity(1, 0), timeout_s=60)  # type: ignore[arg-type]
        await paused(sender, SECOND, 0.01)
        await sender.put([(FIRST, bytearray(b"x"))])
        async with asyncio.timeout(20):
            while cluster.visited != {1, 2}:
                cluster.visit.clear()
                await cluster.visit.wait()
        await sender.close()

    asyncio.run(play())
