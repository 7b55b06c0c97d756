"""What a log needs of the data directory that holds it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from runnel.model.errors import ApiError

if TYPE_CHECKING:
    from runnel.disk.disk_log import DiskLog


class WriteThreads(Protocol):
    """Threads for large writes."""

    background_bytes_min: int
    """From how many staged bytes on a write is worth a thread."""

    def write_soon(
        self, work: Callable[[], None], done: Callable[[None, BaseException | None], None]
    ) -> None:
        """Let a thread do this part of a large write, then call `done` on the event loop."""
        ...


class Home(WriteThreads, Protocol):
    """The data directory, as one of its logs sees it."""

    def seal_soon(self, log: "DiskLog") -> None:
        """The log has closed a segment: make it durable in the background."""
        ...

    def flush_soon(self, log: "DiskLog") -> None:
        """So much is written but not durable that `flush.messages` wants a flush now."""
        ...

    def flush_later(self, log: "DiskLog") -> None:
        """Something is written that `flush.ms` wants durable in time."""
        ...

    def load_soon(self, log: "DiskLog") -> None:
        """Load indexes and producers of the log in a thread: on the event loop it would take too long."""
        ...

    def repair_later(self, log: "DiskLog") -> None:
        """The log takes no writes until its files have been repaired: do that in a while."""
        ...

    def now_ms(self) -> int:
        """The wall clock."""
        ...

    def advance_log_start(self, log: "DiskLog", offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Let the log begin at `offset`; `done` is called once that is durable, or with what went wrong."""
        ...

    def interrupt_sync(self, log: "DiskLog") -> None:
        """The log is being truncated: let no thread write beside it what is no longer true."""
        ...

    def truncate_checkpoints(self, log: "DiskLog", end_offset: int) -> None:
        """This log is about to end here: no checkpoint may list more of it; durable on return."""
        ...

    def discard(self, paths: list[str], delay_ms: int) -> None:
        """Remove these files once the delay is over."""
        ...
