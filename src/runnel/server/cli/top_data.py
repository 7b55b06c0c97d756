"""What `runnel top` shows: one reading of a cluster."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from runnel.client.cluster import Cluster, TopicView
from runnel.client.cluster_admin import BrokerView, ClusterAdmin
from runnel.client.errors import ClientError
from runnel.client.groups import GroupListing, Groups
from runnel.client.offsets import end_offsets, start_offsets
from runnel.model.ids import TopicPartition

PARTITIONS_MAX = 2000
"""Offsets of at most this many partitions are read."""

GROUPS_MAX = 100
"""The lag of at most this many groups is read."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group and its lag."""

    name: str
    state: str
    lag: int
    topics: list[str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading."""

    at_s: float
    clock: str
    controller: int
    brokers: list[BrokerView]
    leaders: Counter[int]
    replicas: Counter[int]
    offline: int
    under_replicated: int
    partitions: dict[str, int]
    records: dict[str, int]
    ends: dict[TopicPartition, int]
    groups: list[GroupRow]

    def topic_rates(self, before: "Snapshot") -> dict[str, float]:
        """Records per second of each topic since an earlier reading."""
        seconds = max(self.at_s - before.at_s, 0.001)
        rates: dict[str, float] = {}
        for partition, end in self.ends.items():
            grown = max(end - before.ends.get(partition, end), 0)
            rates[partition.topic] = rates.get(partition.topic, 0.0) + grown / seconds
        return rates

    def rate(self, before: "Snapshot") -> float:
        """Records per second of all topics."""
        return sum(self.topic_rates(before).values())


async def read(cluster: Cluster) -> Snapshot:
    """Read everything that is shown."""
    _, brokers = await ClusterAdmin(cluster).describe()
    topics = await cluster.topics()
    views = [view for topic in topics for view in topic.partitions]
    partitions = _sampled(topics)
    starts, ends = await asyncio.gather(start_offsets(cluster, partitions), end_offsets(cluster, partitions))
    records: dict[str, int] = {}
    for partition, end in ends.items():
        records[partition.topic] = records.get(partition.topic, 0) + end - starts[partition]
    return Snapshot(
        time.monotonic(),
        time.strftime("%H:%M:%S", time.gmtime()),
        cluster.controller_id,
        brokers,
        Counter(view.leader for view in views),
        Counter(node for view in views for node in view.replicas),
        sum(view.leader < 0 for view in views),
        sum(len(view.in_sync) < len(view.replicas) for view in views),
        {topic.name: len(topic.partitions) for topic in topics},
        records,
        ends,
        await _groups(cluster),
    )


def _sampled(topics: list[TopicView]) -> list[TopicPartition]:
    found = [
        TopicPartition(topic.name, view.partition)
        for topic in topics
        if not topic.is_internal
        for view in topic.partitions
        if view.leader >= 0
    ]
    return found[:PARTITIONS_MAX]


async def _groups(cluster: Cluster) -> list[GroupRow]:
    groups = Groups(cluster)
    listed = (await groups.list())[:GROUPS_MAX]
    rows = await asyncio.gather(*(_group(cluster, groups, each) for each in listed))
    return sorted(rows, key=lambda row: (-row.lag, row.name))


async def _group(cluster: Cluster, groups: Groups, listed: GroupListing) -> GroupRow:
    """Commits first, then ends: the lag is never negative."""
    try:
        committed = await groups.committed(listed.group_id)
        ends = await end_offsets(cluster, committed) if committed else {}
    except ClientError:
        # Not permitted, or a topic that it has read was deleted.
        return GroupRow(listed.group_id, listed.state, 0, [])
    lag = sum(max(ends[partition] - commit.offset, 0) for partition, commit in committed.items())
    return GroupRow(listed.group_id, listed.state, lag, sorted({each.topic for each in committed}))
