"""Files that are either as before or as meant, whatever happens in between."""

from runnel.log.names import TEMPORARY
from runnel.ports.files import Files


def replace_file(files: Files, folder: str, name: str, data: bytes, *, sync: bool) -> None:
    """Put `data` under this name in one step; with `sync` it survives a power cut on return.

    Without `sync` a power cut may leave an empty or torn file, so readers check what they read.
    """
    temporary = f"{folder}/{name}{TEMPORARY}"
    files.write(temporary, data, sync=sync)
    files.rename(temporary, f"{folder}/{name}")
    if sync:
        files.sync_folder(folder)


def keep_file(files: Files, folder: str, name: str, data: bytes) -> None:
    """Have `data` durable under this name; if it is stored already, that takes a sync and no space."""
    path = f"{folder}/{name}"
    if files.exists(path) and files.read(path) == data:
        files.open(path).datasync()
    else:
        replace_file(files, folder, name, data, sync=True)


def remove_if_there(files: Files, path: str) -> None:
    """Remove a file that may be gone already."""
    if files.exists(path):
        files.remove(path)


def make_durable_folder(files: Files, path: str) -> None:
    """Make a folder, and those above it, that a power cut does not take."""
    if not files.exists(path):
        parent = path.rpartition("/")[0] or "/"
        make_durable_folder(files, parent)
        files.make_folder(path)
        files.sync_folder(parent)
