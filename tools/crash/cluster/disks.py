"""Faults of the disk of one node: it becomes slow, or a bit of a file changes."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.crash.volumes import Ext4

CGROUPS = Path("/sys/fs/cgroup/blkio")
LIMIT = "blkio.throttle.write_iops_device"
SLOW_WRITES_PER_S = 5
"""An fsync takes 0.2 to 0.5 s then."""

METADATA = "__cluster_metadata-0"
FLIPPED: dict[str, tuple[str, ...]] = {
    "segment": ("*-*/*.log",),
    "index": ("*-*/*.index", "*-*/*.timeindex"),
    "metadata log": (f"{METADATA}/*.log",),
    "snapshot": (f"{METADATA}/*.checkpoint", "*-*/*.snapshot"),
    "vote": (f"{METADATA}/quorum-state",),
    "checkpoint": ("*-*/leader-epoch-checkpoint", "*checkpoint"),
}
"""Kind of file → patterns below the data folder."""
FLIP_WEIGHTS = {"segment": 6, "index": 1, "metadata log": 1, "snapshot": 1, "vote": 1, "checkpoint": 1}


def slow_disks_missing() -> str | None:
    """Why a disk cannot be made slow here, or None."""
    if not (CGROUPS / LIMIT).exists():
        return f"this kernel has no {CGROUPS / LIMIT}"
    return None


@contextmanager
def slow_disk(volume: Ext4, pid: int) -> Iterator[None]:
    """The writes of a process to its volume are limited meanwhile; those that wait for them are slow."""
    group = CGROUPS / f"runnel-crash-{os.getpid()}"
    group.mkdir()
    try:
        (group / LIMIT).write_text(f"{device_numbers(volume)} {SLOW_WRITES_PER_S}")
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            (CGROUPS / "cgroup.procs").write_text(line)
        group.rmdir()


def device_numbers(volume: Ext4) -> str:
    """Major and minor number of the loop device."""
    listed = subprocess.run(
        ["losetup", "--noheadings", "--output", "NAME", "--associated", str(volume.image)],
        check=True,
        capture_output=True,
        text=True,
    )
    return (Path("/sys/block") / Path(listed.stdout.strip()).name / "dev").read_text().strip()


def flip_bit(data: Path, rng: random.Random) -> str:
    """Change one bit of one file; what was changed."""
    found: list[Path] = []
    kind = ""
    while not found:
        kind = rng.choices(list(FLIP_WEIGHTS), list(FLIP_WEIGHTS.values()))[0]
        paths = sorted(path for pattern in FLIPPED[kind] for path in data.glob(pattern))
        found = [path for path in paths if written_bytes(path)]
    path = rng.choice(found)
    position, bit = rng.randrange(written_bytes(path)), rng.randrange(8)
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
    return f"{kind}: bit {bit} of byte {position} of {path.relative_to(data)}"


def written_bytes(path: Path) -> int:
    """The length of a file without the zeros that were allocated ahead."""
    return len(path.read_bytes().rstrip(b"\0"))


def wipe(data: Path) -> None:
    """Empty a data folder, as an operator does who replaces a disk."""
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
