"""Threads for file work that may block; results come back to the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

Result = TypeVar("Result")
Done = Callable[[Result | None, BaseException | None], None]


class LoopWorkers:
    """A few threads; results are delivered on the loop that submitted the work."""

    def __init__(self, thread_count: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(thread_count, thread_name_prefix=name)
        self._under_way: set[Future[Any]] = set()

    def submit(self, work: Callable[[], Result], done: Done[Result]) -> None:
        loop = asyncio.get_running_loop()

        def deliver(future: "Future[Result]") -> None:
            failure = future.exception()
            result = None if failure is not None else future.result()
            try:
                loop.call_soon_threadsafe(done, result, failure)
            except RuntimeError:
                # The loop is closed: results are no longer needed.
                if not loop.is_closed():
                    raise

        future = self._threads.submit(work)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        future.add_done_callback(deliver)

    @property
    def under_way(self) -> int:
        """How many calls of `submit` are queued or running."""
        return len(self._under_way)

    def run_all(self, works: Sequence[Callable[[], Result]]) -> list[Result | BaseException]:
        futures = [self._threads.submit(work) for work in works]
        return [future.exception() or future.result() for future in futures]

    def drain(self) -> None:
        wait(set(self._under_way))

    def close(self) -> None:
        """Accept no more work, and wait for that in progress."""
        self._threads.shutdown(wait=True)


class InlineWorkers:
    """Runs work synchronously, for tools without an event loop and for simulations."""

    def submit(self, work: Callable[[], Result], done: Done[Result]) -> None:
        try:
            result = work()
        except Exception as failure:  # noqa: BLE001 - any failure is passed to the submitter
            done(None, failure)
        else:
            done(result, None)

    def run_all(self, works: Sequence[Callable[[], Result]]) -> list[Result | BaseException]:
        outcomes: list[Result | BaseException] = []
        for work in works:
            try:
                outcomes.append(work())
            except Exception as failure:  # noqa: BLE001 - any failure is passed to the caller
                outcomes.append(failure)
        return outcomes

    def drain(self) -> None:
        return

    def close(self) -> None:
        return
