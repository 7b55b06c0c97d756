"""The state of the brokers: disks, sizes of topics, and group lag."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.client.groups import Groups
from runnel.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView

FREE_TOLERANCE_BYTES = 256 << 20
"""More than is written between two responses, and less than the usual difference between two disks."""


@dataclass(frozen=True, slots=True)
class Disks:
    """The log volumes of all brokers."""

    total_bytes: int
    """-1 if the brokers do not report it."""
    usable_bytes: int
    sizes: dict[TopicPartition, int]
    """Bytes of each partition, summed over replicas."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A log directory of a broker, and the size of its volume."""

    host: str
    path: str
    total_bytes: int
    """-1 if the broker does not report it."""
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The current lag of a group in one partition."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


def disks_of(broker: BrokerView) -> Disks:
    """Describe the log directories of every broker."""
    return broker.run(_disks)


async def _disks(cluster: Cluster) -> Disks:
    await cluster.retry(lambda: cluster.refresh([]))
    folders: list[Folder] = []
    sizes: dict[TopicPartition, int] = {}
    for node_id, node in list(cluster.nodes.items()):
        answer = await cluster.send_to_node(
            node_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
        )
        check(answer.error_code, "describing log directories")
        for folder in answer.results:
            check(folder.error_code, f"describing log directories in {folder.log_dir}")
            folders.append(Folder(node.host, folder.log_dir, folder.total_bytes, folder.usable_bytes))
            for topic in folder.topics:
                for view in topic.partitions:
                    partition = TopicPartition(topic.name, view.partition_index)
                    sizes[partition] = sizes.get(partition, 0) + view.partition_size
    known = volumes_of(folders)
    if not known:
        return Disks(-1, -1, sizes)
    return Disks(sum(total for total, _ in known), sum(usable for _, usable in known), sizes)


def volumes_of(folders: Iterable[Folder]) -> list[tuple[int, int]]:
    """(total, usable) of every volume; a volume shared by folders or brokers is counted once.

    Folders of one host are on one volume if the total sizes are equal, and either the paths are equal (as for
    brokers in containers) or the free space is equal, up to what was written between the responses.
    """
    volumes: list[list[Folder]] = []
    for folder in folders:
        if folder.total_bytes < 0:
            continue
        known = next((volume for volume in volumes if _is_on(folder, volume)), None)
        if known is None:
            volumes.append([folder])
        else:
            known.append(folder)
    return [(volume[0].total_bytes, min(folder.usable_bytes for folder in volume)) for volume in volumes]


def _is_on(folder: Folder, volume: list[Folder]) -> bool:
    return any(
        (folder.host, folder.total_bytes) == (other.host, other.total_bytes)
        and (
            folder.path == other.path or abs(folder.usable_bytes - other.usable_bytes) <= FREE_TOLERANCE_BYTES
        )
        for other in volume
    )


def lags_of(broker: BrokerView, topics: Iterable[str]) -> list[GroupLag]:
    """The offsets of every group in these topics."""
    wanted = set(topics)
    positions = {
        group: {
            partition: offset
            for partition, offset in broker.group_offsets(group).items()
            if partition.topic in wanted
        }
        for group in broker.groups()
    }
    existing = set(broker.partitions(sorted(wanted)))
    partitions = {partition for offsets in positions.values() for partition in offsets} & existing
    ends = broker.latest_offsets(sorted(partitions))
    return [
        GroupLag(group, partition.topic, partition.partition, offset, ends[partition])
        for group, offsets in sorted(positions.items())
        for partition, offset in sorted(offsets.items())
        if partition in ends
    ]


def readers_of(broker: BrokerView) -> dict[str, int]:
    """For each topic, the number of members of its largest group, including idle ones."""

    async def describe(cluster: Cluster) -> dict[str, int]:
        readers: dict[str, int] = {}
        groups = Groups(cluster)
        for listing in await groups.list():
            view = await groups.describe(listing.group_id)
            topics = [{partition.topic for partition in member.partitions} for member in view.members]
            for topic, count in readers_in(topics).items():
                readers[topic] = max(readers.get(topic, 0), count)
        return readers

    return broker.run(describe)


def readers_in(topics_of_members: Sequence[Collection[str]]) -> dict[str, int]:
    """The number of members of a group per topic; idle members count for every topic."""
    readers = Counter(topic for topics in topics_of_members for topic in topics)
    idle = sum(not topics for topics in topics_of_members)
    return {topic: count + idle for topic, count in readers.items()}
