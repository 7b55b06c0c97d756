"""Samples the pauses of the event loop, as experienced by a request that arrives at any time.

    timer due ──late by what ran meanwhile──▶ fires ──one iteration of the loop──▶ next callback

Its cost does not depend on the number of requests: a timer and a callback, fifty times a second. Timing every
iteration of the loop would see every pause, but cost each small request 0.3 of its 7 microseconds.

What is detected, with an interval of 20 ms:

* A pause of more than an interval is always observed, shortened by what had passed before the timer was due:
  at most an interval, half of one on average.
* A shorter pause is observed with the probability that the timer is due in it (a pause of 2 ms: one in ten),
  also shortened. Lateness below the resolution of timers (1.5 ms) is not distinguished from none: such
  samples are the time of the loop's iteration in which the timer fired.
* So the counts are samples and not pauses: their shares are how long a request that arrives at a random
  moment waits for the loop. The longest pause is at most one interval longer than the longest sample.
"""

import asyncio
from time import perf_counter

from runnel.model.pauses import LoopPauses

INTERVAL_S = 0.02
TIMER_RESOLUTION_S = 0.0015
"""Event loops round timers to a millisecond: being late by less proves nothing."""


class LoopProbe:
    """Adds to a histogram until it is closed."""

    def __init__(self, pauses: LoopPauses) -> None:
        self._pauses = pauses
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._lateness_s = 0.0
        self._fired_s = 0.0
        self._wait()

    def _wait(self) -> None:
        self._due_s = perf_counter() + INTERVAL_S
        self._loop.call_later(INTERVAL_S, self._fired)

    def _fired(self) -> None:
        self._fired_s = perf_counter()
        late_s = self._fired_s - self._due_s
        self._lateness_s = late_s if late_s > TIMER_RESOLUTION_S else 0.0
        self._loop.call_soon(self._iterated)

    def _iterated(self) -> None:
        self._pauses.add(max(self._lateness_s, perf_counter() - self._fired_s))
        if not self._is_closed:
            self._wait()

    def close(self) -> None:
        """Stop sampling."""
        self._is_closed = True
