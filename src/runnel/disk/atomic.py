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
