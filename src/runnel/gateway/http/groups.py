"""What a group means to `subscribe` and `ack`: a position in each partition, in order.

    subscribe   read from the committed offset of each partition, or from the start of the log
    ack         commit the offset after the message, unless the group is further

There is no member: each request reads or commits offsets as an administrator would, so that any gateway
serves any request, and nothing is left behind. A message that is not acknowledged is delivered again, to
every client of the group that asks: at least once. Queues (share groups), which lock messages one by one,
have the same two verbs: `deliverable` and `acknowledge`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakValueDictionary

from runnel.client.cluster import Cluster, TopicView
from runnel.client.groups import Groups
from runnel.client.offsets import end_offsets, start_offsets
from runnel.gateway.http.message_ids import MessageId
from runnel.gateway.http.problems import Problem
from runnel.model.ids import TopicPartition


async def deliverable(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where a group reads next."""
    commits = await Groups(cluster).stable_offsets(group, partitions)
    positions = {partition: commits[partition].offset for partition in partitions if partition in commits}
    fresh = [partition for partition in partitions if partition not in positions]
    if fresh:
        positions |= await start_offsets(cluster, fresh)
    return positions


class Acks:
    """Acknowledgements of a gateway, one at a time for each group.

    The committed offset is read and then moved: of two at once, the later commit could be the lower one. Two
    gateways can still do that to a group that they serve at the same time, which reads messages again then.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def acknowledge(
        self, cluster: Cluster, view: TopicView, ids: Iterable[MessageId]
    ) -> dict[int, int]:
        """Commit the positions after messages of one group; the committed offsets by partition."""
        wanted: dict[TopicPartition, int] = {}
        groups: set[str] = set()
        for each in ids:
            if each.topic_id != view.topic_id:
                raise Problem(409, "the topic was deleted and created again since this message was read")
            if each.partition >= len(view.partitions):
                raise Problem(422, "this is not the id of a message of the topic")
            if not each.group:
                raise Problem(422, "the message was read without a group: there is nothing to acknowledge")
            if not each.is_replayed:
                partition = TopicPartition(view.name, each.partition)
                wanted[partition] = max(wanted.get(partition, 0), each.offset + 1)
                groups.add(each.group)
        if len(groups) > 1:
            raise Problem(422, "messages of different groups are acknowledged with a request for each group")
        if not groups:
            return {}
        group = groups.pop()
        lock = self._locks.setdefault(group, asyncio.Lock())
        async with lock:
            return await _commit(cluster, group, wanted)


async def _commit(cluster: Cluster, group: str, wanted: Mapping[TopicPartition, int]) -> dict[int, int]:
    commits = await Groups(cluster).stable_offsets(group, wanted)
    before = {partition: commits[partition].offset if partition in commits else -1 for partition in wanted}
    late = [partition for partition, offset in wanted.items() if offset <= before[partition]]
    if late:
        ends = await end_offsets(cluster, late)
        # The log was truncated since: what is committed is no position in it.
        before |= {partition: -1 for partition in late if before[partition] > ends[partition]}
    # An ack that is late must not move the group back: all that it has read since would come again.
    ahead = {partition: offset for partition, offset in wanted.items() if offset > before[partition]}
    if ahead:
        await Groups(cluster).commit(group, ahead)
    return {each.partition: max(offset, before[each]) for each, offset in wanted.items()}
