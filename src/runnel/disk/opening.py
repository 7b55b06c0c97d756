"""Opens a log from the clean shutdown manifest, by recovery, or creates it."""

import logging

from runnel.disk.atomic import remove_if_exists
from runnel.disk.disk_log import DiskLog
from runnel.disk.home import Home
from runnel.disk.producers_on_disk import write_snapshot
from runnel.disk.recovery import Recovery
from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.log.checkpoints import (
    DamagedCheckpoint,
    decode_partition_metadata,
    encode_partition_metadata,
)
from runnel.log.epochs import Epochs
from runnel.log.manifest import LogEntry
from runnel.log.names import ABORTED, INDEX, KEY, LOG, LOG_STARTS, PARTITION_METADATA, TIME_INDEX
from runnel.log.producer_snapshot import encode_producers
from runnel.log.producers import Producers
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.ports.files import Files

logger = logging.getLogger(__name__)


def topic_id_of(files: Files, folder: str) -> bytes | None:
    """The topic id of a log directory; None if it is not recorded."""
    try:
        return decode_partition_metadata(files.read(f"{folder}/{PARTITION_METADATA}"))
    except (FileNotFoundError, DamagedCheckpoint):
        return None


def create_log(
    name: TopicPartition, topic_id: bytes, config: LogConfig, home: Home, segments: Segments
) -> DiskLog:
    """An empty log. Its first file is created with its first batch."""
    segments.files.make_folder(segments.folder)
    data = encode_partition_metadata(topic_id)
    segments.files.write(f"{segments.folder}/{PARTITION_METADATA}", data, sync=False)
    segments.fill([Segment(0)], log_start_offset=0)
    log = DiskLog(name, topic_id, config, home, segments, epochs=Epochs(), producers=Producers())
    log.durability.is_new = True
    return log


def log_from_manifest(
    name: TopicPartition, entry: LogEntry, config: LogConfig, home: Home, segments: Segments
) -> DiskLog | None:
    """A log from its manifest entry, without opening its files; None if the key of a segment was lost."""
    found: list[Segment] = []
    for one in entry.segments:
        segment = Segment(one.base_offset)
        segment.next_offset = one.next_offset
        segment.size_bytes = one.size_bytes
        segment.first_timestamp = one.first_timestamp
        segment.max_timestamp = one.max_timestamp
        segment.has_index_files = True
        found.append(segment)
    segments.segments = found
    encrypted = [one.is_encrypted for one in entry.segments]
    if segments.keys is not None or any(encrypted):
        segments.find_keys(segments.files.names(segments.folder))
        if any(was and not one.is_encrypted for was, one in zip(encrypted, found, strict=True)):
            return None
    segments.fill(found, entry.log_start_offset)
    log = DiskLog(
        name,
        entry.topic_id,
        config,
        home,
        segments,
        epochs=Epochs(entry.epochs),
        producers=None if entry.has_producers else Producers(),
    )
    log.was_closed_cleanly = True
    if entry.has_producers:
        log.producer_state.snapshot_offset = log.end_offset
    return log


def recover_log(
    name: TopicPartition,
    topic_id: bytes,
    config: LogConfig,
    home: Home,
    segments: Segments,
    *,
    recovery_point: int,
    log_start_offset: int,
    may_have_lost_writes: bool,
) -> DiskLog:
    """A log recovered from its files after a crash."""
    if topic_id_of(segments.files, segments.folder) is None:
        data = encode_partition_metadata(topic_id)
        segments.files.write(f"{segments.folder}/{PARTITION_METADATA}", data, sync=True)
    recovery = Recovery(segments, config, recovery_point, may_have_lost_writes=may_have_lost_writes)
    recovered = recovery.run(log_start_offset, home.steady_ms())
    if recovered.damage is None:
        # A damaged log may end before its log start: what was deleted stays so.
        log_start_offset = _log_start_within(
            segments, log_start_offset, recovered.producers, may_have_lost_writes=may_have_lost_writes
        )
    segments.fill(segments.segments, log_start_offset)
    log = DiskLog(
        name,
        topic_id,
        config,
        home,
        segments,
        epochs=recovered.epochs,
        producers=recovered.producers,
    )
    log.durability.durable_offset = min(recovered.durable_offset, log.end_offset)
    if recovered.damage is not None:
        log.fail(recovered.damage, can_repair=False)
        log.health.is_damaged = True
    log.durability.unsealed = [entry for entry in recovered.unsealed if entry[0] in segments.segments]
    # The directory may be partly synced.
    log.durability.epochs_changed = log.durability.folder_changed = log.durability.is_new = True
    log.durability.drops += 1
    return log


def _log_start_within(
    segments: Segments, log_start_offset: int, producers: Producers, *, may_have_lost_writes: bool
) -> int:
    """The log start of a log that is not damaged: it may be stored, and not the records before it."""
    end_offset = segments.active.next_offset
    if log_start_offset <= end_offset:
        return log_start_offset
    if may_have_lost_writes:
        # The deletion is durable, the deleted records are not: their offsets must not be assigned again.
        _start_over(segments, log_start_offset, producers)
        return log_start_offset
    # Only what was written can have been deleted, so the checkpoint is damaged.
    logger.error(
        "%s ends at %d: the log start %d in %s is not used",
        segments.folder,
        end_offset,
        log_start_offset,
        LOG_STARTS,
    )
    return segments.segments[0].base_offset


def _start_over(segments: Segments, offset: int, producers: Producers) -> None:
    """Remove all segments and create an empty one, whose name has the offset. May be interrupted."""
    former = segments.segments
    segment = Segment(offset)
    segment.start_indexes()
    segments.segments = [segment]
    segments.open(segment, create=True)
    write_snapshot(segments, offset, encode_producers(producers))
    segments.files.sync_folder(segments.folder)
    for segment in former:
        segments.forget(segment)
        for suffix in (INDEX, TIME_INDEX, ABORTED, LOG, KEY):
            remove_if_exists(segments.files, segments.path(segment, suffix))
