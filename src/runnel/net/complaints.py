"""What is said about clients that were refused or hung up on."""

import logging

from runnel.model.limits import COMPLAINTS_PER_SECOND_MAX
from runnel.net.pace import Pace

log = logging.getLogger("runnel.net")


class Complaints:
    """One listener's warnings about its clients: a few each second, so that no client can fill a disk."""

    __slots__ = ("_left_out", "_listener_name", "_pace")

    def __init__(self, listener_name: str, now: float) -> None:
        self._listener_name = listener_name
        self._pace = Pace(COMPLAINTS_PER_SECOND_MAX, now)
        self._left_out = 0

    def warn(self, now: float, message: str, *arguments: object, bug: Exception | None = None) -> None:
        """Log a warning, or an error with the traceback of a bug; above the rate it is counted instead.

        What is counted is still logged at DEBUG, without traceback.
        """
        if self._pace.wait_seconds(now) > 0:
            self._left_out += 1
            log.debug(message, *arguments)
            return
        self._pace.take()
        log.log(logging.ERROR if bug else logging.WARNING, message, *arguments, exc_info=bug)

    def tell_left_out(self) -> None:
        """One line for all that went unsaid since the last one."""
        if self._left_out:
            log.warning(
                "%s: %d more warnings about clients were left out, DEBUG shows them",
                self._listener_name,
                self._left_out,
            )
            self._left_out = 0
