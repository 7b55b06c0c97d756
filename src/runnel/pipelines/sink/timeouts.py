"""Transaction timeouts, within what the broker allows (transaction.max.timeout.ms)."""

from runnel.client.accumulator import ProducerIdentity
from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, ClientError
from runnel.client.transactions import Transactions
from runnel.model.configs import ResourceType
from runnel.model.errors import ErrorCode
from runnel.pipelines.errors import BadOption

SETTING = "transaction.max.timeout.ms"


async def init_producer_id(cluster: Cluster, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
    """Initialize a transactional id; BadOption if the broker does not allow this timeout."""
    try:
        return await Transactions(cluster).init_producer_id(transactional_id, timeout_ms=timeout_ms)
    except BrokerError as refused:
        if refused.error is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise BadOption(
            too_long("transactionTimeoutMs", timeout_ms, await timeout_max_ms(cluster))
        ) from refused


async def init_producer_id_at_most(
    cluster: Cluster, transactional_id: str, timeout_ms: int
) -> ProducerIdentity:
    """Like init_producer_id, with the timeout capped at what the broker allows."""
    try:
        return await Transactions(cluster).init_producer_id(transactional_id, timeout_ms=timeout_ms)
    except BrokerError as refused:
        if refused.error is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        allowed_ms = await timeout_max_ms(cluster)
        if allowed_ms is None:
            raise
        return await init_producer_id(cluster, transactional_id, min(timeout_ms, allowed_ms))


async def timeout_max_ms(cluster: Cluster) -> int | None:
    """The maximum that the broker allows; None if unknown."""
    try:
        await cluster.retry(lambda: cluster.refresh([]))
        node_id = next(iter(cluster.nodes), None)
        if node_id is None:
            return None
        settings = await Admin(cluster).settings(ResourceType.BROKER, str(node_id), keys=[SETTING])
    except ClientError:
        return None
    texts = {setting.name: setting.value for setting in settings}
    text = texts.get(SETTING)
    return int(text) if text is not None and text.isdecimal() else None


def too_long(name: str, timeout_ms: int, allowed_ms: int | None) -> str:
    """The error message for a timeout above the broker's maximum."""
    allowed = f"{SETTING}={allowed_ms}" if allowed_ms is not None else SETTING
    return f"{name}={timeout_ms} exceeds the broker's {allowed}: lower the timeout or raise the limit"
