"""Logging of unexpected exceptions with tracebacks, rate-limited: a client may be able to repeat one."""

import logging

from runnel.ports.clock import Clock

TRACEBACKS_PER_MINUTE_MAX = 10
"""Tracebacks logged in a minute; further ones are counted, as they could fill the disk."""
MINUTE_MS = 60_000

log = logging.getLogger("runnel.broker")


class BugReports:
    """The unexpected exceptions of one broker."""

    __slots__ = ("_clock", "_count", "_since_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        """Exceptions since `_since_ms`."""
        self._since_ms = 0

    def report(self, bug: Exception, message: str, *arguments: object) -> None:
        """Log a bug with its traceback; above the rate only at DEBUG, without."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms >= MINUTE_MS:
            if self._count > TRACEBACKS_PER_MINUTE_MAX:
                count = self._count - TRACEBACKS_PER_MINUTE_MAX
                log.error("%d more failures were suppressed; enable DEBUG to see them", count)
            self._since_ms, self._count = now_ms, 0
        self._count += 1
        if self._count <= TRACEBACKS_PER_MINUTE_MAX:
            log.error(message, *arguments, exc_info=bug)
        else:
            log.debug(message, *arguments)
