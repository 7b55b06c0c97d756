"""The failure state of a log: whether it accepts writes, and whether it can be repaired."""

from collections.abc import Callable


class Health:
    """The failure of a log, if it has one. Reading continues in any case."""

    __slots__ = ("_repair_later", "can_repair", "failure", "is_damaged")

    def __init__(self, repair_later: Callable[[], None]) -> None:
        self._repair_later = repair_later
        self.failure: str | None = None
        """Why writes are rejected."""
        self.can_repair = False
        """Can the files be repaired?"""
        self.is_damaged = False
        """Are durable records unreadable? Then the files are kept unchanged for inspection."""

    def fail(self, reason: str, *, can_repair: bool) -> None:
        """Reject writes from now on."""
        self.failure = reason
        self.can_repair = can_repair
        if can_repair:
            self._repair_later()

    def detach(self) -> None:
        """Drop references to the removed log."""
        self._repair_later = nothing

    def repaired(self) -> None:
        """The files are repaired."""
        self.failure = None
        self.can_repair = False


def nothing() -> None:
    """What is done for a log that is removed."""
