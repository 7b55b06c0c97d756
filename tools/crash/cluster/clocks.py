"""Clocks of nodes that jump: a preloaded library (wall_clock.c) shifts the wall clock of a process.

libfaketime does the same, but its sleeps fail in Python 3.11 when the monotonic clock is left alone.
"""

import hashlib
import struct
import subprocess
from pathlib import Path

from tools.fetch.cache import cached
from tools.fetch.programs import Unavailable, find

PURPOSE = "shift the clock of a node"


def library() -> Path:
    """The library, compiled once into the cache; raises Unavailable."""
    compiler, source = find("cc", PURPOSE), Path(__file__).with_name("wall_clock.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]

    def fill(folder: Path) -> None:
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(folder / "wall_clock.so"), str(source)]
        subprocess.run(command, check=True)

    return cached(f"wall-clock-{digest}", fill) / "wall_clock.so"


def missing() -> str | None:
    """Why clocks cannot be shifted here, or None."""
    try:
        library()
    except Unavailable as reason:
        return str(reason)
    return None


class ShiftedClock:
    """The wall clock of the processes that are started with its environment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(8))

    def shift(self, seconds: int) -> None:
        """Jump to this distance from the machine's clock."""
        # In place: the processes have mapped the file.
        with self._path.open("r+b") as file:
            file.write(struct.pack("=q", seconds))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(library()), "WALL_CLOCK_SHIFT": str(self._path)}
