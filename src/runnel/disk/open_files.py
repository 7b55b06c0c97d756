"""The segment files that are open: as many as the process may have, the rest opened when wanted."""

from runnel.disk.segment import Segment
from runnel.ports.files import File, Files


class OpenFiles:
    """A bounded set of open segment files. Dropping one closes it once no reader holds it any more."""

    __slots__ = ("_files", "_open", "limit")

    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._open: dict[Segment, None] = {}
        self.limit = limit

    def __len__(self) -> int:
        return len(self._open)

    def open(self, segment: Segment, path: str, *, create: bool = False) -> File:
        """The segment's file; opening it may drop one that was not used lately."""
        file = segment.file
        if file is None:
            if len(self._open) >= self.limit:
                self._drop_a_cold_one()
            file = segment.file = self._files.open(path, create=create)
            self._open[segment] = None
        segment.is_warm = True
        return file

    def forget(self, segment: Segment) -> None:
        """The segment needs its file no more, or will open it anew."""
        self._open.pop(segment, None)
        segment.file = None

    def _drop_a_cold_one(self) -> None:
        # Second chance: a warm file is cooled and goes to the back of the queue, so the loop ends.
        while True:
            segment = next(iter(self._open))
            if not segment.is_warm:
                self.forget(segment)
                if segment.has_index_files:
                    segment.offsets = segment.times = None
                return
            segment.is_warm = False
            del self._open[segment]
            self._open[segment] = None
