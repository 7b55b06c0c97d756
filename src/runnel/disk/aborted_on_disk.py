"""The aborted transactions of a log, from transaction indexes or from batches."""

from bisect import bisect_right

from runnel.batch.header import read_header
from runnel.disk.producers_on_disk import producers_at, replay_producer
from runnel.disk.reading import walk_batches
from runnel.disk.segment import Segment
from runnel.disk.segments import LongRebuild, Segments
from runnel.log.aborted import AbortedTransaction, DamagedAborted, collect_aborted, decode_aborted
from runnel.log.names import ABORTED, offset_name
from runnel.model.log_config import FOREVER


def aborted_in(segments: Segments, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions of these offsets, by first offset. May raise OSError and CorruptBatch."""
    marked = segments.with_aborted
    if marked is None:
        marked = segments.with_aborted = _find_marked(segments)
    if not marked:
        return []
    found: list[AbortedTransaction] = []
    for segment in marked[bisect_right(marked, first_offset, key=_next_offset) :]:
        if collect_aborted(aborted_of(segments, segment), first_offset, end_offset, found):
            break
    found.sort(key=_first_offset)
    return found


def touch_aborted(segments: Segments, first_offset: int, end_offset: int) -> None:
    """Load the transaction indexes for `aborted_in`."""
    aborted_in(segments, first_offset, end_offset)


def aborted_of(segments: Segments, segment: Segment, *, may_walk: bool = True) -> list[AbortedTransaction]:
    """The transactions whose abort marker is in this segment, in the order of the markers.

    Raises LongRebuild if its batches would have to be walked and may not.
    """
    if segment.aborted is None:
        if segment.size_bytes == 0:
            segment.aborted = []
        else:
            segment.aborted = _load(segments, segment, may_walk)
            segments.aborted_loaded(segment)
    return segment.aborted


def _find_marked(segments: Segments) -> list[Segment]:
    """The segments with abort markers, from a listing of the directory; most logs have none."""
    if any(segment.aborted is None for segment in segments.segments):
        names = set(segments.files.names(segments.folder))
        for segment in segments.segments:
            if segment.aborted is None and offset_name(segment.base_offset, ABORTED) not in names:
                segment.aborted, segment.aborted_saved = [], 0
    return [segment for segment in segments.segments if segment.aborted is None or segment.aborted]


def _load(segments: Segments, segment: Segment, may_walk: bool) -> list[AbortedTransaction]:
    try:
        data = segments.files.read(segments.path(segment, ABORTED))
        aborted = decode_aborted(data, segment.base_offset, segment.next_offset)
    except FileNotFoundError:
        aborted = []
    except DamagedAborted as damage:
        if not may_walk:
            raise LongRebuild(f"{segments.path(segment, ABORTED)} is being rebuilt") from damage
        segment.aborted_saved = -1
        return _walk(segments, segment)
    segment.aborted_saved = len(aborted)
    return aborted


def _walk(segments: Segments, segment: Segment) -> list[AbortedTransaction]:
    """Rebuild the aborted transactions of a segment from its batches."""
    producers = producers_at(segments, segment.base_offset)
    for batch in walk_batches(segments, segment.base_offset, segment.next_offset):
        replay_producer(producers, read_header(batch), batch, 0, FOREVER)
    return producers.take_aborted()


def _next_offset(segment: Segment) -> int:
    return segment.next_offset


def _first_offset(entry: AbortedTransaction) -> int:
    return entry.first_offset
