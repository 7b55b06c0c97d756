"""Reads that may wait for the disk: prepared on the event loop, run in a thread on a view of the log.

    view (copies of segments, loop) ─► run (thread) ─► finish (loop: install indexes, give the result)

The view shares what never changes: open files, and the indexes of closed segments. If segments were removed
or replaced meanwhile, a file that is opened by name may be missing or be another one; the read is then
prepared and run again.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Generic, TypeVar

from runnel.batch.errors import CorruptBatch
from runnel.disk.damage import read_failure
from runnel.disk.segment import Segment
from runnel.disk.segments import IndexDiscarded, Segments
from runnel.model.errors import StorageFailed

ATTEMPTS_MAX = 5
"""The maximum number of retries if the log changes concurrently."""

Result = TypeVar("Result")

_VIEW_FILES_MAX = 100


@dataclass(slots=True)
class Plan(Generic[Result]):
    """The segments that a read needs, by offsets, and the read itself."""

    start_offset: int
    end_offset: int
    work: Callable[[Segments], Result]


class SegmentsRead(Generic[Result]):
    """One read of some segments of a log; it is planned again for every attempt."""

    __slots__ = (
        "_failure",
        "_generation",
        "_make_plan",
        "_result",
        "_segments",
        "_view",
        "_work",
        "attempts",
    )

    def __init__(self, segments: Segments, make_plan: Callable[[], Plan[Result]]) -> None:
        self._segments = segments
        self._make_plan = make_plan
        self.attempts = 0
        self.prepare()

    def prepare(self) -> None:
        """Take the view, on the event loop."""
        segments = self._segments
        plan = self._make_plan()
        self.attempts += 1
        self._generation = self._segments.generation
        self._work = plan.work
        first = segments.segment_of(plan.start_offset)
        last = segments.segment_of(plan.end_offset)
        copies = [_copy_of(segments, segment) for segment in segments.segments[first : last + 1]]
        self._view = segments.view(segments.files, _VIEW_FILES_MAX)
        self._view.segments = copies
        self._result: list[Result] = []
        self._failure: Exception | None = None

    def run(self) -> None:
        """In a thread."""
        try:
            try:
                self._result = [self._work(self._view)]
            except IndexDiscarded:
                # It is rebuilt here.
                self._result = [self._work(self._view)]
        except (OSError, CorruptBatch) as failure:
            self._failure = failure

    @property
    def is_stale(self) -> bool:
        """Were segments removed, replaced or truncated since the view was taken?

        Then a file that the thread opened by its name may be another one, and its data wrong.
        """
        return self._segments.generation != self._generation

    def finish(self) -> Result:
        folder = self._segments.folder
        if self._failure is not None:
            # A file that was replaced by another one is not damaged.
            failure = StorageFailed(f"{folder}: {self._failure}")
            raise (failure if self.is_stale else read_failure(folder, self._failure)) from self._failure
        if self.is_stale:
            raise StorageFailed(f"{folder}: its segments were replaced while they were read")
        self._install()
        return self._result[0]

    def _install(self) -> None:
        """Install the loaded indexes, unless the log has loaded them meanwhile."""
        segments = self._segments
        originals = {segment.base_offset: segment for segment in segments.segments}
        for loaded in self._view.segments:
            segment = originals.get(loaded.base_offset)
            if segment is not None and segment.size_bytes == loaded.size_bytes:
                segments.install(segment, loaded)


def _copy_of(segments: Segments, segment: Segment) -> Segment:
    """A segment that a thread may read: what the loop appends to is copied."""
    found = copy(segment)
    if segment is segments.active:
        found.offsets = copy(segment.offsets)
        found.times = copy(segment.times)
        found.aborted = copy(segment.aborted)
    return found
