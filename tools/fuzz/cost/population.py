"""What the broker holds while its costs are measured: partitions, groups with offsets, transactional ids."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from runnel.client.connection import Connection
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from runnel.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

SETTINGS = {
    "node.id": "1",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # Transactions stay open for as long as the run takes.
    "transaction.max.timeout.ms": str(2**31 - 1),
}
WIDE_TOPIC = "wide"
GROUP_KEY, TRANSACTION_KEY = 0, 1


@dataclass(frozen=True, slots=True)
class Population:
    """How much there is; half of the partitions belong to one wide topic, the others to narrow ones."""

    partitions: int = 10_000
    groups: int = 1_000
    transactional_ids: int = 100
    narrow_partitions: int = 50
    acls: int = 100_000
    quotas: int = 1_000

    @property
    def wide_partitions(self) -> int:
        return self.partitions // 2

    @property
    def topics(self) -> list[str]:
        narrow = (self.partitions - self.wide_partitions) // self.narrow_partitions
        return [WIDE_TOPIC, *(f"narrow-{number}" for number in range(narrow))]

    @property
    def group_ids(self) -> list[str]:
        return [f"group-{number}" for number in range(self.groups)]

    @property
    def transactional_id_names(self) -> list[str]:
        return [f"txn-{number}" for number in range(self.transactional_ids)]


async def populate(port: int, population: Population) -> None:
    """Create all of it in a broker that holds nothing."""
    connection = await Connection.open("127.0.0.1", port, timeout_s=60)
    for names in _chunks(population.topics, 20):
        topics = [
            CreatableTopic(
                name,
                population.wide_partitions if name == WIDE_TOPIC else population.narrow_partitions,
                replication_factor=1,
            )
            for name in names
        ]
        created = await connection.send(CreateTopicsRequest(topics), CreateTopicsResponse, timeout_s=300)
        assert not any(topic.error_code for topic in created.topics), created.topics[0].error_message
    for key_type in (GROUP_KEY, TRANSACTION_KEY):
        await _find_coordinator(connection, key_type)
    await asyncio.gather(*(_commit(connection, group_id, population) for group_id in population.group_ids))
    for name in population.transactional_id_names:
        await _begin_transaction(connection, name)
    await connection.close()


async def topic_ids(port: int, names: list[str]) -> dict[str, bytes]:
    """The ids of topics by their names."""
    connection = await Connection.open("127.0.0.1", port, timeout_s=60)
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    answer = await connection.send(request, MetadataResponse)
    await connection.close()
    return {topic.name: topic.topic_id for topic in answer.topics if topic.name is not None}


async def cluster_id_of(port: int) -> str:
    """The id of the cluster of a broker."""
    connection = await Connection.open("127.0.0.1", port, timeout_s=60)
    answer = await connection.send(DescribeClusterRequest(), DescribeClusterResponse)
    await connection.close()
    return answer.cluster_id


async def _commit(connection: Connection, group_id: str, population: Population) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=0)
        for index in range(population.narrow_partitions)
    ]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in population.topics[1:3]]
    request = OffsetCommitRequest(group_id=group_id, topics=topics)
    while (
        (await connection.send(request, OffsetCommitResponse, timeout_s=120))
        .topics[0]
        .partitions[0]
        .error_code
    ):
        await asyncio.sleep(0.05)


async def _find_coordinator(connection: Connection, key_type: int) -> None:
    """The first lookup creates the internal topic that the coordinator's state is stored in."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
    while (await connection.send(request, FindCoordinatorResponse)).coordinators[0].error_code:
        await asyncio.sleep(0.05)


async def _begin_transaction(connection: Connection, transactional_id: str) -> None:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=2**31 - 1, producer_id=-1, producer_epoch=-1
    )
    while (producer := await connection.send(request, InitProducerIdResponse, timeout_s=60)).error_code:
        await asyncio.sleep(0.05)
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(WIDE_TOPIC, list(range(10)))],
    )
    await connection.send(added, AddPartitionsToTxnResponse, timeout_s=60)


def _chunks(names: Iterable[str], size: int) -> Iterable[list[str]]:
    iterator = iter(names)
    while chunk := list(islice(iterator, size)):
        yield chunk
