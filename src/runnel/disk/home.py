"""The interface of a log to its data directory."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from runnel.model.errors import ApiError

if TYPE_CHECKING:
    from runnel.disk.disk_log import DiskLog
    from runnel.disk.truncation import Steps


class WriteThreads(Protocol):
    """Threads for large writes."""

    background_bytes_min: int
    """The size in bytes from which staged batches are written by a thread."""

    def write_soon(
        self, work: Callable[[], None], done: Callable[[None, BaseException | None], None]
    ) -> None:
        """Run a large write in a thread, then call `done` on the event loop."""
        ...


class Home(WriteThreads, Protocol):
    """The data directory of a log."""

    def seal_soon(self, log: "DiskLog") -> None:
        """The log has closed a segment: make it durable in the background."""
        ...

    def flush_soon(self, log: "DiskLog") -> None:
        """The log has reached `flush.messages`: flush it now."""
        ...

    def flush_later(self, log: "DiskLog") -> None:
        """The log has unflushed records: flush it within `flush.ms`."""
        ...

    def load_soon(self, log: "DiskLog") -> None:
        """Load indexes and producer state of the log in a thread."""
        ...

    def repair_later(self, log: "DiskLog") -> None:
        """The log rejects writes until its files are repaired: schedule the repair."""
        ...

    def steady_ms(self) -> int:
        """The time by which producers expire: the wall clock at the start, and what has passed since.

        A wall clock that jumps must not let a partition forget a producer, whose retry would be stored twice.
        """
        ...

    def advance_log_start(self, log: "DiskLog", offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Advance the log start to `offset`; `done` is called once that is durable, or with the error."""
        ...

    def interrupt_sync(self, log: "DiskLog") -> list[Callable[[], None]]:
        """The log is being truncated: stop threads that write its files, and what waits for that."""
        ...

    def truncate_checkpoints(self, log: "DiskLog", end_offset: int) -> list[Callable[[], None]]:
        """Lower the checkpoints of a log that is about to be truncated: what makes that durable."""
        ...

    def truncate_soon(self, steps: "Steps", done: Callable[[ApiError | None], None]) -> None:
        """Truncate a log, with what waits for the disk in threads; `done` is called with the outcome."""
        ...

    def discard(self, paths: list[str], delay_ms: int) -> None:
        """Remove these files after the delay."""
        ...
