"""Whether the event loop polls for the next request instead of sleeping until it arrives.

    response sent ─► poll for POLL_S ─► request arrived: serve it, poll again
                                     └─► none arrived: sleep, and poll after fewer of the next responses

A client with one request in flight sends the next one some tens of microseconds after a response. To sleep
meanwhile costs about as much as that: the core goes idle, and has to be woken. While it polls, the event loop
serves all connections, timers and threads as always; only its waits have a timeout of zero.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter

POLL_S = 0.0001
"""For how long a request is awaited. On loopback it takes about 40 µs."""

SKIPPED_MAX = 127
"""Slower clients cost at most one unsuccessful poll in this many responses: less than 1 µs each."""


class BusyPoll:
    """Keeps an event loop from sleeping for a moment after a response, for as long as that proves useful."""

    __slots__ = ("_is_polling", "_loop", "_now_s", "_skipped", "_skips", "_until_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, now_s: Callable[[], float] = perf_counter) -> None:
        self._loop = loop
        self._now_s = now_s
        self._is_polling = False
        self._until_s = 0.0
        self._skips = 0
        """Number of responses that are not followed by a poll after the last poll found nothing."""
        self._skipped = 0

    def response_sent(self) -> None:
        """The loop has answered what it received, and has nothing else to do."""
        if self._is_polling:
            # A request arrived during the poll. Fewer than half of them is not worth the polls.
            self._skips -= self._skips > 0
        elif self._skipped < self._skips:
            self._skipped += 1
            return
        else:
            self._is_polling = True
            self._loop.call_soon(self._poll)
        self._until_s = self._now_s() + POLL_S

    def _poll(self) -> None:
        if self._now_s() < self._until_s:
            # A callback that is due makes the loop look for events without waiting for them.
            self._loop.call_soon(self._poll)
            return
        self._is_polling = False
        self._skipped = 0
        self._skips = min(2 * self._skips + 1, SKIPPED_MAX)
