"""Fetch sessions (KIP-227): what a consumer asked for last time, so that it need not say it again.

epoch -1  no session: the request names everything, an old session of the same id ends
epoch  0  the same, and a new session begins
epoch  n  only what changed since epoch n-1 is named; the answer holds only what has news
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from runnel.messages.fetch import FetchPartition, FetchRequest, PartitionData
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import FETCH_PARTITIONS_MAX
from runnel.ports.clock import Clock
from runnel.ports.entropy import Entropy

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1

EVICTION_MS_MIN = 120_000
"""A session that was used more recently than this does not make room for a new one, as in Kafka."""


@dataclass(slots=True)
class Wanted:
    """One partition that a fetch asks for, and what a session last said of it."""

    topic: str
    """Empty when the request names topics by id."""
    topic_id: bytes
    asked: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    is_unsaid: bool = True
    """No answer of the session has mentioned it yet."""

    def was_told(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the reader knows this already."""
        return (
            high_watermark == self.high_watermark
            and log_start_offset == self.log_start_offset
            and not self.is_unsaid
        )


Result = tuple[Wanted, PartitionData]
"""A wanted partition and its part of the answer."""


Key = tuple[str, bytes, int]


@dataclass(slots=True)
class FetchSession:
    """The partitions of one consumer, in the order in which they get their turn."""

    id: int
    uses_topic_ids: bool
    epoch: int
    used_at_ms: int
    partitions: dict[Key, Wanted] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Take in what an incremental request changes."""
        for wanted in wanted_by(request):
            key = (wanted.topic, wanted.topic_id, wanted.asked.partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = wanted
            else:
                known.asked = wanted.asked
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)

    def advance(self, now_ms: int) -> None:
        """A request of this epoch was accepted: the next one has the next epoch."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self.used_at_ms = now_ms

    def told(self, results: "Iterable[Result]") -> None:
        """Remember what an answer says; whoever has records in it goes to the end of the line."""
        for wanted, data in results:
            wanted.high_watermark = data.high_watermark
            wanted.log_start_offset = data.log_start_offset
            # After an error the next answer must speak of the partition again.
            wanted.is_unsaid = bool(data.error_code)
            if data.records:
                key = (wanted.topic, wanted.topic_id, wanted.asked.partition)
                if key in self.partitions:
                    self.partitions[key] = self.partitions.pop(key)


@dataclass(slots=True)
class FetchPlan:
    """What one fetch request comes to, session considered."""

    wanted: list[Wanted]
    session: FetchSession | None
    is_incremental: bool
    denied_topics: frozenset[str] = frozenset()
    """Topics of the session that the client may no longer read."""

    @property
    def session_id(self) -> int:
        return self.session.id if self.session else NO_SESSION


class FetchSessions:
    """All fetch sessions, bounded in number; the least recently used one stands first."""

    def __init__(self, slots_max: int, clock: Clock, entropy: Entropy) -> None:
        self._slots_max = slots_max
        self._clock = clock
        self._entropy = entropy
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, api_version: int) -> FetchPlan:
        """Find, make, advance or end the session of a request. Raises ApiError."""
        if api_version < 7 or request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            wanted = wanted_by(request)
            session = None
            if api_version >= 7 and request.session_epoch == INITIAL_EPOCH:
                session = self._begin(wanted, uses_topic_ids=api_version >= 13)
            return FetchPlan(wanted, session, is_incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if request.session_epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.uses_topic_ids != (api_version >= 13):
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session cannot mix topic names and topic ids"
            )
        session.update(request)
        del self._sessions[session.id]
        if len(session.partitions) > FETCH_PARTITIONS_MAX:
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"a fetch session has {FETCH_PARTITIONS_MAX} partitions at most",
            )
        if not session.partitions:
            # A session without partitions has nothing to remember.
            return FetchPlan([], None, is_incremental=False)
        self._sessions[session.id] = session
        session.advance(self._clock.monotonic_ms())
        return FetchPlan(list(session.partitions.values()), session, is_incremental=True)

    def topics_of(self, request: FetchRequest, api_version: int) -> "list[Wanted] | None":
        """What an incremental request may fetch without naming it; None if it belongs to no session."""
        if api_version < 7 or request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            return None
        session = self._sessions.get(request.session_id)
        return None if session is None else list(session.partitions.values())

    def is_current(self, session_id: int, epoch: int) -> bool:
        """Whether a request of this epoch is the next of a session that has one partition."""
        session = self._sessions.get(session_id)
        return session is not None and session.epoch == epoch and len(session.partitions) == 1

    def fetched(self, session_id: int, offset: int, high_watermark: int, log_start_offset: int) -> None:
        """The one partition of a session is answered with records from `offset`."""
        session = self._sessions.pop(session_id)
        self._sessions[session_id] = session
        session.advance(self._clock.monotonic_ms())
        (wanted,) = session.partitions.values()
        wanted.asked.fetch_offset = offset
        wanted.high_watermark = high_watermark
        wanted.log_start_offset = log_start_offset
        wanted.is_unsaid = False

    def _begin(self, wanted: list[Wanted], *, uses_topic_ids: bool) -> FetchSession | None:
        if not wanted:
            return None
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_at_ms < EVICTION_MS_MIN:
                return None
            del self._sessions[oldest.id]
        session_id = 0
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._entropy.below(2**31)
        session = FetchSession(session_id, uses_topic_ids, epoch=1, used_at_ms=now_ms)
        session.partitions = {(item.topic, item.topic_id, item.asked.partition): item for item in wanted}
        self._sessions[session_id] = session
        return session


def wanted_by(request: FetchRequest) -> list[Wanted]:
    """Every partition that the request itself names."""
    return [
        Wanted(topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
