"""Fetch sessions (KIP-227): the partitions of a consumer's previous requests.

epoch -1  no session: the request names all partitions, an old session of the same id ends
epoch  0  the same, and a new session begins
epoch  n  only changes since epoch n-1 are named; the response contains only partitions with changes
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
"""The session epoch of a request without a session, which ends one if it has its id."""
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1

EVICTION_MS_MIN = 120_000
"""A session used more recently than this is not evicted, as in Kafka."""


@dataclass(slots=True)
class RequestedPartition:
    """A partition of a fetch request, and the values last returned by its session."""

    topic: str
    """Empty if the request uses topic ids."""
    topic_id: bytes
    asked: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    is_unsent: bool = True
    """Not yet included in a response of the session."""

    def is_unchanged(self, high_watermark: int, log_start_offset: int) -> bool:
        """True if the session has already returned these values."""
        return (
            high_watermark == self.high_watermark
            and log_start_offset == self.log_start_offset
            and not self.is_unsent
        )


Result = tuple[RequestedPartition, PartitionData]
"""A requested partition and its response."""


Key = tuple[str, bytes, int]


@dataclass(slots=True)
class FetchSession:
    """The partitions of one consumer, in round-robin order."""

    id: int
    uses_topic_ids: bool
    epoch: int
    used_at_ms: int
    partitions: dict[Key, RequestedPartition] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Apply the changes of an incremental request."""
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
        """A request was accepted: expect the next epoch."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self.used_at_ms = now_ms

    def record_response(self, results: "Iterable[Result]") -> None:
        """Record the returned values; partitions with records move to the end of the order."""
        for wanted, data in results:
            wanted.high_watermark = data.high_watermark
            wanted.log_start_offset = data.log_start_offset
            # After an error the next response includes the partition again.
            wanted.is_unsent = bool(data.error_code)
            if data.records:
                key = (wanted.topic, wanted.topic_id, wanted.asked.partition)
                if key in self.partitions:
                    self.partitions[key] = self.partitions.pop(key)


@dataclass(slots=True)
class FetchPlan:
    """The partitions to read for one request, with its session."""

    wanted: list[RequestedPartition]
    session: FetchSession | None
    is_incremental: bool
    readable_topics: frozenset[str] | None = None
    """The topics that the client may read; None if the request named only such topics."""

    @property
    def session_id(self) -> int:
        return self.session.id if self.session else NO_SESSION


class FetchSessions:
    """All fetch sessions, limited in number; the least recently used one is first."""

    def __init__(self, slots_max: int, clock: Clock, entropy: Entropy) -> None:
        self._slots_max = slots_max
        self._clock = clock
        self._entropy = entropy
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, api_version: int) -> FetchPlan:
        """Find, create, advance or close the session of a request. Raises ApiError."""
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
            # A session without partitions is not kept.
            return FetchPlan([], None, is_incremental=False)
        self._sessions[session.id] = session
        session.advance(self._clock.monotonic_ms())
        return FetchPlan(list(session.partitions.values()), session, is_incremental=True)

    def end(self, session: FetchSession) -> None:
        """The client does not learn about a session that has just begun."""
        self._sessions.pop(session.id, None)

    def topics_of(self, request: FetchRequest, api_version: int) -> "list[RequestedPartition] | None":
        """The partitions of an incremental request's session; None if it has none."""
        if api_version < 7 or request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            return None
        session = self._sessions.get(request.session_id)
        return None if session is None else list(session.partitions.values())

    def is_current(self, session_id: int, epoch: int, key: Key) -> bool:
        """True if this epoch is the next of a session that has this partition and no other."""
        session = self._sessions.get(session_id)
        return (
            session is not None
            and session.epoch == epoch
            and len(session.partitions) == 1
            and key in session.partitions
        )

    def fetched(
        self, session_id: int, asked: FetchPartition, high_watermark: int, log_start_offset: int
    ) -> None:
        """The only partition of a session was requested in this way and returned records."""
        session = self._sessions.pop(session_id)
        self._sessions[session_id] = session
        session.advance(self._clock.monotonic_ms())
        (wanted,) = session.partitions.values()
        wanted.asked = asked
        wanted.high_watermark = high_watermark
        wanted.log_start_offset = log_start_offset
        wanted.is_unsent = False

    def _begin(self, wanted: list[RequestedPartition], *, uses_topic_ids: bool) -> FetchSession | None:
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


def wanted_by(request: FetchRequest) -> list[RequestedPartition]:
    """All partitions of the request itself."""
    return [
        RequestedPartition(topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
