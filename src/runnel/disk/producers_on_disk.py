"""Who produced into a log, as its snapshots and its batches tell."""

from runnel.batch.control import read_end_marker
from runnel.batch.header import BatchHeader, read_header
from runnel.disk.atomic import replace_file
from runnel.disk.log_files import LogFiles
from runnel.disk.reading import walk_batches
from runnel.log.names import SNAPSHOT, offset_name, offset_of
from runnel.log.producer_snapshot import DamagedSnapshot, decode_producers, encode_producers
from runnel.log.producers import Producers


def snapshot_path(segments: LogFiles, offset: int) -> str:
    return f"{segments.folder}/{offset_name(offset, SNAPSHOT)}"


def write_snapshot(segments: LogFiles, offset: int, snapshot: bytes, *, sync: bool = True) -> None:
    """Durable on return, in one step: one of the same offset may be all that is known of its producers."""
    replace_file(segments.files, segments.folder, offset_name(offset, SNAPSHOT), snapshot, sync=sync)


def snapshot_offsets(names: list[str]) -> list[int]:
    """The offsets that producer snapshots are there for, newest first."""
    found = (offset_of(name, SNAPSHOT) for name in names)
    return sorted((offset for offset in found if offset is not None), reverse=True)


def read_snapshot(segments: LogFiles, offset: int) -> Producers | None:
    """The producers at `offset` as a snapshot has them; None if there is none, or it is damaged."""
    if offset < 0:
        return None
    try:
        found = decode_producers(segments.files.read(snapshot_path(segments, offset)))
    except (FileNotFoundError, DamagedSnapshot):
        return None
    producers = Producers()
    producers.restore(found)
    return producers


def newest_snapshot(segments: LogFiles, end_offset: int) -> tuple[int, Producers]:
    """(offset, producers) to replay from: the newest sound snapshot not beyond the end, or the start."""
    first_offset = segments.segments[0].base_offset
    for offset in snapshot_offsets(segments.files.names(segments.folder)):
        if first_offset <= offset <= end_offset:
            producers = read_snapshot(segments, offset)
            if producers is not None:
                return offset, producers
    return first_offset, Producers()


def load_producers(segments: LogFiles, end_offset: int, now_ms: int) -> tuple[Producers, dict[int, bytes]]:
    """The producers up to `end_offset`: the newest snapshot, and what was written after it.

    Also the snapshots that are due where segments end on the way.
    """
    start_offset, producers = newest_snapshot(segments, end_offset)
    due: dict[int, bytes] = {}
    for segment in segments.segments[segments.segment_of(start_offset) :]:
        for batch in walk_batches(segments, max(start_offset, segment.base_offset), segment.next_offset):
            replay_producer(producers, read_header(batch), batch, now_ms)
        if segment.next_offset > start_offset:
            due[segment.next_offset] = encode_producers(producers)
    return producers, due


def replay_producer(producers: Producers, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
    """A batch found in the log tells what its producer has done."""
    if header.producer_id >= 0:
        producers.replay(header, read_end_marker(batch) if header.is_control else None, now_ms)
