"""Whether a log may be written, and if not, why and for how long."""

from collections.abc import Callable


class Health:
    """The failure of a log, if it has one. Reading continues in any case."""

    __slots__ = ("_repair_later", "can_repair", "failure", "is_damaged")

    def __init__(self, repair_later: Callable[[], None]) -> None:
        self._repair_later = repair_later
        self.failure: str | None = None
        """Why nothing may be written."""
        self.can_repair = False
        """May the files be checked again and turn out to be sound?"""
        self.is_damaged = False
        """Are records unreadable that were durable? Then no file is touched, for an operator to inspect."""

    def fail(self, reason: str, *, can_repair: bool) -> None:
        """Refuse writes from now on."""
        self.failure = reason
        self.can_repair = can_repair
        if can_repair:
            self._repair_later()

    def detach(self) -> None:
        """The log is removed: do not refer to it any more."""
        self._repair_later = nothing

    def repaired(self) -> None:
        """The files are sound again."""
        self.failure = None
        self.can_repair = False


def nothing() -> None:
    """What is done for a log that is removed."""
