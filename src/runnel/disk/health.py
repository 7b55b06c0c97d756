"""Whether a log may be written, and if not, why and for how long."""

from collections.abc import Callable


class Health:
    """The failure of a log, if it has one. Reading continues in any case."""

    __slots__ = ("_heal_later", "can_heal", "failure", "is_damaged")

    def __init__(self, heal_later: Callable[[], None]) -> None:
        self._heal_later = heal_later
        self.failure: str | None = None
        """Why nothing may be written."""
        self.can_heal = False
        """May the files be checked again and turn out to be sound?"""
        self.is_damaged = False
        """Are records unreadable that were durable? Then no file is touched, for an operator to inspect."""

    def fail(self, reason: str, *, can_heal: bool) -> None:
        """Refuse writes from now on."""
        self.failure = reason
        self.can_heal = can_heal
        if can_heal:
            self._heal_later()

    def heal(self) -> None:
        """The files are sound again."""
        self.failure = None
        self.can_heal = False
