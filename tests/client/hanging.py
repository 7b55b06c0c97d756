"""Hanging transactions: open in a partition, but unknown to the coordinator."""

from collections.abc import Iterator
from contextlib import contextmanager

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.client import Cluster
from runnel.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from runnel.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from runnel.model.ids import TopicPartition
from runnel.testing import Broker


@contextmanager
def broker_without_verification() -> Iterator[Broker]:
    """A broker without transaction verification."""
    with Broker({"transaction.partition.verification.enable": "false"}) as broker:
        set_transaction_version(broker, 1)
        yield broker


def set_transaction_version(broker: Broker, level: int) -> None:
    """Set the `transaction.version` of the cluster, for clients that connect afterwards."""
    update = FeatureUpdateKey("transaction.version", level, upgrade_type=2)
    request = UpdateFeaturesRequest(feature_updates=[update])
    with broker.client() as client:
        answer = client.run(lambda cluster: cluster.send_to_controller(request, UpdateFeaturesResponse))
    assert answer.error_code == 0, answer


async def leave_hanging(
    cluster: Cluster, where: TopicPartition, producer_id: int, *, name: str = "unknown", timestamp_ms: int = 1
) -> int:
    """Write a record in a transaction without adding the partition; returns its offset."""
    records = build_batch(
        [Record(0, timestamp_ms, None, b"hangs")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    part = PartitionProduceData(where.partition, memoryview(records))
    request = ProduceRequest(name, -1, 10_000, [TopicProduceData(name=where.topic, partition_data=[part])])
    answer = await cluster.send_to_node(await cluster.leader(where), request, ProduceResponse)
    result = answer.responses[0].partition_responses[0]
    assert result.error_code == 0, result
    return result.base_offset
