"""Restores the producer state of a log from snapshots and batches."""

from runnel.batch.control import read_end_marker
from runnel.batch.header import BatchHeader, read_header
from runnel.disk.atomic import replace_file
from runnel.disk.reading import walk_batches
from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.log.aborted import AbortedTransaction, DamagedAborted, decode_aborted
from runnel.log.names import ABORTED, SNAPSHOT, offset_name, offset_of
from runnel.log.producer_snapshot import (
    DamagedSnapshot,
    check_snapshot,
    decode_producers,
    encode_producers,
    first_open_offset_in,
)
from runnel.log.producers import Producers
from runnel.model.log_config import FOREVER


def snapshot_path(segments: Segments, offset: int) -> str:
    return f"{segments.folder}/{offset_name(offset, SNAPSHOT)}"


def write_snapshot(segments: Segments, offset: int, snapshot: bytes, *, sync: bool = True) -> None:
    """Write a snapshot, durably and atomically: it may replace the only one of this offset."""
    replace_file(segments.files, segments.folder, offset_name(offset, SNAPSHOT), snapshot, sync=sync)


def snapshot_offsets(names: list[str]) -> list[int]:
    """The offsets of the producer snapshots, newest first."""
    found = (offset_of(name, SNAPSHOT) for name in names)
    return sorted((offset for offset in found if offset is not None), reverse=True)


def read_snapshot(segments: Segments, offset: int, now_ms: int) -> Producers | None:
    """The producer snapshot at `offset`; None if it is missing or damaged."""
    if offset < 0:
        return None
    try:
        found = decode_producers(segments.files.read(snapshot_path(segments, offset)))
    except (FileNotFoundError, DamagedSnapshot):
        return None
    producers = Producers()
    producers.restore(found, now_ms)
    return producers


def is_sound_snapshot(data: bytes) -> bool:
    """Is the snapshot valid?"""
    try:
        check_snapshot(data)
    except DamagedSnapshot:
        return False
    return True


def newest_snapshot(segments: Segments, end_offset: int, now_ms: int) -> tuple[int, Producers]:
    """(offset, producers) to replay from: the newest valid snapshot up to the end, or the log start."""
    first_offset = segments.segments[0].base_offset
    for offset in snapshot_offsets(segments.files.names(segments.folder)):
        if first_offset <= offset <= end_offset:
            producers = read_snapshot(segments, offset, now_ms)
            if producers is not None:
                return offset, producers
    return first_offset, Producers()


def producers_at(segments: Segments, offset: int) -> Producers:
    """The producer state at `offset`."""
    start_offset, producers = newest_snapshot(segments, offset, 0)
    for batch in walk_batches(segments, start_offset, offset):
        replay_producer(producers, read_header(batch), batch, 0, FOREVER)
    producers.take_aborted()
    return producers


def first_open_offset_at(segments: Segments, offset: int) -> int | None:
    """The first offset of the oldest transaction that was open at `offset`."""
    try:
        return first_open_offset_in(segments.files.read(snapshot_path(segments, offset)))
    except (FileNotFoundError, DamagedSnapshot):
        return producers_at(segments, offset).first_open_offset


def load_producers(
    segments: Segments, end_offset: int, now_ms: int, committed_offset: int = FOREVER
) -> tuple[Producers, dict[int, bytes]]:
    """The producers up to `end_offset`: the newest snapshot, and what was written after it.

    Also the snapshots that are due where segments end on the way. What was aborted is noted beside each
    segment that is walked; the files of those before are true, else there would be no later snapshot.
    """
    start_offset, producers = newest_snapshot(segments, end_offset, now_ms)
    first = segments.segment_of(start_offset)
    try:
        aborted = _aborted_before(segments, segments.segments[first], start_offset)
    except DamagedAborted:
        start_offset, producers = newest_snapshot(segments, segments.segments[first].base_offset, now_ms)
        first, aborted = segments.segment_of(start_offset), []
    for segment in segments.segments[:first]:
        segment.aborted, segment.aborted_saved = None, -1
    due: dict[int, bytes] = {}
    for segment in segments.segments[first:]:
        for batch in walk_batches(segments, max(start_offset, segment.base_offset), segment.next_offset):
            replay_producer(producers, read_header(batch), batch, now_ms, committed_offset)
        segment.aborted, segment.aborted_saved = aborted + producers.take_aborted(), -1
        aborted = []
        if segment.next_offset > start_offset:
            due[segment.next_offset] = encode_producers(producers)
    segments.with_aborted = None
    return producers, due


def _aborted_before(segments: Segments, segment: Segment, offset: int) -> list[AbortedTransaction]:
    """The entries of the segment's file up to the snapshot at `offset`; later ones may be stale."""
    if offset <= segment.base_offset:
        return []
    try:
        data = segments.files.read(segments.path(segment, ABORTED))
    except FileNotFoundError:
        return []
    entries = decode_aborted(data, segment.base_offset, FOREVER)
    return [entry for entry in entries if entry.last_offset < offset]


def replay_producer(
    producers: Producers, header: BatchHeader, batch: memoryview, now_ms: int, committed_offset: int
) -> None:
    """Replay a batch of the log into the state of its producer."""
    if header.producer_id >= 0:
        producers.replay(header, read_end_marker(batch) if header.is_control else None, now_ms)
        if header.is_control:
            producers.forget_ended(committed_offset)
