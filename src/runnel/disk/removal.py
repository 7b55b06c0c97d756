"""Delayed deletion of files: they are renamed at once and removed later by a thread."""

from collections.abc import Iterable

from runnel.log.names import REMOVED_FOLDER
from runnel.ports.files import Files, Workers

_NAME_BYTES_MAX = 255
_NO_DELAY = 0


class Removal:
    """Files and folders that wait for their removal."""

    def __init__(self, files: Files, root: str, workers: Workers) -> None:
        self._files = files
        self._root = root
        self._workers = workers
        self._added: list[tuple[int, list[str]]] = []
        """(delay, paths) that were added since the last run."""
        self._waiting: list[tuple[int, list[str]]] = []
        """(due time, paths)."""
        self._number = 0

    def adopt(self, names: Iterable[str]) -> None:
        """Folders that an earlier run was about to remove."""
        found = [f"{self._root}/{name}" for name in names if name.endswith(REMOVED_FOLDER)]
        if found:
            self._added.append((_NO_DELAY, found))

    def remove_folder(self, name: str, delay_ms: int) -> None:
        """Give a partition's folder another name now, and remove it with all it holds after the delay."""
        target = self._free_name(name)
        try:
            self._files.rename(f"{self._root}/{name}", target)
        except FileNotFoundError:
            return
        self._added.append((delay_ms, [target]))

    def discard(self, paths: list[str], delay_ms: int) -> None:
        """Remove these files after the delay."""
        if paths:
            self._added.append((delay_ms, paths))

    def finish(self) -> None:
        """Remove files now: a clean start does not look for them. Folders it does adopt, so they wait."""
        left = [path for _, paths in self._added + self._waiting for path in paths]
        self._remove_all([path for path in left if not path.endswith(REMOVED_FOLDER)])
        self._added.clear()
        self._waiting.clear()

    def run(self, now_ms: int) -> None:
        """Start removing what is due."""
        self._waiting += [(now_ms + delay_ms, paths) for delay_ms, paths in self._added]
        self._added.clear()
        due = [path for due_ms, paths in self._waiting if due_ms <= now_ms for path in paths]
        if due:
            self._waiting = [entry for entry in self._waiting if entry[0] > now_ms]
            self._workers.submit(lambda: self._remove_all(due), lambda _, __: None)

    def _remove_all(self, paths: list[str]) -> None:
        if any(path.endswith(REMOVED_FOLDER) for path in paths):
            # If a power cut restored a folder's old name after some of its files were removed, a log without
            # its first segments would be taken for one that starts later.
            try:
                self._files.sync_folder(self._root)
            except OSError:
                paths = [path for path in paths if not path.endswith(REMOVED_FOLDER)]
        for path in paths:
            # What cannot be removed now is found by name at the next start.
            try:
                if path.endswith(REMOVED_FOLDER):
                    for name in self._files.names(path):
                        self._files.remove(f"{path}/{name}")
                    self._files.remove_folder(path)
                else:
                    self._files.remove(path)
            except OSError:
                continue

    def _free_name(self, name: str) -> str:
        while True:
            self._number += 1
            suffix = f".{self._number}{REMOVED_FOLDER}"
            target = f"{self._root}/{name[: _NAME_BYTES_MAX - len(suffix)]}{suffix}"
            if not self._files.exists(target):
                return target
