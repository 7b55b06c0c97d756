"""Atomic file updates: after a crash a file has its old or its new contents."""

from runnel.log.names import TEMPORARY
from runnel.ports.files import Files


def replace_file(files: Files, folder: str, name: str, data: bytes, *, sync: bool) -> None:
    """Store `data` under this name atomically; with `sync` it survives a power cut on return.

    Without `sync` a power failure may leave an empty or torn file, so readers verify it.
    """
    temporary = f"{folder}/{name}{TEMPORARY}"
    files.write(temporary, data, sync=sync)
    files.rename(temporary, f"{folder}/{name}")
    if sync:
        files.sync_folder(folder)


def keep_file(files: Files, folder: str, name: str, data: bytes) -> None:
    """Make `data` durable under this name; if it is stored already, that takes a sync and no space."""
    path = f"{folder}/{name}"
    if files.exists(path) and files.read(path) == data:
        files.open(path).datasync()
    else:
        replace_file(files, folder, name, data, sync=True)


def remove_if_exists(files: Files, path: str) -> None:
    """Remove a file if it exists."""
    if files.exists(path):
        files.remove(path)


def make_durable_folder(files: Files, path: str) -> None:
    """Create a folder and its parents durably."""
    if not files.exists(path):
        parent = path.rpartition("/")[0] or "/"
        make_durable_folder(files, parent)
        files.make_folder(path)
        files.sync_folder(parent)
