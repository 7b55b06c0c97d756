"""What the brokers say of themselves: disks, sizes of topics, groups and how far they are behind."""

from collections.abc import Iterable
from dataclasses import dataclass

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.client.groups import Groups
from runnel.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView


@dataclass(frozen=True, slots=True)
class Disks:
    """The volumes that hold logs, all brokers together."""

    total_bytes: int
    """-1 where the brokers do not say."""
    usable_bytes: int
    sizes: dict[TopicPartition, int]
    """Bytes of each partition, all replicas together."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind in one partition right now."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


def disks_of(broker: BrokerView) -> Disks:
    """Ask every broker for its folders."""
    return broker.run(_disks)


async def _disks(cluster: Cluster) -> Disks:
    await cluster.retrying(lambda: cluster.refresh([]))
    volumes: dict[tuple[str, int, int], None] = {}
    sizes: dict[TopicPartition, int] = {}
    for node_id, node in list(cluster.nodes.items()):
        answer = await cluster.ask_node(node_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        check(answer.error_code, "asking for the size of the logs")
        for folder in answer.results:
            check(folder.error_code, f"asking for the size of the logs in {folder.log_dir}")
            # Two folders of one machine with the same figures are one volume.
            volumes[node.host, folder.total_bytes, folder.usable_bytes] = None
            for topic in folder.topics:
                for view in topic.partitions:
                    partition = TopicPartition(topic.name, view.partition_index)
                    sizes[partition] = sizes.get(partition, 0) + view.partition_size
    known = [(total, usable) for _, total, usable in volumes if total >= 0]
    if not known:
        return Disks(-1, -1, sizes)
    return Disks(sum(total for total, _ in known), sum(usable for _, usable in known), sizes)


def lags_of(broker: BrokerView, topics: Iterable[str]) -> list[GroupLag]:
    """Where every group stands in these topics."""
    wanted = set(topics)
    positions = {
        group: {
            place: offset for place, offset in broker.group_offsets(group).items() if place.topic in wanted
        }
        for group in broker.groups()
    }
    existing = set(broker.partitions(sorted(wanted)))
    places = {place for offsets in positions.values() for place in offsets} & existing
    ends = broker.latest_offsets(sorted(places))
    return [
        GroupLag(group, place.topic, place.partition, offset, ends[place])
        for group, offsets in sorted(positions.items())
        for place, offset in sorted(offsets.items())
        if place in ends
    ]


def readers_of(broker: BrokerView) -> dict[str, int]:
    """For each topic, how many members the largest group has that reads it."""

    async def ask(cluster: Cluster) -> dict[str, int]:
        readers: dict[str, int] = {}
        groups = Groups(cluster)
        for listing in await groups.list():
            view = await groups.describe(listing.group_id)
            topics = {place.topic for member in view.members for place in member.partitions}
            for topic in topics:
                readers[topic] = max(readers.get(topic, 0), len(view.members))
        return readers

    return broker.run(ask)
