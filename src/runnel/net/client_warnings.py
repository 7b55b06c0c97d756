"""Throttled warnings about misbehaving clients."""

import logging

from runnel.model.limits import CLIENT_WARNINGS_PER_SECOND_MAX
from runnel.net.rate_limit import TokenBucket

log = logging.getLogger("runnel.net")


class ClientWarnings:
    """Warnings of a listener about its clients, rate-limited so that no client can fill the disk."""

    __slots__ = ("_bucket", "_listener_name", "_suppressed")

    def __init__(self, listener_name: str, now: float) -> None:
        self._listener_name = listener_name
        self._bucket = TokenBucket(CLIENT_WARNINGS_PER_SECOND_MAX, now)
        self._suppressed = 0

    def warn(self, now: float, message: str, *arguments: object, bug: Exception | None = None) -> None:
        """Log a warning, or an error with the traceback of a bug; above the rate it is only counted.

        Suppressed warnings are logged at DEBUG, without traceback.
        """
        if self._bucket.wait_seconds(now) > 0:
            self._suppressed += 1
            log.debug(message, *arguments)
            return
        self._bucket.take()
        log.log(logging.ERROR if bug else logging.WARNING, message, *arguments, exc_info=bug)

    def report_suppressed(self) -> None:
        """Log the number of warnings suppressed since the last call."""
        if self._suppressed:
            log.warning(
                "%s: %d more warnings about clients were suppressed; enable DEBUG to see them",
                self._listener_name,
                self._suppressed,
            )
            self._suppressed = 0
