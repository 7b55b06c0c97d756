"""The trace of a simulation: readable lines, and a digest by which two runs are compared."""

import logging
import threading
from collections.abc import Callable
from zlib import crc32

from runnel.sim.cluster.scheduler import Scheduler


class Trace:
    """The events of a simulation in their order."""

    def __init__(self, scheduler: Scheduler, show: Callable[[str], None] | None = None) -> None:
        self.lines: list[str] = []
        self.digest = 0
        """Depends on every byte that was sent, and on every line."""
        self._scheduler = scheduler
        self._show = show

    def add(self, actor: str, text: str) -> None:
        """Add a line."""
        line = f"{self._scheduler.now:10.4f} {actor:>8}  {text}"
        self.lines.append(line)
        self.digest = crc32(line.encode(), self.digest)
        if self._show is not None:
            self._show(line)

    def sent(self, data: bytes) -> None:
        """Bytes were sent from one process to another."""
        self.digest = crc32(data, self.digest)


class Reports(logging.Handler):
    """Adds the warnings of the brokers to the trace; an exception that a broker logs ends the simulation.

    A simulation runs in one thread. What another thread of the process logs, such as that of a broker which
    runs beside it, is not part of it.
    """

    def __init__(self, trace: Trace, scheduler: Scheduler, actor: Callable[[], str]) -> None:
        super().__init__(logging.WARNING)
        self._thread = threading.get_ident()
        self._trace = trace
        self._scheduler = scheduler
        self._actor = actor
        """The process that runs; empty if it has ended."""

    def emit(self, record: logging.LogRecord) -> None:
        actor = self._actor()
        if not actor or record.thread != self._thread:
            return
        message = record.getMessage()
        self._trace.add(actor, f"{record.levelname.lower()}: {message}")
        if record.exc_info is not None and record.exc_info[1] is not None:
            bug = AssertionError(f"{actor} logged an exception: {message}")
            bug.__cause__ = record.exc_info[1]
            self._scheduler.fail(bug)
