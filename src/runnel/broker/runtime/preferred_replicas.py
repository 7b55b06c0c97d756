"""Follower reads (KIP-392): the replica in a consumer's rack that it should fetch from."""

from typing import TYPE_CHECKING

from runnel.controller.config_broker_cluster import RACK_AWARE_SELECTOR
from runnel.replica.leader import LeaderReplica

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

NO_REPLICA = -1
"""The consumer should fetch from the leader."""


def selects_by_rack(broker: "Broker") -> bool:
    """Does this broker direct consumers to a replica in their rack?"""
    return bool(broker.settings["replica.selector.class"] == RACK_AWARE_SELECTOR)


def preferred_replica(broker: "Broker", partition: "ReplicatedLog", rack: str, offset: int) -> int:
    """The in-sync replica of this rack that has the offset and the most records; -1 for the leader."""
    leader = partition.replica
    if not partition.has_followers or not isinstance(leader, LeaderReplica) or rack == (broker.rack or ""):
        return NO_REPLICA
    brokers = broker.metadata.image.brokers
    best, best_end_offset = NO_REPLICA, -1
    for node, follower in leader.followers.items():
        registration = brokers.get(node)
        if (
            node in leader.isr
            and node in leader.active
            and registration is not None
            and registration.rack == rack
            and max(follower.log_start_offset, 0) <= offset <= follower.end_offset
            and follower.end_offset > best_end_offset
        ):
            best, best_end_offset = node, follower.end_offset
    return best
