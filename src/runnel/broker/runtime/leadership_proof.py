"""Proof that no other broker has replaced the leader of a partition: before an answer that must be current.

    begins ──► the waiting fetches of the ISR are answered ──► each of its members fetches again ──► proven

A follower that knows a later leader epoch does not fetch in this one. So a fetch that it sends after the
proof has begun shows that it was no leader by then, and had stored nothing for one; if all members of the ISR
do, nothing was committed elsewhere. A leader that is isolated and replaced proves nothing. This is ReadIndex
of the Raft dissertation, section 6.4, for an ISR.

A proof is valid for requests that arrived before it began. Requests during a proof share the next one.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from runnel.broker.runtime.follower_sessions import Cursor, FollowerSession
from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

WARNING_INTERVAL_MS = 60_000

Waiting = list[Promise[ErrorCode | None]]


class LeadershipProofs:
    """The proofs that are running, at most one per partition."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: dict[ReplicatedLog, Waiting] = {}
        """The waiters for the next proof, by partition with a running proof."""
        self._warned_ms = -WARNING_INTERVAL_MS

    def next(self, partition: ReplicatedLog, timeout_ms: int) -> Promise[ErrorCode | None]:
        """The outcome of a proof that begins from now on: None, or the error of `prove_leadership`."""
        proven: Promise[ErrorCode | None] = Promise()
        if partition in self._waiting:
            self._waiting[partition].append(proven)
        else:
            self._waiting[partition] = [proven]
            self._broker.run(self._prove(partition, timeout_ms))
        return proven

    async def _prove(self, partition: ReplicatedLog, timeout_ms: int) -> None:
        try:
            while waiting := self._waiting[partition]:
                self._waiting[partition] = []
                await self._prove_to(waiting, partition, timeout_ms)
        finally:
            del self._waiting[partition]

    async def _prove_to(self, waiting: Waiting, partition: ReplicatedLog, timeout_ms: int) -> None:
        outcome: ErrorCode | None = None
        try:
            await prove_leadership(partition, timeout_ms)
        except ApiError as error:
            outcome = error.error
            self._failed(partition, error)
        except Exception as bug:  # noqa: BLE001 - those who wait get it
            for proven in waiting:
                proven.fail(bug)
            return
        for proven in waiting:
            proven.resolve(outcome)

    def _failed(self, partition: ReplicatedLog, error: ApiError) -> None:
        """Log a failure; as a warning, once per interval, if it may last."""
        now_ms = self._broker.clock.monotonic_ms()
        may_last = error.error is ErrorCode.NOT_ENOUGH_REPLICAS
        is_new = may_last and now_ms - self._warned_ms >= WARNING_INTERVAL_MS
        level = logging.WARNING if is_new else logging.DEBUG
        log.log(level, "stable offsets of %s are not reported, clients retry: %s", partition.name, error)
        if is_new:
            self._warned_ms = now_ms


async def prove_leadership(partition: ReplicatedLog, timeout_ms: int) -> None:
    """Returns once it is proven that this node leads the partition, or did when this was called.

    Raises NOT_LEADER_OR_FOLLOWER, also if a follower does not fetch now; NOT_ENOUGH_REPLICAS, as a replica
    that is not in sync may be elected then; REQUEST_TIMED_OUT.
    """
    leader = partition.leader
    leader.check_in_sync()
    sessions = {node: _session_of(partition, node) for node in sorted(leader.maximal_isr - {leader.node})}
    fetched = [session.fetched_again() for session in sessions.values()]
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await asyncio.gather(*fetched)
    except TimeoutError:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT, f"not all replicas of {partition.name} fetch from this node"
        ) from None
    finally:
        for future in fetched:
            future.cancel()
    for node, session in sessions.items():
        if _session_of(partition, node) is not session:
            raise _not_followed(partition, node)


def _session_of(partition: ReplicatedLog, node: int) -> FollowerSession:
    """The session in which a follower fetches the partition in the leader's epoch."""
    follower = partition.leader.followers.get(node)
    for cursor in partition.cursors:
        if isinstance(cursor, Cursor) and cursor.session.node == node and cursor.noted is follower:
            session = cursor.session
            # Of several, the one whose fetches count: the connection of another may be dead.
            if follower is not None and follower.fetch_time is session.fetch_time and not session.is_closed:
                return session
    raise _not_followed(partition, node)


def _not_followed(partition: ReplicatedLog, node: int) -> ApiError:
    return ApiError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} does not fetch {partition.name} from this one"
    )
