"""Requests of other brokers, which follow partitions of this node."""

from runnel.messages.fetch import FetchRequest
from runnel.model.ids import NO_BROKER_EPOCH

CONSUMER = -1
"""The replica id of a consumer."""


def replica_of(request: FetchRequest) -> tuple[int, int]:
    """The node id and broker epoch of a follower; a negative id is that of a consumer."""
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return state.replica_id, state.replica_epoch
    return request.replica_id, NO_BROKER_EPOCH


def is_replica(request: FetchRequest) -> bool:
    """Does a follower fetch?"""
    return replica_of(request)[0] >= 0
