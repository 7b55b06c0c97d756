"""CPU time and memory of a process as Linux counts them, and a clean end of the processes it started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def unwind_when_ended() -> None:
    """Let SIGTERM and SIGHUP unwind the stack, so that `finally` blocks stop the brokers that were started.

    Brokers run in their own sessions and would otherwise keep running, as they do after kill -9.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _unwind)


def _unwind(number: int, _: FrameType | None) -> None:
    # A second signal must not interrupt the clean-up.
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


@contextmanager
def child(command: Sequence[str], **options: Any) -> "Iterator[subprocess.Popen[Any]]":
    """A process that is killed at the end of the block if it is still running; `options` are those of Popen.

    A block of Popen itself would wait for it, also when an exception ends the block.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def prefer(pid: int) -> None:
    """Let a process run whenever it can, before others of this machine, if that is permitted."""
    with suppress(PermissionError):
        # Not by its nice value, which counts only among the processes of one session.
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def memory_bytes(pid: int) -> int:
    """Resident memory now."""
    return _status_bytes(pid, "VmRSS")


def memory_peak_bytes(pid: int) -> int:
    return _status_bytes(pid, "VmHWM")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far."""
    # The name in brackets may hold spaces: count from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def tree_cpu_seconds(pid: int) -> float:
    """The same of a process and all its descendants, those that have ended included."""
    stats = {process: (int(fields[1]), sum(map(int, fields[11:15]))) for process, fields in _stats()}
    family: set[int] = set()
    found = {pid}
    while found:
        family |= found
        found = {child for child, (parent, _) in stats.items() if parent in family} - family
    return sum(stats[member][1] for member in family if member in stats) / _TICKS_PER_SECOND


def children(pid: int) -> list[int]:
    """The processes that a process has started and that are running."""
    return [process for process, fields in _stats() if int(fields[1]) == pid]


def _stats() -> Iterator[tuple[int, list[str]]]:
    """All processes, each with the fields of /proc/PID/stat from its state on."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield int(path.parent.name), path.read_text().rpartition(")")[2].split()
        except OSError:
            # It has just ended; its parent accounts for it.
            continue


def _status_bytes(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0
