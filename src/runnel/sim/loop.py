"""An event loop with virtual time, which advances only when no callback is ready."""

import asyncio
from collections.abc import Callable
from typing import Any


class Deadlock(Exception):
    """No callback is ready, and no timer is set, or the process has crashed."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in order of their virtual time, without sockets, threads or waiting."""

    def __init__(self, has_crashed: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self._virtual_seconds = 0.0
        self._has_crashed = has_crashed
        # The base class polls its selector for I/O; here only time advances.
        self._selector = _VirtualSelector(self)

    def time(self) -> float:
        return self._virtual_seconds

    def advance(self, seconds: float | None) -> None:
        """Advance the clock to the next timer."""
        if seconds is None or self._has_crashed():
            raise Deadlock
        self._virtual_seconds += seconds

    def _process_events(self, events: list[Any]) -> None:
        assert not events

    def _write_to_self(self) -> None:
        # Only needed to wake the loop from other threads, and there are none.
        return


class _VirtualSelector:
    """A selector that advances time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.advance(timeout)
        return []
