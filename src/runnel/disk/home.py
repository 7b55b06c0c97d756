"""What a log asks of the data directory that it lives in."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from runnel.model.errors import ApiError

if TYPE_CHECKING:
    from runnel.disk.append_log import AppendLog


class Home(Protocol):
    """The data directory, as one of its logs sees it."""

    background_bytes_min: int
    """From how many staged bytes on a write is worth a thread."""

    def write_soon(
        self, work: Callable[[], None], done: Callable[[None, BaseException | None], None]
    ) -> None:
        """Let a thread do this part of a large write, then tell `done` here."""
        ...

    def seal_soon(self, log: "AppendLog") -> None:
        """The log has closed a segment: make it durable in the background."""
        ...

    def flush_soon(self, log: "AppendLog") -> None:
        """So much is written but not durable that `flush.messages` wants a flush now."""
        ...

    def flush_later(self, log: "AppendLog") -> None:
        """Something is written that `flush.ms` wants durable in time."""
        ...

    def heal_later(self, log: "AppendLog") -> None:
        """The log takes no writes until its files have been looked at: do that in a while."""
        ...

    def now_ms(self) -> int:
        """The wall clock."""
        ...

    def advance_log_start(
        self, log: "AppendLog", offset: int, done: Callable[[ApiError | None], None]
    ) -> None:
        """Let the log begin at `offset`; `done` is called once that is durable, or with what went wrong."""
        ...

    def interrupt_sync(self, log: "AppendLog") -> None:
        """The log is being cut: let no thread write beside it what is no longer true."""
        ...

    def lower_recovery_point(self, log: "AppendLog") -> None:
        """Less of this log is durable than may be written down: correct that; durable on return."""
        ...

    def discard(self, paths: list[str], delay_ms: int) -> None:
        """Remove these files once the delay is over."""
        ...
