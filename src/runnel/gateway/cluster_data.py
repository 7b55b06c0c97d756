"""What pages show of a cluster: fetched with the rights of one user, shared by all tabs of that user."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from runnel.client.admin import Admin
from runnel.client.admin_listener import Address, find, read
from runnel.client.cluster import Cluster, PartitionView, TopicView
from runnel.client.cluster_admin import BrokerView, ClusterAdmin, QuorumView
from runnel.client.errors import ClientError
from runnel.client.groups import GroupListing, Groups
from runnel.client.http_get import GetFailed
from runnel.client.offsets import end_offsets, start_offsets
from runnel.gateway.alerts.state_topic import StoredRecords
from runnel.gateway.lag import GroupLag, LagSummary, group_lag, lag_of, lag_summaries
from runnel.gateway.shared import Shared, SharedByKey
from runnel.gateway.throughput import Throughput, Totals
from runnel.gateway.time_histogram import Interval, Stretch, time_histogram
from runnel.model.ids import TopicPartition
from runnel.observe.alerts.alert import PREFIX as ALERT
from runnel.observe.alerts.silences import PREFIX as SILENCE

SAMPLED_PARTITIONS_MAX = 2000
"""End offsets of at most this many partitions are sampled; above, brokers' own counters are needed."""

LAGS_MAX = 500
HISTOGRAMS_MAX = 50
_METRICS = {
    b"kafka_server_brokertopicmetrics_messagesin_total": "records",
    b"kafka_server_brokertopicmetrics_bytesin_total": "bytes_in",
    b"kafka_server_brokertopicmetrics_bytesout_total": "bytes_out",
}


@dataclass(frozen=True)
class Catalogue:
    """All topics that the user is permitted to see, and what is wrong with their partitions."""

    topics: list[TopicView]
    by_name: dict[str, TopicView] = field(default_factory=dict)

    @cached_property
    def offline(self) -> list[TopicPartition]:
        """Partitions without a leader."""
        return self._partitions(lambda view: view.leader < 0)

    @cached_property
    def under_replicated(self) -> list[TopicPartition]:
        """Partitions with replicas that are not in sync."""
        return self._partitions(lambda view: len(view.in_sync) < len(view.replicas))

    @cached_property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics)

    @cached_property
    def leaders(self) -> Counter[int]:
        """Leaders of each broker."""
        return Counter(view.leader for topic in self.topics for view in topic.partitions)

    @cached_property
    def replicas(self) -> Counter[int]:
        """Replicas of each broker."""
        return Counter(node for topic in self.topics for view in topic.partitions for node in view.replicas)

    def _partitions(self, is_wanted: Callable[[PartitionView], bool]) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, view.partition)
            for topic in self.topics
            for view in topic.partitions
            if is_wanted(view)
        ]


