"""The folder of downloads and built programs, outside of the repository and shared by all clones of it."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "runnel"


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """The cached folder `name`. If it is missing, `fill` writes it, once however many processes ask for it.

    The folder gets its name when it is complete: an interrupted download leaves nothing that looks finished.
    """
    folder = cache_folder() / name
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                fill(partial)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder
