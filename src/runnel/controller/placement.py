"""Replica placement."""

from collections import Counter
from collections.abc import Sequence

from runnel.controller.image import MetadataImage
from runnel.controller.values import BrokerRegistration, PartitionState
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_ID


def assign_replicas(
    image: MetadataImage, count: int, replication_factor: int, first: int
) -> list[PartitionState]:
    """The states of `count` new partitions, assigned round-robin to the live brokers starting at `first`."""
    brokers = image.live_brokers()
    if replication_factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor "
            f"of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered.",
        )
    total = len(brokers)
    # Equal states share one object; on a single node all are equal.
    cycle = [
        _state([brokers[(start + copy) % total] for copy in range(replication_factor)])
        for start in range(total)
    ]
    return [cycle[(first + index) % total] for index in range(count)]


def manual_assignment(image: MetadataImage, replicas: Sequence[int]) -> PartitionState:
    """The state of a new partition with a manual replica assignment, the preferred leader first."""
    check_replicas(image, replicas)
    brokers = [image.brokers[node_id] for node_id in replicas]
    if all(broker.is_fenced for broker in brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment are fenced or in controlled shutdown.",
        )
    return _state(brokers)


def check_replicas(image: MetadataImage, replicas: Sequence[int]) -> None:
    """Validate a manual replica assignment. Raises ApiError."""
    complaint = None
    if not replicas:
        complaint = "The manual partition assignment includes an empty replica list."
    elif len(set(replicas)) < len(replicas):
        counts = Counter(replicas)
        twice = next(node_id for node_id in replicas if counts[node_id] > 1)
        complaint = f"The manual partition assignment includes the broker {twice} more than once."
    else:
        unknown = [node_id for node_id in replicas if node_id not in image.brokers]
        if unknown:
            complaint = (
                f"The manual partition assignment includes broker {unknown[0]}, "
                "but no such broker is registered."
            )
    if complaint:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)


def _state(brokers: Sequence[BrokerRegistration]) -> PartitionState:
    in_sync = tuple(broker.id for broker in brokers if not broker.is_fenced)
    return PartitionState(
        replicas=tuple(broker.id for broker in brokers),
        isr=in_sync,
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(directory_of(broker) for broker in brokers),
    )


def directory_of(broker: BrokerRegistration) -> bytes:
    """The directory of a new replica; a broker with several directories chooses one itself."""
    return broker.directories[0] if len(broker.directories) == 1 else NO_ID
