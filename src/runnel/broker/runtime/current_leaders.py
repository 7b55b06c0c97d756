"""The current leaders of partitions, for responses of other brokers (KIP-951)."""

from typing import TYPE_CHECKING, NamedTuple

from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_LEADER

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors after which a client looks for the leader."""


class CurrentLeader(NamedTuple):
    """The leader of a partition; -1 if it has none."""

    id: int
    epoch: int


class NodeAddress(NamedTuple):
    """A broker's address on the client's listener."""

    id: int
    host: str
    port: int
    rack: str | None


def current_leader(broker: "Broker", topic: str, index: int) -> CurrentLeader | None:
    """The leader of a partition, as far as this node knows; None if it knows that it may be wrong."""
    partition = broker.partition_at.get((topic, index))
    if partition is not None and partition.is_leader:
        return None if partition.is_isolated else CurrentLeader(broker.node_id, partition.epoch)
    state = broker.metadata.image.partition(topic, index)
    return None if state is None else CurrentLeader(state.leader, state.leader_epoch)


def node_address(broker: "Broker", node_id: int, listener: str) -> NodeAddress | None:
    """The address of a broker; None if it is not registered, or has no such listener."""
    if node_id == broker.node_id:
        own = broker.endpoint(listener)
        return NodeAddress(node_id, own.host, own.port, broker.rack)
    registration = None if node_id == NO_LEADER else broker.metadata.image.brokers.get(node_id)
    if registration is not None and not registration.is_fenced:
        for endpoint in registration.endpoints:
            if endpoint.name == listener:
                return NodeAddress(node_id, endpoint.host, endpoint.port, registration.rack)
    return None
