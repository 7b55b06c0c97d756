"""Topics of the gateway's own: one partition, compacted, created when they are first needed."""

from collections.abc import Mapping

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

REPLICAS_MAX = 3


async def create_if_missing(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> None:
    """Create a topic with one partition unless it exists."""
    try:
        await cluster.refresh([topic])
        await cluster.leader(TopicPartition(topic, 0))
        return
    except BrokerError as error:
        if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    replicas = min(REPLICAS_MAX, len(cluster.nodes)) or -1
    try:
        await Admin(cluster).create_topic(
            topic, partitions=1, replication_factor=replicas, settings=dict(settings)
        )
    except BrokerError as failure:
        if failure.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
