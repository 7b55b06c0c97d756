"""Topics of the gateway's own: one partition, compacted, created when they are first needed."""

from collections.abc import Mapping

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, check
from runnel.model.configs import ResourceType
from runnel.model.errors import ErrorCode

REPLICAS_MAX = 3
POLICY = "cleanup.policy"
COMPACT = "compact"


async def exists(cluster: Cluster, topic: str) -> bool:
    """Does a topic exist? BrokerError if that may not be known."""
    response = await cluster.retry(lambda: cluster.refresh([topic]))
    code = response.topics[0].error_code
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code:
        return False
    check(code, f"topic {topic}")
    return True


async def create_if_missing(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> None:
    """Create a topic with one partition unless it exists."""
    if await exists(cluster, topic):
        return
    replicas = min(REPLICAS_MAX, len(cluster.nodes)) or -1
    try:
        await Admin(cluster).create_topic(
            topic, partitions=1, replication_factor=replicas, settings=dict(settings)
        )
    except BrokerError as failure:
        if failure.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def cleanup_policy(cluster: Cluster, topic: str) -> str | None:
    """What becomes of the records of a topic; None if that may not be known."""
    try:
        settings = await Admin(cluster).settings(ResourceType.TOPIC, topic, keys=[POLICY])
    except BrokerError as error:
        if error.error in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return None
        raise
    return next((setting.value for setting in settings if setting.name == POLICY), None)
