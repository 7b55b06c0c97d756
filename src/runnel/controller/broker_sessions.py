"""The sessions of brokers, which their heartbeats renew: state of the active controller that is in no log.

A session expires when no request of its broker arrived for the session timeout. The timeout of a broker that
sends heartbeats less often than this controller expects is longer, in the ratio of Kafka's defaults: a broker
of Kafka sends one every two seconds. A lost connection shortens the session: the process was killed, or it
reconnects at once.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runnel.controller.image import MetadataImage
from runnel.controller.values import BrokerRegistration

HEARTBEATS_PER_SESSION = 4.5
"""The ratio of Kafka's defaults, 9000 ms and 2000 ms."""
FIRST_CONTACT_TIMEOUT_MS = 9000
"""The least time that a broker has to find a new controller: its heartbeats may be seconds apart."""
UNKNOWN_INTERVAL_MS = 2000
"""The interval of the heartbeats of Kafka's brokers."""
INTERVALS = 5
"""The number of intervals between heartbeats whose median counts; it is robust against a delayed one."""
INTERVALS_MIN = 3


@dataclass(slots=True)
class Session:
    """The session of an unfenced broker."""

    epoch: int
    contact_ms: int
    """When its last request arrived, or when the session began."""
    ends_ms: float
    is_contacted: bool = False
    """Has a request of the broker arrived at this controller?"""
    heartbeat_ms: int = -1
    """When its last heartbeat was processed."""
    metadata_offset: int = -1
    """The last offset that it has applied."""
    shutdown_offset: int = -1
    """The last record of its controlled shutdown, which other brokers must apply before it stops."""
    intervals_ms: deque[int] = field(default_factory=lambda: deque(maxlen=INTERVALS))


