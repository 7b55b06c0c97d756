"""An event loop whose time is made up: it passes only while everybody waits, and then at once."""

import asyncio
from typing import Any


class NothingWillHappen(Exception):
    """Everybody waits and no timer is set: the simulated world is stuck."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of their virtual times; no sockets, no threads, no waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_seconds = 0.0
        # The base class asks this for what happened outside; outside there is nothing but time.
        self._selector = _TimePasses(self)

    def time(self) -> float:
        return self._virtual_seconds

    def pass_time(self, seconds: float | None) -> None:
        """Nothing is ready before this many seconds are over."""
        if seconds is None:
            raise NothingWillHappen
        self._virtual_seconds += seconds

    def _process_events(self, events: list[Any]) -> None:
        assert not events

    def _write_to_self(self) -> None:
        # Only other threads need to wake the loop, and there are none.
        return


class _TimePasses:
    """A selector that never selects anything."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.pass_time(timeout)
        return []
