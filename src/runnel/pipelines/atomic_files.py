"""Atomic replacement of small files."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

READABLE_BY_ALL = 0o644
RUNNABLE_BY_ALL = 0o755


def replace_file(path: Path, text: str, *, mode: int = READABLE_BY_ALL, durable: bool = False) -> None:
    """Create or replace a file atomically; if durable, it is synced on return."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}-", delete=False, encoding="utf-8"
    ) as new:
        try:
            new.write(text)
            new.flush()
            os.fchmod(new.fileno(), mode)
            if durable:
                os.fsync(new.fileno())
            # A file cannot be executed while it is open for writing.
            new.close()
            os.replace(new.name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(new.name)
            raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