class BrokerSessions:
    """The sessions of all brokers. Times are those of the monotonic clock."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}
        self.changing: set[int] = set()
        """Brokers whose state is being changed, in several steps."""

    def activated(
        self, brokers: Iterable[BrokerRegistration], now_ms: int, last_contact_ms: Mapping[int, int]
    ) -> None:
        """This controller is active now: each unfenced broker gets time to find it.

        For brokers whose last contact is known, such as the node of its predecessor, the session timeout
        begins with that.
        """
        self._sessions = {}
        for broker in brokers:
            if not broker.is_fenced:
                contact_ms = last_contact_ms.get(broker.id)
                if contact_ms is None:
                    ends_ms = now_ms + max(FIRST_CONTACT_TIMEOUT_MS, self._timeout_ms)
                else:
                    ends_ms = contact_ms + self._timeout_ms
                self._sessions[broker.id] = Session(broker.epoch, now_ms, ends_ms)

    def contacted(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A request of this broker arrived, though it may not be processed yet."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            return
        session.is_contacted = True
        session.contact_ms = now_ms
        session.ends_ms = now_ms + self._timeout_of(session)

    def heartbeat(self, broker: BrokerRegistration, metadata_offset: int, now_ms: int) -> None:
        """A heartbeat of an unfenced broker was processed."""
        session = self._sessions.get(broker.id)
        if session is None or session.epoch != broker.epoch:
            session = self._sessions[broker.id] = Session(broker.epoch, now_ms, 0, is_contacted=True)
        elif session.heartbeat_ms >= 0:
            session.intervals_ms.append(now_ms - session.heartbeat_ms)
        session.heartbeat_ms = now_ms
        session.metadata_offset = metadata_offset
        self.contacted(broker.id, broker.epoch, now_ms)

    def connection_lost(self, broker_id: int, now_ms: int, within_ms: int) -> None:
        """The connection of this broker was closed: the session ends unless a request arrives in this time.

        A broker whose heartbeats are further apart reconnects only for its next one, as Kafka's do.
        """
        session = self._sessions.get(broker_id)
        if session is not None:
            interval_ms = self._interval_of(session)
            from_ms = now_ms if interval_ms <= within_ms else max(now_ms, session.contact_ms + interval_ms)
            session.ends_ms = min(session.ends_ms, from_ms + within_ms)

    def is_silent(self, broker_id: int, since_ms: int) -> bool:
        """Has the broker a session, but sent no request after this time?"""
        session = self._sessions.get(broker_id)
        return session is not None and session.contact_ms <= since_ms

    def refused(self, broker_id: int, since_ms: int, now_ms: int) -> None:
        """The broker's address refuses connections: its process ended, unless a request arrived since."""
        if self.is_silent(broker_id, since_ms):
            session = self._sessions[broker_id]
            session.ends_ms = min(session.ends_ms, now_ms)

    def answered(self, broker_id: int) -> None:
        """The process of this broker is alive: it has the session timeout to send a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.ends_ms = max(session.ends_ms, session.contact_ms + self._timeout_ms)

    def contested(self, broker_id: int, now_ms: int) -> None:
        """Another process requests to register as this broker, which has probably restarted.

        A live broker sends a heartbeat when its next one is due.
        """
        session = self._sessions.get(broker_id)
        if session is not None:
            within_ms = 2 * self._interval_of(session) if session.is_contacted else self._timeout_ms
            session.ends_ms = min(session.ends_ms, now_ms + within_ms)

    def stopping(self, broker_id: int, offset: int) -> None:
        """The records of a controlled shutdown end at this offset; later ones do not count (KAFKA-14292)."""
        session = self._sessions.get(broker_id)
        if session is not None and session.shutdown_offset < 0:
            session.shutdown_offset = offset

    def ended(self, broker_id: int) -> None:
        """The broker is fenced, stopped or unregistered."""
        self._sessions.pop(broker_id, None)

    def is_live(self, broker_id: int, now_ms: int) -> bool:
        """Has the broker a session that has not expired?"""
        session = self._sessions.get(broker_id)
        return session is not None and session.ends_ms > now_ms

    def is_contacted(self, broker_id: int) -> bool:
        """Has a request of the broker arrived since this controller was elected?"""
        session = self._sessions.get(broker_id)
        return session is not None and session.is_contacted

    def expired(self, now_ms: int) -> int | None:
        """The broker whose session expired first, if one has.

        One at a time, so that each decision sees the effects of the one before.
        """
        broker_id = min(self._sessions, key=lambda each: self._sessions[each].ends_ms, default=None)
        if broker_id is None or self._sessions[broker_id].ends_ms > now_ms:
            return None
        return broker_id

    def first_expired_contact_ms(self, now_ms: int) -> int | None:
        """When the last request of the broker arrived whose session expired first, if one has."""
        broker_id = self.expired(now_ms)
        return None if broker_id is None else self._sessions[broker_id].contact_ms

    def next_expiry_ms(self) -> float | None:
        """When the next session expires, if no request arrives until then."""
        return min((session.ends_ms for session in self._sessions.values()), default=None)

    def shutdown_offset(self, broker_id: int) -> int:
        """The last record of a broker's controlled shutdown; -1 if it is not known."""
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.shutdown_offset

    def lowest_offset(self, image: MetadataImage) -> float:
        """All active brokers have applied the metadata up to this offset."""
        return min(
            (
                session.metadata_offset
                for broker_id, session in self._sessions.items()
                if image.is_active(broker_id)
            ),
            default=float("inf"),
        )

    def _interval_of(self, session: Session) -> int:
        """The time between two heartbeats; until it is known, that of Kafka's brokers."""
        return _median(session.intervals_ms) if session.intervals_ms else UNKNOWN_INTERVAL_MS

    def _timeout_of(self, session: Session) -> float:
        if len(session.intervals_ms) < INTERVALS_MIN:
            return max(FIRST_CONTACT_TIMEOUT_MS, self._timeout_ms)
        return max(self._timeout_ms, HEARTBEATS_PER_SESSION * _median(session.intervals_ms))


def _median(values: Iterable[int]) -> int:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0
