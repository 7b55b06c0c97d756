"""The driver of a coordinator shard: executes the results of its operations.

The order is what makes a shard trustworthy (see `runnel.coordinator.contract`):

    effects → batch into the log → replay → resume → the reply, held back until the log's end is committed
                                                     and `committed`, likewise

A driver belongs to one leader epoch of its partition. Without the leadership it writes nothing, sends no
response and does not call `committed`, even if the high watermark advances.

A batch is written at once, not at the end of the turn. So if the log rejects it, the shard is
unchanged and no request has read uncommitted state; otherwise the next request of the turn already sees it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from runnel.batch.build import build_batch
from runnel.batch.header import NO_PRODUCER
from runnel.batch.records import Record
from runnel.broker.runtime.promise import MaybePromise, Promise
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.coordinator.contract import (
    CancelTimer,
    CoordinatorResult,
    Moment,
    NewRecord,
    ReplayContext,
    Respond,
    SetTimer,
    Shard,
    ShardEffect,
    Timer,
    WhenCommitted,
    client_error,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.clock import Clock, TimerHandle, Timers
from runnel.schemas.coordinator import encode_key, encode_value

AnyShard = TypeVar("AnyShard", bound=Shard)
T = TypeVar("T")
Refuse = Callable[[ErrorCode], T]
"""Builds an error response."""

_AWAIT_AGAIN_MS = 1000
"""Retry interval after a failed sync that a shard waits for."""

_NEVER_REACHED = 2**63 - 1
"""An offset beyond the end of every log."""

_HELD_MIN = 64
"""Number of held responses from which answered ones are looked for."""

_RECORDS_PER_BATCH = 500
"""Maximum size of a batch of a result that may be split, well below any max.message.bytes."""


class _Held(Generic[T]):
    """A response that is sent when the records it depends on are committed, or an error after a timeout."""

    __slots__ = ("_promise", "_refuse", "_reply", "_timer", "end_offset")

    def __init__(
        self,
        end_offset: int,
        promise: Promise[T],
        reply: T,
        refuse: Refuse[T],
        timers: Timers,
        timeout_ms: int,
    ) -> None:
        self.end_offset = end_offset
        self._promise = promise
        self._reply = reply
        self._refuse = refuse
        self._timer: TimerHandle | None = timers.call_later(timeout_ms, self._expired)

    @property
    def is_answered(self) -> bool:
        return self._timer is None

    def committed(self) -> None:
        self._resolve(self._reply)

    def failed(self, error: ApiError) -> None:
        self._resolve(self._refuse(client_error(error.error)))

    def _expired(self) -> None:
        # The records may be committed later: the outcome is unknown, and the client retries.
        self._resolve(self._refuse(client_error(ErrorCode.REQUEST_TIMED_OUT)))

    def _resolve(self, reply: T) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._promise.resolve(reply)


class _Awaited:
    """A callback to a shard when all records it knew at some time are committed, or have failed."""

    __slots__ = ("_lost", "_on_committed", "end_offset")

    def __init__(self, end_offset: int, on_committed: Callable[[], None], lost: Callable[[], None]) -> None:
        self.end_offset = end_offset
        self._on_committed: Callable[[], None] | None = on_committed
        self._lost = lost

    def committed(self) -> None:
        on_committed, self._on_committed = self._on_committed, None
        if on_committed is not None:
            on_committed()

    def failed(self, error: ApiError) -> None:
        if self._on_committed is not None:
            self._on_committed = None
            self._lost()


class ShardDriver(Generic[AnyShard]):
    """A shard, its partition, its timers and its parked requests."""

    def __init__(
        self,
        shard: AnyShard,
        partition: ReplicatedLog,
        clock: Clock,
        timers: Timers,
        commit_timeout_ms: int,
        compression: int,
        run_shard_effect: Callable[[ShardEffect], None] | None = None,
        on_appended: Callable[[CoordinatorResult[Any]], None] | None = None,
    ) -> None:
        self.shard = shard
        self.partition = partition
        self.epoch = partition.epoch
        """The leader epoch in which the shard was loaded, which is its coordinator epoch."""
        self.is_loaded = False
        self._clock = clock
        self._timers = timers
        self.commit_timeout_ms = commit_timeout_ms
        self._compression = compression
        self._run_shard_effect = run_shard_effect
        self._on_appended = on_appended
        self._end_offset = partition.log.end_offset
        """End offset of the records replayed into the shard."""
        self._running: dict[Timer, TimerHandle] = {}
        self._parked: dict[int, tuple[Promise[Any], Refuse[Any]]] = {}
        self._last_waiter = 0
        self._held: list[_Held[Any]] = []
        """Responses that wait for a commit; answered ones are removed periodically."""
        self._held_max = _HELD_MIN

    @property
    def is_leading(self) -> bool:
        """True while this node leads the partition in the epoch of this driver."""
        return self.partition.is_leader and self.partition.epoch == self.epoch

    @property
    def is_ahead(self) -> bool:
        """True if the shard has replayed records that its log has lost: it must be reloaded."""
        return self.partition.log.end_offset < self._end_offset

    def now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    def loaded(self, replayed_offset: int = 0) -> None:
        """The log was replayed completely, up to `replayed_offset`: start to serve."""
        self._end_offset = max(replayed_offset, self.partition.log.end_offset)
        self.is_loaded = True
        self._carry_out(self.shard.loaded(self.now()))

    def close(self) -> None:
        """Stop serving: fail pending requests and cancel timers. A second call does nothing."""
        self.is_loaded = False
        for handle in self._running.values():
            handle.cancel()
        self._running.clear()
        held, self._held = self._held, []
        for response in held:
            response.failed(ApiError(ErrorCode.NOT_COORDINATOR))
        # A client that gets its response may come back at once, to another driver.
        parked, self._parked = self._parked, {}
        for effect in self.shard.unloaded().effects:
            if isinstance(effect, Respond) and effect.waiter in parked:
                parked.pop(effect.waiter)[0].resolve(effect.response)
        for promise, refuse in parked.values():
            promise.resolve(refuse(ErrorCode.NOT_COORDINATOR))

    def park(self, refuse: Refuse[Any]) -> int:
        """A number under which the shard can park the next request."""
        self._last_waiter += 1
        self._parked[self._last_waiter] = Promise(), refuse
        return self._last_waiter

    def unpark(self, waiter: int) -> None:
        """The request with this number was rejected immediately."""
        self._parked.pop(waiter, None)

    def decide(
        self, decision: CoordinatorResult[T], refuse: Refuse[T], waiter: int | None = None
    ) -> MaybePromise[T]:
        """Execute a result; returns the response or a promise of it."""
        promise = self._parked[waiter][0] if waiter is not None else None
        error = self._carry_out(decision)
        if decision.response is None and promise is not None:
            return promise
        if waiter is not None:
            self.unpark(waiter)
        if error is not None:
            return refuse(client_error(error))
        assert decision.response is not None, "only a parked request may be answered later"
        return self.hold(decision.response, refuse)

    def hold(self, reply: T, refuse: Refuse[T]) -> MaybePromise[T]:
        """A response as soon as all replayed records are committed, usually immediately."""
        if not self.is_leading:
            return refuse(ErrorCode.NOT_COORDINATOR)
        if self._end_offset <= self.partition.high_watermark:
            return reply
        promise: Promise[T] = Promise()
        self._hold(promise, reply, refuse)
        return promise

    def run(self, decision: CoordinatorResult[None]) -> None:
        """Execute a result without a response."""
        self._carry_out(decision)

    def transaction_ended(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """A marker was appended to the partition."""
        if not self.is_loaded:
            return
        end_offset = self.partition.log.end_offset
        if end_offset <= self._end_offset:
            # Its offset is that of lost records: replaying it would hide that the shard is ahead of its log.
            self._end_offset = _NEVER_REACHED
            return
        self._end_offset = end_offset
        self.shard.replay_end(producer_id, producer_epoch, is_commit)

    def _carry_out(self, decision: CoordinatorResult[Any]) -> ErrorCode | None:
        awaited: list[Any] = []
        for effect in decision.effects:
            match effect:
                case SetTimer(timer, delay_ms):
                    self._set_timer(timer, delay_ms)
                case CancelTimer(timer):
                    self._cancel_timer(timer)
                case Respond(waiter, response):
                    self._answer(waiter, response)
                case WhenCommitted(token):
                    awaited.append(token)
                case ShardEffect():
                    assert self._run_shard_effect is not None, f"no executor for {effect}"
                    self._run_shard_effect(effect)
        error = self._append(decision) if decision.records else None
        if decision.continuation is not None:
            seen = None if error is None else client_error(error)
            self._carry_out(self.shard.resume(decision.continuation, seen, self.now()))
        if error is None:
            for token in awaited:
                self._await(token)
        return error

    def _append(self, decision: CoordinatorResult[Any]) -> ErrorCode | None:
        if self.is_ahead or not self.is_leading:
            # The result depends on records that were lost, or that another leader may not have.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        now_ms = self._clock.now_ms()
        producer_id, producer_epoch = decision.producer or (NO_PRODUCER, -1)
        for records in _batches(decision):
            batch = build_batch(
                (_record(record, now_ms) for record in records),
                compression=self._compression,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=decision.producer is not None,
            )
            try:
                staged = self.partition.append_now(batch)
            except ApiError as error:
                return error.error
            self._end_offset = staged.last_offset + 1
            for offset, record in enumerate(records, staged.base_offset):
                self.shard.replay(
                    record.key, record.value, ReplayContext(offset, producer_id, producer_epoch)
                )
        if self._on_appended is not None:
            self._on_appended(decision)
        return None

    def _answer(self, waiter: int, response: Any) -> None:
        parked = self._parked.pop(waiter, None)
        if parked is None:
            return
        promise, refuse = parked
        if not self.is_leading:
            promise.resolve(refuse(ErrorCode.NOT_COORDINATOR))
        elif self._end_offset <= self.partition.high_watermark:
            promise.resolve(response)
        else:
            self._hold(promise, response, refuse)

    def _hold(self, promise: Promise[T], reply: T, refuse: Refuse[T]) -> None:
        held = _Held(self._end_offset, promise, reply, refuse, self._timers, self.commit_timeout_ms)
        if len(self._held) >= self._held_max:
            self._held = [other for other in self._held if not other.is_answered]
            self._held_max = max(_HELD_MIN, 2 * len(self._held))
        self._held.append(held)
        self.partition.when_committed(held)

    def _set_timer(self, timer: Timer, delay_ms: int) -> None:
        self._cancel_timer(timer)
        self._running[timer] = self._timers.call_later(delay_ms, partial(self._fired, timer))

    def _cancel_timer(self, timer: Timer) -> None:
        handle = self._running.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _await(self, token: Any) -> None:
        on_committed, again = partial(self._committed, token), partial(self._await_later, token)
        self.partition.when_committed(_Awaited(self._end_offset, on_committed, again))

    def _await_later(self, token: Any) -> None:
        if self.is_loaded:
            self._timers.call_later(_AWAIT_AGAIN_MS, partial(self._await_again, token))

    def _await_again(self, token: Any) -> None:
        if self.is_loaded:
            self._await(token)
            self.partition.commit_stored()

    def _committed(self, token: Any) -> None:
        if self.is_loaded and self.is_leading:
            self._carry_out(self.shard.committed(token, self.now()))

    def _fired(self, timer: Timer) -> None:
        if self._running.pop(timer, None) is not None:
            self._carry_out(self.shard.fired(timer, self.now()))


def _batches(decision: CoordinatorResult[Any]) -> Iterator[list[NewRecord]]:
    if decision.is_atomic:
        yield decision.records
        return
    for start in range(0, len(decision.records), _RECORDS_PER_BATCH):
        yield decision.records[start : start + _RECORDS_PER_BATCH]


def _record(record: NewRecord, now_ms: int) -> Record:
    value = None if record.value is None else encode_value(record.value, record.version)
    return Record(0, now_ms, encode_key(record.key), value)
