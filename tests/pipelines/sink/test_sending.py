"""When batches set out: not before their pause is over, not while their leader is busy, and not in vain."""

import asyncio

from runnel.client.accumulator import ProducerIdentity
from runnel.model.ids import TopicPartition
from runnel.pipelines.sink.sending import BatchSender

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class SilentCluster:
    """Leaders that take a request and never answer."""

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
    """Line a batch up that was refused once, and is not to be sent again for a while."""
    await sender.put([(partition, bytearray(b"x"))])
    sender._queues[partition][0].not_before_s = asyncio.get_running_loop().time() + pause_s


def test_a_batch_whose_pause_is_over_waits_for_its_busy_leader_without_asking_again_and_again():
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


def test_a_pause_that_ends_while_leaders_are_looked_up_is_not_missed():
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
