"""Fetch sessions of followers on their leader: a round costs what has changed since the last response.

    append, high watermark, log start, role ──► Cursor.changed ──► dirty ──► read by the next round
                                                     └─ records: wakes the waiting fetch

A follower mentions a partition only when its offset, log start or epoch changed; one that it does not mention
is where it was. So the time of its last fetch is kept once per session (`FetchTime`), not per partition.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from runnel.broker.runtime.fetch_sessions import EPOCH_MAX, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from runnel.broker.runtime.turn import Watcher
from runnel.messages.fetch import FetchPartition, FetchRequest
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.service import Session
from runnel.replica.leader import FetchTime, Follower, LeaderReplica

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

Key = tuple[str, bytes, int]
"""Topic name or id, and partition."""

STEP_CURSORS = 1_000
"""Cursors of a session that ended which are detached in one step."""

NOT_SENT = -2
"""The value of an offset that was not sent in this session yet."""


class Waker(Protocol):
    """Wakes waiting requests at the end of the turn."""

    def wake(self, watchers: dict[Watcher, None]) -> None: ...


class WaitingFetch(Watcher, Protocol):
    """A fetch that waits for records."""

    def expire(self) -> None:
        """Respond now."""
        ...


class Cursor:
    """One partition of a follower's session."""

    __slots__ = (
        "asked",
        "high_watermark",
        "is_dirty",
        "is_urgent",
        "key",
        "log_start_offset",
        "noted",
        "partition",
        "session",
    )

    def __init__(self, session: "FollowerSession", key: Key, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.asked = asked
        self.partition: ReplicatedLog | None = None
        """The log of the partition; None if it is not on this node."""
        self.high_watermark = self.log_start_offset = NOT_SENT
        """What the session returned last."""
        self.is_dirty = False
        self.is_urgent = False
        """Must the response not wait for records?"""
        self.noted: Follower | None = None
        """The follower whose progress the last mention is; None while it was rejected."""

    def changed(self, *, wakes: bool) -> None:
        """The response to the next fetch includes this partition."""
        session = self.session
        if not self.is_dirty:
            self.is_dirty = True
            session.dirty[self] = None
        if wakes and session.waiting is not None:
            session.waker.wake({session.waiting: None})

    def attach(self, partition: "ReplicatedLog | None") -> None:
        """Watch this log from now on; after a topic was recreated it is another one."""
        if partition is self.partition:
            return
        if self.partition is not None:
            self._detach(self.partition)
        self.partition = partition
        self.high_watermark = self.log_start_offset = NOT_SENT
        if partition is not None:
            partition.cursors[self] = None

    def _detach(self, partition: "ReplicatedLog") -> None:
        partition.cursors.pop(self, None)
        self.session.watch(partition)
        replica, node = partition.replica, self.session.node
        if isinstance(replica, LeaderReplica) and replica.session_ended(node, self.session.fetch_time):
            # A list: the response of a session that waits may change the cursors.
            for other in list(partition.cursors):
                if isinstance(other, Cursor) and other.session.node == node:
                    other.session.invalidate()

    def sent(
        self, high_watermark: int, log_start_offset: int, *, has_records: bool = False, has_more: bool = False
    ) -> None:
        """The response has these values, and perhaps records; `has_more` follow in the next one."""
        if has_records:
            self.session.unacknowledged[self] = None
        self.high_watermark, self.log_start_offset = high_watermark, log_start_offset
        self.is_urgent = False
        self.session.dirty.pop(self, None)
        self.is_dirty = has_more
        if has_more:
            # After all others, so that each gets its turn.
            self.session.dirty[self] = None


class FollowerSession:
    """The partitions that one fetcher of a follower fetches from this node."""

    __slots__ = (
        "_awaited",
        "broker_epoch",
        "cursors",
        "dirty",
        "epoch",
        "fetch_time",
        "id",
        "is_closed",
        "is_invalid",
        "is_proven",
        "node",
        "unacknowledged",
        "uses_topic_ids",
        "waiting",
        "waker",
        "watch",
    )

    def __init__(
        self,
        session_id: int,
        node: int,
        waker: Waker,
        watch: "Callable[[ReplicatedLog], None]",
        *,
        uses_topic_ids: bool,
    ) -> None:
        self.id = session_id
        self.node = node
        self.is_closed = False
        """Has its connection ended, or begun another one?"""
        self.is_invalid = False
        """Is its next request rejected, so that the follower begins another session?"""
        self.is_proven = True
        """Does the requester fetch as this node would? Otherwise its offsets prove nothing."""
        self.broker_epoch = -1
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        """The epoch of the next request."""
        self.fetch_time = FetchTime(is_open=True)
        self.cursors: dict[Key, Cursor] = {}
        self.dirty: dict[Cursor, None] = {}
        """Cursors of partitions that have changed since they were sent, the longest waiting first."""
        self.unacknowledged: dict[Cursor, None] = {}
        """Cursors with records that were sent, and that the follower has not stored as far as is known."""
        self.watch = watch
        """Called for a partition that was removed from the session."""
        self.waiting: WaitingFetch | None = None
        """The request that waits for records."""
        self.waker = waker
        self._awaited: dict[asyncio.Future[None], int] = {}
        """The waiters for requests, and for how many."""

    def fetched_again(self) -> "asyncio.Future[None]":
        """Done when a request is noted that the follower decides on from now on; a waiting one is answered.

        Fails with NOT_LEADER_OR_FOLLOWER if the session ends before.
        """
        fetched: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            fetched.set_exception(self._ended())
            return fetched
        # A request that does not wait here may have been sent before, and is only on its way.
        self._awaited[fetched] = 1 if self.waiting is not None else 2
        fetched.add_done_callback(self._not_awaited)
        if self.waiting is not None:
            self.waiting.expire()
        return fetched

    def noted(self) -> None:
        """All partitions that a request mentions or forgets are noted; there are no more to forget."""
        for fetched, count in list(self._awaited.items()):
            self._awaited[fetched] = count - 1
            if count == 1 and not fetched.done():
                fetched.set_result(None)

    def _not_awaited(self, fetched: "asyncio.Future[None]") -> None:
        self._awaited.pop(fetched, None)

    def _ended(self) -> ApiError:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.node} has ended its fetch session")

    def invalidate(self) -> None:
        """Let the follower begin another session, which mentions where it is in all partitions.

        Another session of the same follower has ended, and requests of both were served in an order that
        need not be that in which they were sent. Neither of them proves where the follower is now.
        """
        self.is_invalid = True
        if self.waiting is not None:
            self.waiting.expire()

    def mention(self, key: Key, asked: FetchPartition) -> Cursor:
        """The cursor of a partition that a request mentions."""
        cursor = self.cursors.get(key)
        if cursor is None:
            cursor = self.cursors[key] = Cursor(self, key, asked)
        else:
            cursor.asked, cursor.noted = asked, None
            self.unacknowledged.pop(cursor, None)
        return cursor

    def forget(self, key: Key) -> None:
        """Remove a partition from the session."""
        cursor = self.cursors.pop(key, None)
        if cursor is not None:
            cursor.attach(None)
            self.dirty.pop(cursor, None)
            self.unacknowledged.pop(cursor, None)

    def close(self, count_max: int) -> None:
        """The session ended; detaches up to `count_max` of its cursors."""
        self.is_closed, self.fetch_time.is_open = True, False
        for fetched in self._awaited:
            if not fetched.done():
                fetched.set_exception(self._ended())
        for key in list(islice(self.cursors, count_max)):
            self.forget(key)


