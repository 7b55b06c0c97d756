"""Writes staged batches to segment files, in any thread, and rolls back on failure."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from runnel.disk.atomic import remove_if_exists
from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.log.names import KEY, LOG
from runnel.log.rolling import RELATIVE_OFFSET_MAX
from runnel.log.validation import PlainBatch, ValidBatch
from runnel.model.errors import ApiError
from runnel.ports.files import Bytes, File

BACKGROUND_BYTES_MIN = 256 * 1024
"""Below this size, a thread costs more than the write."""

Done = Callable[[ApiError | None], None]
"""Receives None once the staged batches are written, or the error if they were rolled back."""

StagedBatch = ValidBatch | PlainBatch


@dataclass(slots=True)
class Run:
    """Staged batches that go into one segment."""

    segment: Segment
    batches: Sequence[StagedBatch]
    snapshot: bytes | None
    """The producers before this run, if a new segment begins with it."""
    file: File | None = None
    """Open while the run is being written."""


@dataclass(slots=True, eq=False)
class StagedWrite:
    """A write of staged batches."""

    segments: Segments
    runs: list[Run]
    producer_changes: int
    """The number of staged producer changes of these batches."""
    dones: list[Done]
    is_announced: bool
    """Does one of these receive the outcome of every batch?"""
    failure: OSError | None = None
    _once: Lock = field(default_factory=Lock)
    _is_over: bool = False

    def run(self) -> None:
        """Write once, in the first thread that calls this; another one waits for it."""
        with self._once:
            if self._is_over:
                return
            try:
                write_runs(self.segments, self.runs)
            except OSError as failure:
                self.failure = failure
            self._is_over = True


def split_runs(segments: Segments, staged: list[StagedBatch], rolls: list[tuple[int, bytes]]) -> list[Run]:
    """One run for the active segment, if anything is for it, then one for each new segment."""
    # A roll may be planned twice before the same batch, but is one roll.
    rolls = list(dict(rolls).items())
    bounds = [index for index, _ in rolls] + [len(staged)]
    runs = [Run(segments.active, staged[: bounds[0]], None)] if bounds[0] else []
    next_offset = staged[bounds[0] - 1].last_offset + 1 if bounds[0] else segments.active.next_offset
    for (start, snapshot), end in zip(rolls, bounds[1:], strict=True):
        batches = staged[start:end]
        first = batches[0]
        # A copied batch may be too far after the end for the index of a segment that begins there.
        is_far = first.last_offset - next_offset > RELATIVE_OFFSET_MAX
        segment = Segment(first.base_offset if is_far else next_offset)
        segment.start_indexes()
        runs.append(Run(segment, batches, snapshot))
        next_offset = batches[-1].last_offset + 1
    return runs


def open_runs(segments: Segments, runs: list[Run]) -> None:
    """Open the files that the runs go into; OSError may leave new ones behind."""
    for run in runs:
        run.file = segments.open(run.segment, create=run.segment.size_bytes == 0)


def write_runs(segments: Segments, runs: list[Run]) -> None:
    """Write each run at the end of its segment's file; OSError may leave some of it written."""
    for run in runs:
        assert run.file is not None
        if run.segment.size_bytes == 0:
            segments.begin(run.segment)
        write_all(run.file, stored_buffers(run.segment, run.batches), run.segment.size_bytes)


def stored_buffers(segment: Segment, batches: Sequence[StagedBatch]) -> list[Bytes]:
    """The bytes of these batches as the segment stores them."""
    buffers: list[Bytes] = [batch.data for batch in batches]
    return buffers if segment.cipher is None else segment.cipher.encrypt_all(buffers)


def undo_runs(segments: Segments, runs: list[Run]) -> None:
    """Roll back `write_runs`; OSError if that fails."""
    has_removed = False
    # The newest first, so that segments follow each other without a gap if the process ends here.
    for run in reversed(runs):
        if run.snapshot is None:
            if segments.files.exists(segments.path(run.segment, LOG)):
                segments.open(run.segment).truncate(run.segment.size_bytes)
        else:
            segments.forget(run.segment)
            path = segments.path(run.segment, LOG)
            if segments.files.exists(path):
                segments.files.remove(path)
                has_removed = True
            if run.segment.is_encrypted:
                remove_if_exists(segments.files, segments.path(run.segment, KEY))
    if has_removed:
        # A segment that reappeared after a power failure could follow the batches written instead.
        segments.files.sync_folder(segments.folder)


def write_all(file: File, buffers: Sequence[Bytes], position: int) -> None:
    """Write all bytes, with as many calls as necessary."""
    written = file.pwritev(buffers, position)
    remaining = list(buffers)
    while True:
        position += written
        while remaining and written >= len(remaining[0]):
            written -= len(remaining.pop(0))
        if not remaining:
            return
        if written:
            remaining[0] = memoryview(remaining[0])[written:]
        written = file.pwritev(remaining, position)
        if written == 0:
            raise OSError(errno.EIO, "the file takes no more bytes")
