"""Volumes to mount: an ext4 that can lose power, a tmpfs that can fill up. Requires root."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runnel.log.names import LAST_BOOT

EXT4_IOC_SHUTDOWN = 0x8004587D
SHUTDOWN_WITHOUT_FLUSH = struct.pack("I", 2)
NEEDED = ("mount", "umount", "mkfs.ext4", "losetup")


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def missing() -> str | None:
    """Why volumes cannot be mounted here, or None."""
    if os.geteuid() != 0:
        return "mounting requires root"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    probe = Path("/tmp") / f"runnel-probe-{os.getpid()}"
    probe.mkdir()
    try:
        run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(probe))
        run("umount", str(probe))
    except subprocess.CalledProcessError as refused:
        return f"mount was refused: {refused.stderr.decode(errors='replace').strip()}"
    finally:
        probe.rmdir()
    return None


@dataclass(slots=True)
class Ext4:
    """An ext4 in a file; what was not synced is lost when its power is cut."""

    image: Path
    mountpoint: Path

    def mount(self) -> None:
        run("mount", "-o", "loop", str(self.image), str(self.mountpoint))

    def cut_power(self) -> None:
        """Every access fails from now on, and the page cache never reaches the disk."""
        folder = os.open(self.mountpoint, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, SHUTDOWN_WITHOUT_FLUSH)
        finally:
            os.close(folder)

    def restore_power(self) -> None:
        """Mount it again. For the broker, the machine is another boot, though it was not started again."""
        self.unmount()
        self.mount()
        for path in self.mountpoint.rglob(LAST_BOOT):
            path.unlink()

    def unmount(self) -> None:
        run("umount", str(self.mountpoint))


@contextmanager
def ext4(folder: Path, size_bytes: int = 1024**3) -> Iterator[Ext4]:
    image, mountpoint = folder / "disk.img", folder / "disk"
    mountpoint.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(size_bytes)
    run("mkfs.ext4", "-q", "-F", str(image))
    volume = Ext4(image, mountpoint)
    volume.mount()
    try:
        yield volume
    finally:
        if os.path.ismount(mountpoint):
            volume.unmount()
        image.unlink()


@contextmanager
def tmpfs(mountpoint: Path, size_bytes: int) -> Iterator[Path]:
    mountpoint.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(mountpoint))
    try:
        yield mountpoint
    finally:
        run("umount", str(mountpoint))
