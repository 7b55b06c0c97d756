"""Offset lookup: earliest, latest, and by timestamp."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from runnel.model.ids import TopicPartition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
NOT_FOUND = -1

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


@dataclass(slots=True)
class FoundOffset:
    """An offset and the timestamp of its record; both -1 if none was found."""

    offset: int
    timestamp_ms: int


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, FoundOffset]:
    """The first offset at or after each timestamp, or for EARLIEST, LATEST and MAX_TIMESTAMP."""
    found: dict[TopicPartition, FoundOffset] = {}

    async def list_missing() -> None:
        missing = [partition for partition in timestamps if partition not in found]
        groups = await cluster.by_leader(missing)
        await asyncio.gather(
            *(list_from_leader(node_id, partitions) for node_id, partitions in groups.items())
        )

    async def list_from_leader(node_id: int, partitions: list[TopicPartition]) -> None:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=_topics({partition: timestamps[partition] for partition in partitions}),
            timeout_ms=int(cluster.timeout_s * 1000),
        )
        response = await cluster.send_to_node(node_id, request, ListOffsetsResponse)
        for topic in response.topics:
            for view in topic.partitions:
                partition = TopicPartition(topic.name, view.partition_index)
                check(view.error_code, f"listing the offsets of {partition}")
                found[partition] = FoundOffset(view.offset, view.timestamp)

    def recover() -> None:
        for partition in timestamps:
            cluster.invalidate_topic(partition.topic)

    await cluster.retry(list_missing, recover)
    return found


async def end_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """The end offset of each partition, as visible at the isolation level."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation=isolation)
    return {partition: view.offset for partition, view in found.items()}


async def start_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The log start offset of each partition."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    return {partition: view.offset for partition, view in found.items()}


async def offsets_since(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    """The first offset at or after a timestamp for each partition; the end offset if there is none."""
    partitions = list(partitions)
    found = await list_offsets(cluster, dict.fromkeys(partitions, timestamp_ms))
    without = [partition for partition in partitions if found[partition].offset == NOT_FOUND]
    ends = await end_offsets(cluster, without) if without else {}
    return {partition: ends.get(partition, found[partition].offset) for partition in partitions}


def _topics(timestamps: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp_ms in timestamps.items():
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp_ms)
        )
    return list(topics.values())
