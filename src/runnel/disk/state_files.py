"""Small files in the folder of a log, such as quorum-state."""

from runnel.disk.atomic import replace_file
from runnel.model.errors import StorageFailed
from runnel.ports.files import Files


class StateFilesOnDisk:
    """The files in one folder. All methods may block."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

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
        except OSError as error:
            raise StorageFailed(f"{self._folder}/{name}: {error}") from error
