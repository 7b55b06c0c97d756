"""Single fetches, which do not wait for records: one request to each leader."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runnel.client.chunk import Chunk
from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.client.offsets import READ_UNCOMMITTED
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from runnel.model.ids import TopicPartition

NO_ID = bytes(16)
"""The id of topics in clusters without ids."""


@dataclass(frozen=True, slots=True)
class FetchSizes:
    """How much a fetch returns at most; the first batch of the first partition may be larger."""

    request_bytes: int = 4 * 1024 * 1024
    partition_bytes: int = 512 * 1024


@dataclass(slots=True)
class Fetched:
    """What one partition has from a position on."""

    chunk: Chunk
    end_offset: int
    """Where records end that the isolation level shows. A chunk without progress is at the end only if it
    starts there: a broker omits what does not fit into the response."""

    @property
    def has_more(self) -> bool:
        return self.chunk.next_offset < self.end_offset

    @property
    def is_behind_end(self) -> bool:
        """Was it fetched from behind the end that the isolation level shows?"""
        return self.chunk.from_offset > self.end_offset


async def fetch_once(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    *,
    isolation: int = READ_UNCOMMITTED,
    sizes: FetchSizes | None = None,
) -> list[Fetched]:
    """Fetch from positions what is there; BrokerError with OFFSET_OUT_OF_RANGE if one is not in the log."""

    async def attempt() -> list[Fetched]:
        leaders = await cluster.by_leader(positions)
        if len(leaders) == 1:
            # Most often; gather would need a task.
            (leader,) = leaders
            return await _fetch_from(cluster, leader, positions, isolation, sizes)
        found = await asyncio.gather(
            *(
                _fetch_from(cluster, leader, {each: positions[each] for each in own}, isolation, sizes)
                for leader, own in leaders.items()
            )
        )
        return [fetched for some in found for fetched in some]

    def recover() -> None:
        for partition in positions:
            cluster.invalidate_topic(partition.topic)

    return await cluster.retry(attempt, recover)


async def _fetch_from(
    cluster: Cluster,
    leader: int,
    positions: Mapping[TopicPartition, int],
    isolation: int,
    sizes: FetchSizes | None,
) -> list[Fetched]:
    sizes = sizes or FetchSizes()
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=sizes.request_bytes,
        isolation_level=isolation,
        topics=fetch_topics(positions, positions, sizes.partition_bytes),
    )
    response = await cluster.send_to_node(leader, request, FetchResponse)
    check(response.error_code, f"fetching from broker {leader}")
    found = []
    for topic in response.responses:
        for view in topic.partitions:
            partition = TopicPartition(topic.topic, view.partition_index)
            chunk = chunk_of(partition, positions[partition], view, isolation)
            end = view.high_watermark if isolation == READ_UNCOMMITTED else view.last_stable_offset
            found.append(Fetched(chunk, end))
    return found


def fetch_topics(
    partitions: Iterable[TopicPartition],
    positions: Mapping[TopicPartition, int],
    partition_bytes: int,
    topic_ids: Mapping[str, bytes] | None = None,
) -> list[FetchTopic]:
    """The topics of a Fetch request."""
    topics: dict[str, FetchTopic] = {}
    for partition in partitions:
        name = partition.topic
        topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=(topic_ids or {}).get(name, NO_ID)))
        topic.partitions.append(
            FetchPartition(
                partition=partition.partition,
                fetch_offset=positions[partition],
                partition_max_bytes=partition_bytes,
            )
        )
    return list(topics.values())


def chunk_of(partition: TopicPartition, offset: int, view: PartitionData, isolation: int) -> Chunk:
    """What a response has of a partition; BrokerError if that failed."""
    check(view.error_code, f"reading {partition} from offset {offset}")
    records = view.records if isinstance(view.records, memoryview) else memoryview(view.records or b"")
    aborted = [(each.producer_id, each.first_offset) for each in view.aborted_transactions or ()]
    return Chunk(
        partition,
        records,
        offset,
        view.high_watermark,
        aborted if isolation else (),
    )
