"""What the brokers say of themselves: disks, sizes of topics, groups and how far they are behind."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.client.groups import Groups
from runnel.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from runnel.model.ids import TopicPartition
from runnel.pipelines.broker import BrokerView

MOVED_BYTES = 256 << 20
"""More than is written to a disk between two answers, and less than that by which two disks in use differ."""


@dataclass(frozen=True, slots=True)
class Disks:
    """The volumes that hold logs, all brokers together."""

    total_bytes: int
    """-1 where the brokers do not say."""
    usable_bytes: int
    sizes: dict[TopicPartition, int]
    """Bytes of each partition, all replicas together."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a broker keeps logs, and what it says of the volume beneath."""

    host: str
    path: str
    total_bytes: int
    """-1 where the broker does not say."""
    usable_bytes: int


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
    await cluster.retry(lambda: cluster.refresh([]))
    folders: list[Folder] = []
    sizes: dict[TopicPartition, int] = {}
    for node_id, node in list(cluster.nodes.items()):
        answer = await cluster.send_to_node(
            node_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
        )
        check(answer.error_code, "asking for the size of the logs")
        for folder in answer.results:
            check(folder.error_code, f"asking for the size of the logs in {folder.log_dir}")
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
    """(total, usable) of every volume, counted once, however many folders and brokers are on it.

    Folders of one machine are on one volume if it is equally large and either they have the same path, as
    brokers in containers do, or equally much is free, up to what was written while brokers were asked.
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
        and (folder.path == other.path or abs(folder.usable_bytes - other.usable_bytes) <= MOVED_BYTES)
        for other in volume
    )


def lags_of(broker: BrokerView, topics: Iterable[str]) -> list[GroupLag]:
    """The offsets of every group in these topics."""
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
    """For each topic, how many members the largest group has that reads it, or could."""

    async def ask(cluster: Cluster) -> dict[str, int]:
        readers: dict[str, int] = {}
        groups = Groups(cluster)
        for listing in await groups.list():
            view = await groups.describe(listing.group_id)
            topics = [{place.topic for place in member.partitions} for member in view.members]
            for topic, count in readers_in(topics).items():
                readers[topic] = max(readers.get(topic, 0), count)
        return readers

    return broker.run(ask)


def readers_in(topics_of_members: Sequence[Collection[str]]) -> dict[str, int]:
    """How many members of a group read each topic; those that read nothing would read any."""
    readers = Counter(topic for topics in topics_of_members for topic in topics)
    idle = sum(not topics for topics in topics_of_members)
    return {topic: count + idle for topic, count in readers.items()}
