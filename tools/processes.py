"""What a process costs, as Linux counts it."""

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


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


def _status_bytes(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0