class FollowerSessions:
    """The sessions of all followers: one per connection, ended with it."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._by_connection: dict[Session, FollowerSession] = {}

    def __len__(self) -> int:
        return len(self._by_connection)

    def __iter__(self) -> Iterator[FollowerSession]:
        return iter(self._by_connection.values())

    def plan(
        self, request: FetchRequest, api_version: int, node: int, connection: Session
    ) -> tuple[FollowerSession, bool]:
        """The session of a request, and whether it is incremental.

        Raises ApiError. A request without a session gets one that ends with its response.
        """
        uses_topic_ids = api_version >= 13
        if api_version < 7 or request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self.disconnected(connection)
            is_kept = api_version >= 7 and request.session_epoch == INITIAL_EPOCH
            session_id = self._new_id() if is_kept else NO_SESSION
            session = self._session(session_id, node, uses_topic_ids=uses_topic_ids)
            self._by_connection[connection] = session
            return session, False
        found = self._by_connection.get(connection)
        if found is None or found.is_invalid or found.id != request.session_id or found.node != node:
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no session {request.session_id} on this connection"
            )
        if request.session_epoch != found.epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {found.id} is at epoch {found.epoch}, not {request.session_epoch}",
            )
        if found.uses_topic_ids != uses_topic_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session cannot mix topic names and topic ids"
            )
        found.epoch = 1 if found.epoch == EPOCH_MAX else found.epoch + 1
        return found, True

    def plan_refused(
        self, request: FetchRequest, api_version: int, node: int
    ) -> tuple[FollowerSession, bool]:
        """As `plan`, for a request that does not prove to be of this node: no session is changed or kept."""
        if api_version >= 7 and request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"not a session of node {node}")
        session = self._session(NO_SESSION, node, uses_topic_ids=api_version >= 13)
        session.is_proven = False
        return session, False

    def _session(self, session_id: int, node: int, *, uses_topic_ids: bool) -> FollowerSession:
        broker = self._broker
        watch = broker.replication.watch
        return FollowerSession(session_id, node, broker.turn, watch, uses_topic_ids=uses_topic_ids)

    def disconnected(self, connection: Session) -> None:
        """The connection was closed, or its session ended."""
        session = self._by_connection.pop(connection, None)
        if session is not None:
            session.close(STEP_CURSORS)
            if session.cursors:
                self._broker.run(self._close_in_steps(session))

    async def _close_in_steps(self, session: FollowerSession) -> None:
        # Nothing is lost meanwhile: the time of its last fetch no longer changes.
        while session.cursors:
            await asyncio.sleep(0)
            session.close(STEP_CURSORS)

    def _new_id(self) -> int:
        taken = {session.id for session in self}
        while (session_id := self._broker.entropy.below(2**31)) in taken or session_id == NO_SESSION:
            pass
        return session_id
