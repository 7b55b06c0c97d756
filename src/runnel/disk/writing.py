"""One write of staged batches: what it takes along, and the part of it that a thread can do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from runnel.disk.appending import Run, write_runs
from runnel.model.errors import ApiError

BACKGROUND_BYTES_MIN = 256 * 1024
"""Below this, handing a write to a thread and hearing back costs more than the write."""

Done = Callable[[ApiError | None], None]
"""Told that what was staged is written, or why it is not."""


@dataclass(slots=True, eq=False)
class Write:
    """Staged batches on their way into their files."""

    runs: list[Run]
    end_offset: int
    """Where the log ends once they are written."""
    producer_changes: int
    """How many changes of producers came with them; what is staged behind them has changes of its own."""
    dones: list[Done]
    is_announced: bool
    """Is the outcome of every batch received by one of these?"""
    failure: OSError | None = None
    _once: Lock = field(default_factory=Lock)
    _is_over: bool = False

    def run(self) -> None:
        """Write, in whichever thread comes first; the other one waits and finds it done."""
        with self._once:
            if self._is_over:
                return
            try:
                write_runs(self.runs)
            except OSError as failure:
                self.failure = failure
            self._is_over = True
