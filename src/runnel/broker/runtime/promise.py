"""A value that is not known yet: what a handler returns besides a response.

    pending ──resolve(value)──▶ resolved ──▶ the callback, once
       │ ─────fail(error)─────▶ failed   ──▶ the callback, once, with the exception
       └──────garbage collected before either: the callback gets BrokenPromise

A continuation (`chain`, `gather`) that raises fails the promise that it was to resolve, so that no connection
waits forever.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

T = TypeVar("T")
U = TypeVar("U")


class BrokenPromise(Exception):
    """A promise was dropped, or its task cancelled, before it had an outcome: a bug, or the broker stops."""


class _Pending:
    """The outcome of a promise that has none."""


_PENDING = _Pending()


class Promise(Generic[T]):
    """A value of type T or an exception, available now or later."""

    __slots__ = ("_callback", "_loop", "_outcome")

    mutes_connection = True
    """Does the next request of the connection wait for this one? Not for produce, to share one sync."""

    def __init__(self) -> None:
        self._callback: Callable[[T | Exception], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the callback waits."""
        self._outcome: T | Exception | _Pending = _PENDING

    @property
    def is_settled(self) -> bool:
        return self._outcome is not _PENDING

    def resolve(self, value: T) -> None:
        """Resolve with a value."""
        self._settle(value)

    def fail(self, error: Exception) -> None:
        """Fail with an exception."""
        self._settle(error)

    def on_settled(self, callback: Callable[[T | Exception], None]) -> None:
        """Pass the outcome to `callback`, now if it is known. A promise has one callback."""
        assert self._callback is None, "a promise has one callback"
        self._callback = callback
        if isinstance(self._outcome, _Pending):
            self._loop = asyncio._get_running_loop()
        else:
            callback(self._outcome)

    def abandon(self) -> None:
        """Discard the outcome: the connection is closed."""
        self._callback = None

    def _settle(self, outcome: T | Exception) -> None:
        assert self._outcome is _PENDING, "a promise is settled once"
        self._outcome = outcome
        if self._callback is not None:
            self._callback(outcome)

    def __del__(self) -> None:
        # The event loop is closed: no callback is needed.
        if (
            self._callback is not None
            and self._outcome is _PENDING
            and self._loop is not None
            and self._loop is asyncio._get_running_loop()
        ):
            self._callback(BrokenPromise("the request was dropped without an answer"))


MaybePromise: TypeAlias = T | Promise[T]
"""A value that may be known at once."""


@overload
def chain(value: Promise[T], step: Callable[[T], MaybePromise[U]]) -> Promise[U]: ...
@overload
def chain(value: MaybePromise[T], step: Callable[[T], MaybePromise[U]]) -> MaybePromise[U]: ...
def chain(value: MaybePromise[T], step: Callable[[T], MaybePromise[U]]) -> MaybePromise[U]:
    """Continue with a value that may not be known yet; the step may return a promise as well."""
    if not isinstance(value, Promise):
        return step(value)
    whole: Promise[U] = Promise()

    def settled(outcome: T | Exception) -> None:
        if isinstance(outcome, Exception):
            whole.fail(outcome)
            return
        try:
            result = step(outcome)
        except Exception as error:  # noqa: BLE001 - the consumer of the promise gets it
            whole.fail(error)
            return
        forward(result, whole)

    value.on_settled(settled)
    return whole


def forward(value: MaybePromise[U], promise: Promise[U]) -> None:
    """Settle `promise` with a value that may not be known yet."""
    if isinstance(value, Promise):
        value.on_settled(promise._settle)
    else:
        promise.resolve(value)


def gather(parts: Iterable[MaybePromise[T]], combine: Callable[[list[T]], U]) -> MaybePromise[U]:
    """Combine values, some of which may not be known yet. The first failure is the failure of the whole."""
    known = list(parts)
    missing = [index for index, part in enumerate(known) if isinstance(part, Promise)]
    if not missing:
        return combine(cast("list[T]", known))
    whole: Promise[U] = Promise()
    outstanding = len(missing)

    def settled(index: int, outcome: T | Exception) -> None:
        nonlocal outstanding
        outstanding -= 1
        if whole.is_settled:
            return
        if isinstance(outcome, Exception):
            whole.fail(outcome)
            return
        known[index] = outcome
        if outstanding == 0:
            try:
                result = combine(cast("list[T]", known))
            except Exception as error:  # noqa: BLE001 - the consumer of the promise gets it
                whole.fail(error)
            else:
                whole.resolve(result)

    for index in missing:
        cast("Promise[T]", known[index]).on_settled(partial(settled, index))
    return whole


@overload
async def settled(value: Promise[T]) -> T: ...
@overload
async def settled(value: MaybePromise[T]) -> T: ...
async def settled(value: MaybePromise[T]) -> T:
    """Await a value that may not be known yet. Raises its exception."""
    if not isinstance(value, Promise):
        return value
    known: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def arrived(outcome: T | Exception) -> None:
        if known.done():
            return
        if isinstance(outcome, Exception):
            known.set_exception(outcome)
        else:
            known.set_result(outcome)

    value.on_settled(arrived)
    return await known


def in_task(coroutine: Coroutine[Any, Any, T], tasks: set["asyncio.Task[Any]"]) -> Promise[T]:
    """Run a coroutine; `tasks` keeps it alive, since the event loop has only weak references to tasks."""
    promise: Promise[T] = Promise()
    task = asyncio.get_running_loop().create_task(coroutine)
    tasks.add(task)

    def done(task: "asyncio.Task[T]") -> None:
        tasks.discard(task)
        if task.cancelled():
            promise.fail(BrokenPromise("the task was cancelled"))
            return
        error = task.exception()
        if error is None:
            promise.resolve(task.result())
        elif isinstance(error, Exception):
            promise.fail(error)
        else:
            raise error

    task.add_done_callback(done)
    return promise
