"""The contract between a coordinator shard (a core) and its driver (a shell).

A shard is the state machine of one partition of an internal topic. Requests, timers and loading take one
path:

    request or timer ──▶ shard ──▶ CoordinatorResult
                                     │ 1. effects        set timers, complete parked requests
                                     │ 2. records        appended as one batch, then `replay` of each
                                     │ 3. continuation   to `resume`, with the error if the append failed
                                     ▼ 4. response       returned to the caller
                                       later             `committed`, if WhenCommitted was requested
    loading ──▶ `replay` of every record, `replay_end` of every transaction marker ──▶ `loaded`
                    except for records that `defer` keeps, until `replay_deferred`

1. Durable state changes only in `replay` and `replay_end`, and only with records that were appended. A failed
   append therefore needs no rollback.
2. Soft state (parked requests, members that have joined, deadlines) may change while a request is handled. It
   is never stored; after a failover clients rebuild it, because their parked requests fail.
3. No response is sent before every record that the shard could have read is committed: a response never
   depends on a log tail that another leader may not have.
4. Time, ids and parked requests are arguments. A shard has no clock, no randomness and no callbacks.
5. Records of a producer's transaction carry its id and epoch in their ReplayContext. The shard decides what
   they mean before the transaction ends; `replay_end` reports the end.
"""

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from runnel.model.errors import ErrorCode
from runnel.schemas.coordinator import RecordTypes
from runnel.wire import Data, Message

Response = TypeVar("Response")


@dataclass(slots=True)
class Moment:
    """One instant on two clocks: wall-clock time, which stamps records, and monotonic time."""

    wall_ms: int
    steady_ms: int


class Timer(NamedTuple):
    """The key of a timer; setting a timer again reschedules it."""

    kind: str
    subject: str
    part: str = ""


@dataclass(slots=True)
class SetTimer:
    """Call `fired` with this timer after the delay."""

    timer: Timer
    delay_ms: int


@dataclass(slots=True)
class CancelTimer:
    """Cancel the timer if it is set."""

    timer: Timer


@dataclass(slots=True)
class Respond:
    """Complete the request that was parked under this id."""

    waiter: int
    response: Message


@dataclass(slots=True)
class WhenCommitted:
    """Call `committed` with this token once all records of the shard, including this result's, are committed.

    It is not called if the append fails. If an fsync fails it is called later; it is never called if records
    were lost or another node takes over, in which case the shard is reloaded.
    """

    token: Any


class ShardEffect:
    """An effect that only one kind of shard has; the creator of its driver provides the implementation."""

    __slots__ = ()


Effect = SetTimer | CancelTimer | Respond | WhenCommitted | ShardEffect


class ProducerIdAndEpoch(NamedTuple):
    """The producer in whose transaction records are written on its behalf."""

    producer_id: int
    producer_epoch: int


class ReplayContext(NamedTuple):
    """The offset of a replayed record, and the producer if it is part of a transaction (otherwise -1)."""

    offset: int
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(slots=True)
class NewRecord:
    """A record to append to the shard's log; without a value it is a tombstone."""

    key: Data
    value: Data | None
    version: int = 0
    """The version in which the value is encoded."""


@dataclass(slots=True)
class CoordinatorResult(Generic[Response]):
    """The output of a shard; the driver carries it out in the order of the contract."""

    response: Response | None = None
    """None parks the request until a later Respond completes it."""
    effects: list[Effect] = field(default_factory=list)
    records: list[NewRecord] = field(default_factory=list)
    is_atomic: bool = True
    """All records go into one batch; a cleanup that may stop halfway can be split."""
    producer: ProducerIdAndEpoch | None = None
    """The records are part of this producer's open transaction and take effect when it commits."""
    continuation: Any = None
    """Passed to `resume` once the records are appended or the append has failed."""

    def set_timer(self, timer: Timer, delay_ms: int) -> None:
        self.effects.append(SetTimer(timer, delay_ms))

    def cancel_timer(self, timer: Timer) -> None:
        self.effects.append(CancelTimer(timer))

    def respond(self, waiter: int, response: Message) -> None:
        self.effects.append(Respond(waiter, response))

    def when_committed(self, token: Any) -> None:
        self.effects.append(WhenCommitted(token))

    def add_effect(self, effect: ShardEffect) -> None:
        self.effects.append(effect)


class Shard(Protocol):
    """What every coordinator offers its driver besides its own requests."""

    record_types: RecordTypes
    """The record types of its topic."""
    can_skip_corrupt_batches: bool
    """Whether loading may skip unreadable batches. Not if it might contradict past results."""

    def replay(self, key: Data, value: Data | None, context: ReplayContext) -> None:
        """Apply a record of the log; apart from `replay_end` the only way in which durable state changes."""
        ...

    def replay_end(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Apply the end of this producer's transaction."""
        ...

    def defer(self, key: bytes, value: bytes | None, offset: int) -> bool:
        """While loading, keep an encoded record outside of transactions that later ones may supersede.

        False if it must be replayed now.
        """
        ...

    def replay_deferred(self, count: int) -> bool:
        """Replay at most `count` of the records that were kept; returns whether there are more.

        Raises MalformedMessage for a corrupt record, which is not kept any longer.
        """
        ...

    def resume(self, continuation: Any, error: ErrorCode | None, now: Moment) -> CoordinatorResult[None]:
        """The records of a result were appended, or the append failed with `error`."""
        ...

    def committed(self, token: Any, now: Moment) -> CoordinatorResult[None]:
        """The records that the WhenCommitted with this token waited for are committed."""
        ...

    def fired(self, timer: Timer, now: Moment) -> CoordinatorResult[None]: ...

    def loaded(self, now: Moment) -> CoordinatorResult[None]:
        """The whole log was replayed: start the timers."""
        ...

    def unloaded(self) -> CoordinatorResult[None]:
        """Another node takes over: fail the parked requests with NOT_COORDINATOR."""
        ...


_CLIENT_ERRORS = {
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
    """The error for a coordinator's client when an append to the internal topic fails with `error`."""
    return _CLIENT_ERRORS.get(error, error)
