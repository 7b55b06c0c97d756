"""Waiting requests: long polls, one per connection, each with a deadline.

A partition whose high watermark advances wakes its watchers at the end of the turn.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from runnel.broker.runtime.promise import Promise, forward
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.ports.clock import TimerHandle, Timers
from runnel.ports.service import Session

T = TypeVar("T")
Attempt = Callable[[bool], T | Promise[T] | None]
"""Called with whether the deadline is over: the response, its promise, or None to keep waiting."""


class LongPoll(Promise[T]):
    """A request that waits for a change of its partitions or for its deadline."""

    __slots__ = ("_attempt", "_partitions", "_session", "_timer", "_waiting")

    def __init__(self, waiting: "Waiting", session: Session, attempt: Attempt[T]) -> None:
        super().__init__()
        self._waiting = waiting
        self._session = session
        self._attempt = attempt
        self._partitions: list[ReplicatedLog] = []
        self._timer: TimerHandle | None = None

    def start(self, partitions: Iterable[ReplicatedLog], wait_ms: int) -> None:
        """Watch these partitions until the deadline."""
        for partition in partitions:
            partition.watchers[self] = None
            self._partitions.append(partition)
        self._timer = self._waiting.timers.call_later(wait_ms, self.expire)
        self._waiting.polls[self._session] = self

    def try_complete(self) -> None:
        """A watched partition changed: try to complete."""
        self._try(False)

    def expire(self) -> None:
        """The deadline is over, or the broker is stopping: complete with the available data."""
        self._try(True)

    def stop_watching(self) -> None:
        """Stop watching."""
        for partition in self._partitions:
            partition.watchers.pop(self, None)
        self._partitions = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting.polls.get(self._session) is self:
            del self._waiting.polls[self._session]

    def _try(self, is_expired: bool) -> None:
        if self._timer is None:
            return
        try:
            response = self._attempt(is_expired)
        except Exception as error:  # noqa: BLE001 - reported through the promise
            self.stop_watching()
            self.fail(error)
            return
        if response is not None:
            self.stop_watching()
            forward(response, self)


class Waiting:
    """All long polls of this broker."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.polls: dict[Session, LongPoll[Any]] = {}

    def disconnected(self, session: Session) -> None:
        """The connection was closed."""
        poll = self.polls.get(session)
        if poll is not None:
            poll.stop_watching()
            poll.abandon()

    def expire_all(self) -> None:
        """The broker is stopping: complete all long polls with the available data."""
        for poll in list(self.polls.values()):
            poll.expire()
