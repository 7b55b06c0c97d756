"""What only the operating system knows: the resources of the process, and whether the disk can be written.

Reading it may block, as on a disk that does not respond: a thread does, one at a time.
"""

import asyncio
import errno
import os
import resource
import time
from dataclasses import dataclass

MAX_AGE_SECONDS = 1.0
WAIT_SECONDS = 1.0
"""How long a reader waits for new facts; then it gets the last ones."""
SILENCE_SECONDS_MAX = 10.0
"""A disk that does not respond for this long has failed."""
PROBE_BYTES = 4096
_PROBE = ".writable"
"""The name of the file that is written where files without a name are not supported."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of the process and of its disk at some time."""

    read_at: float = 0.0
    """In seconds of the monotonic clock."""
    open_files: int = 0
    open_files_max: int = 0
    resident_bytes: int = 0
    virtual_bytes: int = 0
    cpu_seconds: float = 0.0
    threads: int = 0
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    disk_failure: str | None = None
    """Why the data directory cannot be written."""


class HostFacts:
    """The last facts, read again when they are wanted."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._facts = Facts()
        self._reading: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    @property
    def facts(self) -> Facts:
        """The last facts."""
        return self._facts

    @property
    def disk_failure(self) -> str | None:
        """Why the data directory cannot be written, or None."""
        if self._reading is not None:
            silent = time.monotonic() - self._asked_at
            if silent > SILENCE_SECONDS_MAX:
                return f"the disk has not responded for {silent:.0f} s"
        return self._facts.disk_failure

    async def refresh(self) -> None:
        """Read the facts again, unless they are recent; waits for a moment only."""
        now = time.monotonic()
        if self._reading is None:
            if now - self._facts.read_at < MAX_AGE_SECONDS:
                return
            self._asked_at = now
            self._reading = asyncio.get_running_loop().create_task(self._read())
        await asyncio.wait({self._reading}, timeout=WAIT_SECONDS)

    async def _read(self) -> None:
        try:
            self._facts = await asyncio.to_thread(read_facts, self._data_dir)
        finally:
            self._reading = None


def read_facts(data_dir: str) -> Facts:
    """Read everything; blocks."""
    total = free = 0
    failure: str | None = None
    try:
        volume = os.statvfs(data_dir)
        total, free = volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail
        _probe(data_dir)
    except OSError as error:
        failure = f"{data_dir} cannot be written: {error.strerror or error}"
    resident, virtual, threads = _memory()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Facts(
        read_at=time.monotonic(),
        open_files=_count_files(),
        open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        resident_bytes=resident,
        virtual_bytes=virtual,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        threads=threads,
        disk_total_bytes=total,
        disk_free_bytes=free,
        disk_failure=failure,
    )


def _probe(data_dir: str) -> None:
    """Write a file that disappears. Raises OSError."""
    path = os.path.join(data_dir, _PROBE)
    is_named = False
    try:
        # Without a name, nothing is left if the process ends now.
        file = os.open(data_dir, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        file, is_named = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), True
    try:
        if os.write(file, bytes(PROBE_BYTES)) < PROBE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)
        if is_named:
            os.unlink(path)


def _count_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _memory() -> tuple[int, int, int]:
    """(resident bytes, virtual bytes, threads)."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # Numbered as in proc(5), from the third on: 20 threads, 23 virtual size, 24 resident pages.
        return int(fields[21]) * resource.getpagesize(), int(fields[20]), int(fields[17])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0, 0
