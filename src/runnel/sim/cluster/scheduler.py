"""One scheduler for all processes of a simulation: virtual time, and an event loop for each process.

    ProcessLoop.call_soon, call_at ──► Scheduler: ready queue, timers ──► one callback at a time

A process that is killed runs no further callback; a paused one runs them all when it resumes. An event, and
all that follows from it before time passes, is one step of a process: the observer is called after each.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar

CALLBACKS_PER_INSTANT_MAX = 100_000
"""A process that runs this many callbacks while no time passes would never end."""

Result = TypeVar("Result")


class Stuck(Exception):
    """The simulation makes no progress in virtual time."""


class Scheduler:
    """Runs the callbacks of all processes in order of their virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        """Virtual seconds since the start of the simulation."""
        self.ran = 0
        """Number of callbacks so far."""
        self.observer: Callable[[ProcessLoop], None] = lambda loop: None
        """Called after each step of a process with its loop."""
        self.failure: BaseException | None = None
        self._ready: deque[tuple[ProcessLoop, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, ProcessLoop, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._loops: list[ProcessLoop] = []

    def process(self, name: str) -> "ProcessLoop":
        """A new event loop, for a process that starts now."""
        loop = ProcessLoop(self, name)
        self._loops.append(loop)
        return loop

    def fail(self, failure: BaseException) -> None:
        """End the simulation with this failure; the first one wins."""
        if self.failure is None:
            self.failure = failure

    def add_ready(self, loop: "ProcessLoop", handle: asyncio.Handle) -> None:
        """Run a callback at the current time, after those that are ready."""
        self._ready.append((loop, handle))

    def add_timer(self, loop: "ProcessLoop", handle: asyncio.TimerHandle) -> None:
        """Run a callback at its time."""
        self._timer_count += 1
        heappush(self._timers, (handle.when(), self._timer_count, loop, handle))

    def run_until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        """Run callbacks until `is_done` or the deadline; False if that came first. Raises the failure."""
        try:
            while not is_done():
                if self._ready:
                    self._run_ready()
                elif not self._timers or self._timers[0][0] > deadline:
                    self.now = max(self.now, deadline)
                    return False
                else:
                    self._advance()
                if self.failure is not None:
                    raise self.failure
            return True
        finally:
            asyncio._set_running_loop(None)

    def run_for(self, seconds: float) -> None:
        """Run all callbacks of the next seconds."""
        self.run_until(lambda: False, self.now + seconds)

    def discard(self) -> None:
        """End all processes and drop their callbacks."""
        for loop in self._loops:
            loop.kill()
        for loop in self._loops:
            loop.discard_tasks()
        self._ready.clear()
        self._timers.clear()

    def _advance(self) -> None:
        """Advance to the next timer, and make it ready with all others of that time."""
        self.now = max(self.now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self.now:
            _, _, loop, handle = heappop(self._timers)
            if not handle.cancelled():
                self._ready.append((loop, handle))

    def _run_ready(self) -> None:
        """Run what is ready, and what that makes ready, until time may pass or a failure is known."""
        ready, start = self._ready, self.ran
        touched: dict[ProcessLoop, None] = {}
        while ready and self.failure is None:
            loop, handle = ready.popleft()
            if handle.cancelled() or loop.is_dead:
                continue
            if loop.backlog is not None:
                loop.backlog.append(handle)
                continue
            asyncio._set_running_loop(loop)
            self.ran += 1
            handle._run()
            touched[loop] = None
            if self.ran - start > CALLBACKS_PER_INSTANT_MAX:
                raise Stuck(f"{loop.name} runs {handle} at {self.now:.3f} s without end")
        for loop in touched:
            self.observer(loop)


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one process: alive, paused or dead."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        super().__init__()
        self.name = name
        self.is_dead = False
        self.backlog: list[asyncio.Handle] | None = None
        """While the process is paused: the callbacks that are due."""
        self.connect: Callable[..., Coroutine[Any, Any, Any]] | None = None
        """Opens connections for `create_connection`."""
        self.tasks: set[asyncio.Task[Any]] = set()
        """Pending tasks: a task of a dead process is not destroyed before the simulation ends."""
        self._scheduler = scheduler

    # The process.

    def kill(self) -> None:
        """No callback of this process runs from now on."""
        self.is_dead = True

    def discard_tasks(self) -> None:
        """Close the coroutines of a dead process where they wait."""
        for task in list(self.tasks):
            # What they raise concerns only the dead process.
            with suppress(BaseException):
                task.get_coro().close()
        self.tasks.clear()

    def pause(self) -> None:
        """Callbacks wait for `resume`; time passes."""
        if self.backlog is None:
            self.backlog = []

    def resume(self) -> None:
        """Run what has become due."""
        due, self.backlog = self.backlog or [], None
        for handle in due:
            self._scheduler.add_ready(self, handle)

    # The interface of an event loop, as far as the broker uses it.

    def time(self) -> float:
        return self._scheduler.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._scheduler.add_ready(self, handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._scheduler.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._scheduler.add_timer(self, handle)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Result],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Result]":
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        assert self.connect is not None, "the process has no network"
        return await self.connect(*args, **kwargs)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that no task or callback handles is a bug, unless it is the end of the process."""
        failure = context.get("exception")
        if self.is_dead or (failure is not None and not isinstance(failure, Exception)):
            return
        message = context.get("message", "unhandled exception")
        bug = AssertionError(f"{self.name}: {message}: {failure!r}")
        bug.__cause__ = failure
        self._scheduler.fail(bug)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self.is_dead

    def __del__(self) -> None:
        """There is nothing to close."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""
