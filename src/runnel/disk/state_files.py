"""Small files in the folder of a log, such as quorum-state."""

from runnel.disk.atomic import replace_file
from runnel.model.errors import StorageFailed
from runnel.ports.files import Files


class StateFilesOnDisk:
    """The files in one folder. All methods may block."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._is_folder_durable = False
        """The folder of a log that was just created becomes durable with the log's first sync otherwise."""

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None if it does not exist."""
        try:
            return self._files.read(f"{self._folder}/{name}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"{self._folder}/{name}: {error}") from error

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically; it is durable on return."""
        try:
            replace_file(self._files, self._folder, name, data, sync=True)
            if not self._is_folder_durable:
                self._files.sync_folder(self._folder.rpartition("/")[0])
                self._is_folder_durable = True
        except OSError as error:
            raise StorageFailed(f"{self._folder}/{name}: {error}") from error
