"""Proof that no other broker has replaced the leader of a partition: before an answer that must be current.

    begins ──► the waiting fetches of the ISR are answered ──► each of its members fetches again ──► proven

A follower that knows a later leader epoch does not fetch in this one. So a fetch that it sends after the
proof has begun shows that it was no leader by then, and had stored nothing for one; if all members of the ISR
do, nothing was committed elsewhere. A leader that is isolated and replaced proves nothing. This is ReadIndex
of the Raft dissertation, section 6.4, for an ISR.
"""

import asyncio

from runnel.broker.runtime.follower_sessions import Cursor, FollowerSession
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.model.errors import ApiError, ErrorCode


async def prove_leadership(partition: ReplicatedLog, timeout_ms: int) -> None:
    """Returns once it is proven that this node leads the partition, or did when this was called.

    Raises NOT_LEADER_OR_FOLLOWER, also if a follower does not fetch now; NOT_ENOUGH_REPLICAS, as a replica
    that is not in sync may be elected then; REQUEST_TIMED_OUT.
    """
    leader = partition.leader
    leader.check_in_sync()
    followers = sorted(leader.maximal_isr - {leader.node})
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await asyncio.gather(*(_fetched_again(partition, node) for node in followers))
    except TimeoutError:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT, f"not all replicas of {partition.name} fetch from this node"
        ) from None


async def _fetched_again(partition: ReplicatedLog, node: int) -> None:
    session = _session_of(partition, node)
    # A request that does not wait here may have been sent before, and is only on its way.
    for _ in range(1 if session.waiting is not None else 2):
        await session.next_request()
    if _session_of(partition, node) is not session:
        raise _not_followed(partition, node)


def _session_of(partition: ReplicatedLog, node: int) -> FollowerSession:
    """The session in which a follower fetches the partition in the leader's epoch."""
    if partition.is_leader:
        follower = partition.leader.followers.get(node)
        for cursor in partition.cursors:
            if isinstance(cursor, Cursor) and cursor.session.node == node and cursor.noted is follower:
                return cursor.session
    raise _not_followed(partition, node)


def _not_followed(partition: ReplicatedLog, node: int) -> ApiError:
    return ApiError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} does not fetch {partition.name} from this one"
    )