@dataclass(frozen=True, slots=True)
class Brokers:
    """The cluster id and all registered brokers."""

    cluster_id: str
    brokers: list[BrokerView]

    @property
    def fenced(self) -> list[BrokerView]:
        return [broker for broker in self.brokers if broker.is_fenced]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes on disk over all replicas."""

    by_partition: dict[TopicPartition, int]
    by_topic: dict[str, int]
    total: int


class ClusterData:
    """Cached reads of a cluster."""

    def __init__(self, cluster: Cluster, *, is_restricted: bool = False) -> None:
        """`is_restricted`: of what brokers report to every client, only what the user may see is shown."""
        self.cluster = cluster
        self._is_restricted = is_restricted
        self.admin = Admin(cluster)
        self.cluster_admin = ClusterAdmin(cluster)
        self.catalogue = Shared(self._catalogue, 1.0, stale_s=5.0)
        self.brokers = Shared(self._brokers, 1.0)
        self.sizes = Shared(self._sizes, 10.0, stale_s=60.0)
        self.groups = Shared(self._groups, 2.0)
        self.quorum = Shared(self._quorum, 3.0)
        self.reassignments = Shared(self.cluster_admin.reassignments, 2.0)
        self.admin_addresses = Shared(self._admin_addresses, 30.0)
        self.reported_lag = Shared(self._reported_lag, 2.0)
        self.lag_summaries = Shared(self._lag_summaries, 2.0)
        self.alert_records = Shared(StoredRecords(cluster, (ALERT, SILENCE)).read, 2.0)
        self.lags: SharedByKey[str, GroupLag] = SharedByKey(self._lag, 2.0, LAGS_MAX)
        self.throughput = Throughput(self._totals)
        self.histograms: SharedByKey[Stretch, list[Interval] | None] = SharedByKey(
            lambda stretch: time_histogram(cluster, stretch), 5.0, HISTOGRAMS_MAX
        )

    async def close(self) -> None:
        """Stop the background tasks."""
        await self.throughput.close()

    def invalidate(self) -> None:
        """Drop the cached values that a change may have affected."""
        for shared in (self.catalogue, self.brokers, self.sizes, self.groups, self.reassignments):
            shared.invalidate()
        self.reported_lag.invalidate()
        self.lag_summaries.invalidate()
        self.alert_records.invalidate()
        self.lags.invalidate()

    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The log start and end offsets of partitions; none of those without a leader."""
        catalogue = await self.catalogue.get()
        led = [
            partition
            for partition in partitions
            if (topic := catalogue.by_name.get(partition.topic)) is not None
            and partition.partition < len(topic.partitions)
            and topic.partitions[partition.partition].leader >= 0
        ]
        if not led:
            return {}, {}
        starts, ends = await asyncio.gather(start_offsets(self.cluster, led), end_offsets(self.cluster, led))
        return starts, ends

    async def _catalogue(self) -> Catalogue:
        topics = await self.cluster.topics()
        return Catalogue(topics, {topic.name: topic for topic in topics})

    async def _brokers(self) -> Brokers:
        return Brokers(*await self.cluster_admin.describe())

    async def _sizes(self) -> Sizes:
        by_partition = await self.admin.sizes()
        by_topic: dict[str, int] = {}
        for partition, size in by_partition.items():
            by_topic[partition.topic] = by_topic.get(partition.topic, 0) + size
        return Sizes(by_partition, by_topic, sum(by_topic.values()))

    async def _groups(self) -> list[GroupListing]:
        return await Groups(self.cluster).list()

    async def _quorum(self) -> QuorumView:
        return await self.cluster_admin.quorum()

    async def _lag(self, group_id: str) -> GroupLag:
        return await group_lag(self.cluster, group_id)

    async def _reported_lag(self) -> dict[str, LagSummary]:
        addresses = await self.admin_addresses.get()
        return await lag_summaries(addresses.values(), with_partitions=self._is_restricted)

    async def _lag_summaries(self) -> dict[str, LagSummary]:
        reported = await self.reported_lag.get()
        if not self._is_restricted:
            return reported
        topics = (await self.catalogue.get()).by_name
        return {name: summary.visible(topics) for name, summary in reported.items()}

    async def lag_of(self, group_id: str) -> LagSummary | None:
        """What the coordinator of a group reports, with the partitions that the user may see."""
        summary = await lag_of((await self.admin_addresses.get()).values(), group_id)
        if summary is None or not self._is_restricted:
            return summary
        return summary.visible((await self.catalogue.get()).by_name)

    async def _admin_addresses(self) -> dict[int, Address]:
        """The admin listeners of brokers that have one within reach."""
        found = {}
        for broker in (await self.brokers.get()).brokers:
            if broker.is_fenced:
                continue
            try:
                address = await find(self.cluster, broker.node_id, broker.host)
            except ClientError:
                # Not permitted, or the broker is about to be fenced.
                continue
            if address is not None:
                found[broker.node_id] = address
        return found

    # Throughput.

    async def _totals(self) -> Totals:
        addresses = await self.admin_addresses.get()
        if addresses and len(addresses) == len(self.cluster.nodes):
            try:
                texts = await asyncio.gather(*(read(address, "/metrics") for address in addresses.values()))
                # Megabytes, if there are many topics: not on the event loop.
                return await asyncio.to_thread(totals_of, texts)
            except GetFailed:
                pass
        catalogue = await self.catalogue.get()
        if catalogue.partition_count > SAMPLED_PARTITIONS_MAX:
            return Totals(None)
        partitions = [
            TopicPartition(topic.name, view.partition)
            for topic in catalogue.topics
            for view in topic.partitions
            if view.leader >= 0
        ]
        ends = await end_offsets(self.cluster, partitions) if partitions else {}
        by_topic: dict[str, int] = {}
        for partition, end in ends.items():
            by_topic[partition.topic] = by_topic.get(partition.topic, 0) + end
        return Totals(sum(ends.values()), by_topic=by_topic)


def totals_of(texts: Iterable[bytes]) -> Totals:
    """Sum the counters of all brokers from their `/metrics`."""
    sums: dict[str, float] = {}
    by_topic: dict[str, int] = {}
    for text in texts:
        for line in text.splitlines():
            series, _, value = line.rpartition(b" ")
            name, brace, labels = series.partition(b"{")
            kind = _METRICS.get(name)
            if kind is None:
                continue
            topic = _topic(labels) if brace else None
            # A broker reports a sum without labels, or one series for each topic, or both.
            if topic is None:
                sums[kind] = sums.get(kind, 0.0) + float(value)
            elif kind == "records":
                by_topic[topic] = by_topic.get(topic, 0) + int(float(value))
    records = int(sums["records"]) if "records" in sums else sum(by_topic.values())
    return Totals(records, sums.get("bytes_in"), sums.get("bytes_out"), by_topic)


def _topic(labels: bytes) -> str | None:
    _, found, rest = labels.partition(b'topic="')
    return rest.partition(b'"')[0].decode("utf-8", "replace") if found else None
