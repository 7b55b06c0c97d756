"""The contract between a coordinator's shard (a core) and its driver (a shell).

A shard is the state that one partition of an internal topic stands for. Requests, timers and loading all go
the same way:

    request or timer ──▶ shard decides ──▶ Decision
                                             │ 1. effects   set timers, answer requests that were parked
                                             │ 2. records   into the log as one batch, then `replay` of each
                                             │ 3. then      to `resume`, with the log's error if it refused
                                             ▼ 4. reply     to the caller
                                               later        to `committed`, where WhenCommitted asked for it
    loading ──▶ `replay` of every record in the log, `replay_end` of every transaction's end ──▶ `loaded`

1. Durable state changes by `replay` and by nothing else, and only with records that the log has taken. So a
   log that refuses needs no undoing: it is as if the question had not been asked.
2. Soft state (who waits, who has joined so far, deadlines) may change while deciding. It is never stored;
   after a failover the clients rebuild it, because their waiting requests fail.
3. No answer leaves before every record that the shard could have read is committed: an answer never rests on
   a tail that another leader may not have.
4. Time, identities and waiting requests come in as values. A shard has no clock, no randomness, no callbacks.
5. Records that belong to a producer's transaction say so by their place. What they mean before its end is the
   shard's affair; the end stands in the log as well, and comes by `replay_end`.
"""

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from runnel.model.errors import ErrorCode
from runnel.schemas.coordinator import RecordTypes
from runnel.wire import Data, Message

Reply = TypeVar("Reply")


@dataclass(slots=True)
class Moment:
    """One instant on two clocks: the one that stamps records, and the one that never goes back."""

    wall_ms: int
    steady_ms: int


class Timer(NamedTuple):
    """The name of a timer; setting it again moves it."""

    kind: str
    subject: str
    part: str = ""


@dataclass(slots=True)
class SetTimer:
    """Call `fired` with this name after the delay."""

    timer: Timer
    delay_ms: int


@dataclass(slots=True)
class CancelTimer:
    """Do not call; no matter if it was not set."""

    timer: Timer


@dataclass(slots=True)
class Answer:
    """Answer a request that was parked under this number."""

    waiter: int
    response: Message


@dataclass(slots=True)
class WhenCommitted:
    """Call `committed` with this token once all that the shard knows is committed, this decision included.

    If the log refuses the decision's records, it is not called. If the disk has trouble, it is called later;
    never if the log lost what the shard knows, or another node takes over: the shard is then loaded anew.
    """

    token: Any


class Order:
    """What only one kind of shard asks of the world; whoever makes its driver says who does it."""

    __slots__ = ()


Effect = SetTimer | CancelTimer | Answer | WhenCommitted | Order


class ProducerStamp(NamedTuple):
    """The producer in whose transaction records are written on its behalf."""

    producer_id: int
    producer_epoch: int


class Place(NamedTuple):
    """Where a record stands in the log, and in whose transaction; outside of one the producer is -1."""

    offset: int
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(slots=True)
class NewRecord:
    """A record for the shard's log; without a value it removes its key."""

    key: Data
    value: Data | None
    version: int = 0
    """The version to write the value in."""


@dataclass(slots=True)
class Decision(Generic[Reply]):
    """What a shard wants done, in the order of the contract."""

    reply: Reply | None = None
    """None parks the caller: a later Answer with its number is its reply."""
    effects: list[Effect] = field(default_factory=list)
    records: list[NewRecord] = field(default_factory=list)
    is_atomic: bool = True
    """All records stand in one batch; a clean-up that can stop halfway may be split."""
    stamp: ProducerStamp | None = None
    """Whose transaction the records are part of: they come into force by its end."""
    then: Any = None
    """What `resume` needs to know once the log has taken or refused the records."""

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.effects.append(SetTimer(timer, delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        self.effects.append(CancelTimer(timer))

    def answer(self, waiter: int, response: Message) -> None:
        self.effects.append(Answer(waiter, response))

    def when_committed(self, token: Any) -> None:
        self.effects.append(WhenCommitted(token))

    def order(self, order: Order) -> None:
        self.effects.append(order)


class Shard(Protocol):
    """What every coordinator offers its driver besides its own requests."""

    record_types: RecordTypes
    """The kinds of records it keeps."""
    can_skip_damage: bool
    """May it be loaded without a batch that cannot be read? Not if it could then decide otherwise."""

    def replay(self, key: Data, value: Data | None, place: Place) -> None:
        """The log holds this record there: the only way durable state changes, besides `replay_end`."""
        ...

    def replay_end(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """The log holds the end of this producer's transaction."""
        ...

    def resume(self, then: Any, error: ErrorCode | None, now: Moment) -> Decision[None]:
        """The log took the records of a decision, or refused them with `error`."""
        ...

    def committed(self, token: Any, now: Moment) -> Decision[None]:
        """What a WhenCommitted with this token waited for is committed."""
        ...

    def fired(self, timer: Timer, now: Moment) -> Decision[None]: ...

    def loaded(self, now: Moment) -> Decision[None]:
        """The whole log was replayed: take up what runs by the clock."""
        ...

    def unloaded(self) -> Decision[None]:
        """Another node takes over: whoever waits is sent there."""
        ...


_CLIENT_SEES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_error(error: ErrorCode) -> ErrorCode:
    """How a client of a coordinator hears of an error of the internal topic, which it knows nothing of."""
    return _CLIENT_SEES.get(error, error)
