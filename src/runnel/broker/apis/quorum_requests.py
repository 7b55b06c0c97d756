"""What the requests between controllers have in common: they are about one partition of this cluster."""

from typing import TYPE_CHECKING, Any

from runnel.broker.runtime import quorum_wire
from runnel.broker.runtime.context import Context
from runnel.model.errors import ApiError, ErrorCode, NotController

if TYPE_CHECKING:
    from runnel.broker.runtime.quorum_log import QuorumLog


def check_cluster(cluster_id: str | None, ctx: Context) -> None:
    """Reject a request of a node of another cluster. A node that does not know its cluster is accepted."""
    own = ctx.broker.cluster_id
    if cluster_id is not None and own and cluster_id != own:
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {own}, not {cluster_id}")


def check_leader(ctx: Context) -> "QuorumLog":
    """The quorum, if this node leads it. Raises NotController: the request is sent to the leader then."""
    quorum = ctx.broker.quorum
    if not quorum.is_leader:
        raise NotController("this node does not lead the metadata quorum")
    return quorum


def sole_partition(topics: list[Any]) -> Any:
    """The metadata partition of a request. INVALID_REQUEST unless it names that one and no other."""
    partition = quorum_wire.sole_partition(topics)
    if partition is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "only the metadata partition has a quorum")
    return partition
