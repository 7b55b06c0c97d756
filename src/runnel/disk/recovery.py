"""Recovery of a log that was not closed cleanly: verifies what may not be durable, truncates a torn tail.

    … segments before the recovery point    durable, with their indexes: not checked
    the segment that holds it               scanned up to the recovery point, verified batch by batch after it
    later segments                          verified batch by batch, each must begin where the last one ended

The first invalid batch behind the recovery point, or a gap between segments:

    after a power failure                   the log is truncated there: writes that were not synced may be
                                            lost in any order
    the process ended, in the same boot     an incomplete batch at the end of the log is truncated, because
                                            its write was interrupted; anything else is damage

After damage, and after corruption below the recovery point, the files are kept unchanged for inspection.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import HEADER_BYTES, BatchHeader, crc_is_valid, read_header
from runnel.disk.atomic import remove_if_exists
from runnel.disk.producers_on_disk import load_producers, snapshot_offsets, snapshot_path
from runnel.disk.segment import UNKNOWN_TIMESTAMP, Segment
from runnel.disk.segment_swap import finish_swap
from runnel.disk.segments import Segments
from runnel.disk.torn_write import is_torn_write
from runnel.disk.walk import walk_headers_of_file, walk_sound_batches
from runnel.log.checkpoints import DamagedCheckpoint, decode_epochs
from runnel.log.encryption import RECORDS_START, is_marked
from runnel.log.epochs import Epochs
from runnel.log.index import DamagedIndex, OffsetIndex, TimeIndex
from runnel.log.names import (
    ABORTED,
    CLEANED,
    CLEANER_CHECKPOINT,
    COMPACTION_SWAP,
    DELETED,
    EPOCHS,
    INDEX,
    KEY,
    LOG,
    SNAPSHOT,
    TEMPORARY,
    TIME_INDEX,
    offset_of,
)
from runnel.log.producers import Producers
from runnel.log.rolling import RELATIVE_OFFSET_MAX
from runnel.log.swap import DamagedSwap, decode_swap
from runnel.model.log_config import FOREVER, LogConfig
from runnel.ports.files import File

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovered:
    """The result of the recovery of a log."""

    epochs: Epochs
    producers: Producers
    durable_offset: int
    unsealed: list[tuple[Segment, bytes | None]]
    """Closed segments that may lack their indexes, and the snapshots at their ends if these are missing."""
    damage: str | None = None
    """The corruption of records that were stored; the log is then read-only."""


class Recovery:
    """The recovery of one log. Fills `segments` and truncates the files to valid batches."""

    def __init__(
        self, segments: Segments, config: LogConfig, recovery_point: int, *, may_have_lost_writes: bool
    ) -> None:
        self._segments = segments
        self._files = segments.files
        self._interval_bytes = config.index_interval_bytes
        self._recovery_point = recovery_point
        self._may_have_lost_writes = may_have_lost_writes
        self._epochs = Epochs()
        self._latest_epoch: tuple[int, int] | None = None
        """The last entry of the file, if the batches decide whether it holds."""
        self._epochs_are_lost = False
        self._first_unsealed = 0
        self._damage: str | None = None
        self._has_removed = False

    def run(self, log_start_offset: int, now_ms: int) -> Recovered:
        names = self._remove_leftovers()
        self._segments.segments = self._find(names) or [self._begin(log_start_offset)]
        self._segments.find_keys(names)
        self._load_epochs()
        self._first_unsealed = min(self._find_unsealed(names), self._find_lost_key())
        self._check()
        end_offset = self._segments.active.next_offset
        if self._latest_epoch is not None and self._latest_epoch[1] == end_offset:
            # An epoch may have begun at the very end, without a record.
            self._epochs.assign(*self._latest_epoch)
        self._epochs.truncate_to(end_offset + 1)
        if self._damage is None:
            self._remove_snapshots_behind(end_offset, names)
        durable_offset = min(self._recovery_point, end_offset)
        # The high watermark is not known yet: all markers are kept.
        try:
            producers, snapshots = load_producers(self._segments, end_offset, now_ms, log_start_offset)
        except CorruptBatch as reason:
            producers, snapshots = Producers(), {}
            self._damage = (
                self._damage or f"{self._segments.folder} is damaged ({reason}), and is left as it is"
            )
            logger.error("%s", self._damage)
        if self._damage is None:
            self._correct_aborted()
        unsealed = [
            (segment, snapshots.get(segment.next_offset))
            for segment in self._segments.segments[self._first_unsealed : -1]
        ]
        return Recovered(self._epochs, producers, durable_offset, unsealed, self._damage)

    def _remove_snapshots_behind(self, end_offset: int, names: list[str]) -> None:
        for offset in snapshot_offsets(names):
            if offset > end_offset:
                remove_if_exists(self._files, snapshot_path(self._segments, offset))
                self._has_removed = True
        if self._has_removed:
            # A file that reappeared after a power failure would be considered part of the new log.
            self._files.sync_folder(self._segments.folder)

    def _correct_aborted(self) -> None:
        for segment in self._segments.segments[self._first_unsealed :]:
            # On a full disk it stays as it is until the segment is sealed.
            with suppress(OSError):
                self._segments.correct_aborted(segment)

    def _remove_leftovers(self) -> list[str]:
        """Complete a committed swap, remove temporary and deleted files; returns the remaining names."""
        folder = self._segments.folder
        if self._files.exists(f"{folder}/{COMPACTION_SWAP}"):
            try:
                swap = decode_swap(self._files.read(f"{folder}/{COMPACTION_SWAP}"))
            except DamagedSwap:
                self._files.remove(f"{folder}/{COMPACTION_SWAP}")
            else:
                finish_swap(self._files, folder, swap)
        kept: list[str] = []
        for name in self._files.names(self._segments.folder):
            if name.endswith((DELETED, TEMPORARY, CLEANED)):
                self._files.remove(f"{self._segments.folder}/{name}")
            else:
                kept.append(name)
        return kept

    def _find(self, names: list[str]) -> list[Segment]:
        bases = sorted(offset for offset in (offset_of(name, LOG) for name in names) if offset is not None)
        found: list[Segment] = []
        for base_offset in bases:
            segment = Segment(base_offset)
            segment.size_bytes = self._files.size_bytes(self._segments.path(segment, LOG))
            segment.first_timestamp = segment.max_timestamp = UNKNOWN_TIMESTAMP
            if found:
                found[-1].next_offset = base_offset
            found.append(segment)
        return found

    def _find_unsealed(self, names: list[str]) -> int:
        """The first segment that was not sealed: the snapshot at its end is what sealing writes last.

        It may be below the recovery point: synced while it was active, then closed just before the crash.
        """
        segments = self._segments.segments
        snapshots = set(snapshot_offsets(names))
        last = self._segments.segment_of(self._recovery_point)
        for number, following in enumerate(segments[1 : last + 1]):
            if following.base_offset not in snapshots:
                return number
        return last

    def _find_lost_key(self) -> int:
        """The first segment whose batches are encrypted while its key file is missing; or the last one.

        A key is durable before the first batch that needs it, so that this is damage, even after a power
        failure: truncating what cannot be decrypted would lose records.
        """
        segments = self._segments
        if segments.keys is not None:
            for number, segment in enumerate(segments.segments):
                if self._has_lost_key(segment):
                    return number
        return len(segments.segments) - 1

    def _has_lost_key(self, segment: Segment) -> bool:
        if segment.is_encrypted or segment.size_bytes < RECORDS_START:
            return False
        file = self._segments.open(segment)
        start = file.pread(RECORDS_START, 0)
        if not is_marked(start):
            return False
        try:
            header = read_header(start)
        except CorruptBatch:
            return False
        # A client may have sent records that begin with the mark: then the checksum is right.
        is_whole = header.size_bytes <= segment.size_bytes
        return is_whole and not crc_is_valid(file.pread(header.size_bytes, 0), 0, header)

    def _begin(self, base_offset: int) -> Segment:
        segment = Segment(base_offset)
        self._segments.open(segment, create=True)
        return segment

    def _load_epochs(self) -> None:
        try:
            data = self._files.read(f"{self._segments.folder}/{EPOCHS}")
            entries = decode_epochs(data)
            self._epochs = Epochs(entries)
            if entries and entries[-1][1] >= self._recovery_point:
                # The batches there are read. The log may have been truncated since the file was written, and
                # older epochs have been copied from a leader.
                self._latest_epoch = entries[-1]
                self._epochs.truncate_to(self._recovery_point)
        except (FileNotFoundError, DamagedCheckpoint):
            # Only the batches themselves have them: all of them are read.
            self._epochs_are_lost = True

    def _check(self) -> None:
        segments = self._segments.segments
        first_unsure = self._segments.segment_of(self._recovery_point)
        for number in range(0 if self._epochs_are_lost else self._first_unsealed, len(segments)):
            segment = segments[number]
            if number > first_unsure and not _follows(segments[number - 1], segment):
                reason = f"the segment at {segment.base_offset} follows a gap"
                if not self._may_have_lost_writes and not self._is_last(segments[number - 1]):
                    self._found_damage(segments[number - 1], reason)
                self._drop_from(number, reason)
                return
            if not self._check_segment(segment):
                self._drop_from(number + 1, f"the segment at {segment.base_offset} was truncated")
                return
            if segment is not self._segments.active:
                segment.close_time_index()

    def _check_segment(self, segment: Segment) -> bool:
        """Verify one segment and truncate it after its last valid batch; True if it is complete."""
        if segment.size_bytes == 0 and segment.base_offset >= self._recovery_point:
            self._remove_indexes(segment)
            segment.start_indexes()
            segment.max_timestamp = segment.first_timestamp = -1
            segment.next_offset = segment.base_offset
            return True
        try:
            file = self._segments.open(segment)
        except CorruptBatch as reason:
            # Its key is damaged.
            segment.start_indexes()
            segment.size_bytes, segment.next_offset = 0, segment.base_offset
            self._found_damage(segment, str(reason))
            return False
        if self._has_lost_key(segment):
            segment.start_indexes()
            segment.size_bytes, segment.next_offset = 0, segment.base_offset
            self._found_damage(segment, "it is encrypted, and its key file is missing")
            return False
        size_bytes = segment.size_bytes
        is_active = segment is self._segments.active
        end_offset_max = FOREVER if is_active else segment.next_offset
        position = self._walk_durable(segment, file, size_bytes)
        if position is None:
            return False
        try:
            for _, header, _ in walk_sound_batches(file, position, size_bytes, segment.cipher):
                if header.next_offset > end_offset_max:
                    # It was written, rolled back, and the next segment was created instead.
                    raise CorruptBatch(f"the next segment begins at {end_offset_max}")
                self._adopt(segment, header)
        except CorruptBatch as reason:
            if not self._may_have_lost_writes and not self._is_torn(segment, file, size_bytes):
                self._found_damage(segment, str(reason))
                return False
            logger.warning(
                "%s: truncating %d corrupt bytes behind offset %d (%s)",
                self._segments.path(segment, LOG),
                size_bytes - segment.size_bytes,
                segment.next_offset,
                reason,
            )
            file.truncate(segment.size_bytes)
            file.datasync()
            self._remove_stale_files(segment)
            self._has_removed = True
            return segment.next_offset == end_offset_max
        return True

    def _is_torn(self, segment: Segment, file: File, size_bytes: int) -> bool:
        """Is what follows the valid batches of this segment the last write, which was interrupted?"""
        is_torn = is_torn_write(file, segment.size_bytes, size_bytes, segment.next_offset, segment.cipher)
        return is_torn and self._is_last(segment)

    def _is_last(self, segment: Segment) -> bool:
        """Is nothing in the later segments? One write may create several, before it fills them in order."""
        return not any(
            later.size_bytes for later in self._segments.segments if later.base_offset > segment.base_offset
        )

    def _found_damage(self, segment: Segment, reason: str) -> None:
        self._damage = (
            f"{self._segments.path(segment, LOG)} is damaged at position {segment.size_bytes} ({reason}). It "
            f"can be read up to offset {segment.next_offset}, and is left as it is"
        )
        logger.error("%s", self._damage)

    def _remove_stale_files(self, segment: Segment) -> None:
        """Remove files that may refer to truncated batches."""
        self._remove_indexes(segment)
        remove_if_exists(self._files, f"{self._segments.folder}/{CLEANER_CHECKPOINT}")

    def _remove_indexes(self, segment: Segment) -> None:
        """Remove index files: beyond the durable offset they may refer to truncated batches."""
        for suffix in (INDEX, TIME_INDEX):
            path = self._segments.path(segment, suffix)
            if self._damage is None and self._files.exists(path):
                self._files.remove(path)
                self._has_removed = True

    def _walk_durable(self, segment: Segment, file: File, size_bytes: int) -> int | None:
        """Find the recovery point in the segment without verifying checksums; None if it is damaged."""
        durable_end = self._recovery_point
        if segment is not self._segments.active:
            # Until it is scanned, a closed segment is assumed to end where the next one begins.
            durable_end = min(durable_end, segment.next_offset)
        try:
            return self._walk_from_index(segment, file, size_bytes, durable_end)
        except (FileNotFoundError, DamagedIndex, CorruptBatch):
            self._remove_indexes(segment)
            segment.start_indexes()
        segment.size_bytes = 0
        segment.next_offset = segment.base_offset
        segment.max_timestamp = -1
        try:
            self._adopt_durable(segment, file, size_bytes, durable_end)
        except CorruptBatch as reason:
            self._found_damage(segment, str(reason))
            return None
        return segment.size_bytes

    def _walk_from_index(self, segment: Segment, file: File, size_bytes: int, durable_end: int) -> int:
        """The same, beginning at the last index entry below the recovery point."""
        if self._epochs_are_lost:
            raise DamagedIndex("the epochs are lost, so all batches are read")
        base_offset = segment.base_offset
        offsets = OffsetIndex.decode(
            self._files.read(self._segments.path(segment, INDEX)), base_offset, size_bytes
        )
        times = TimeIndex.decode(self._files.read(self._segments.path(segment, TIME_INDEX)), base_offset)
        entries = len(offsets), len(times)
        offsets.truncate(self._recovery_point)
        times.truncate(self._recovery_point)
        if entries != (len(offsets), len(times)):
            self._remove_indexes(segment)
        entry = offsets.last
        if entry is None:
            raise DamagedIndex("there is no entry to begin at")
        segment.offsets, segment.times = offsets, times
        segment.first_timestamp = read_header(file.pread(HEADER_BYTES, 0)).max_timestamp
        segment.max_timestamp, segment.max_timestamp_offset = times.last or (-1, base_offset)
        segment.size_bytes = entry[1]
        segment.next_offset = base_offset
        if read_header(file.pread(HEADER_BYTES, entry[1])).last_offset != entry[0]:
            raise DamagedIndex("an entry points at another batch")
        self._adopt_durable(segment, file, size_bytes, durable_end)
        return segment.size_bytes

    def _adopt_durable(self, segment: Segment, file: File, size_bytes: int, durable_end: int) -> None:
        """Add the batches up to this offset; CorruptBatch if one is invalid."""
        if segment.next_offset >= durable_end:
            return
        for _, header in walk_headers_of_file(file, segment.size_bytes, size_bytes):
            if header.next_offset <= durable_end:
                self._adopt(segment, header)
            if header.next_offset >= durable_end:
                return
        raise CorruptBatch(f"the file ends before offset {durable_end}")

    def _adopt(self, segment: Segment, header: BatchHeader) -> None:
        if header.base_offset < segment.next_offset or header.last_offset_delta < 0:
            raise CorruptBatch(f"offset {header.base_offset} follows {segment.next_offset - 1}")
        if not 0 <= header.base_offset - segment.base_offset <= RELATIVE_OFFSET_MAX:
            raise CorruptBatch(f"offset {header.base_offset} is not of this segment")
        segment.appended(header, self._interval_bytes)
        self._epochs.assign(header.leader_epoch, header.base_offset)

    def _drop_from(self, count: int, reason: str) -> None:
        """Remove all but the first `count` segments; the files of a damaged log are kept."""
        for segment in self._segments.segments[count:]:
            self._segments.forget(segment)
            if self._damage is None:
                logger.warning("%s: removed, %s", self._segments.path(segment, LOG), reason)
                for suffix in (LOG, INDEX, TIME_INDEX, ABORTED, SNAPSHOT, KEY):
                    remove_if_exists(self._files, self._segments.path(segment, suffix))
        del self._segments.segments[count:]
        self._has_removed = True


def _follows(earlier: Segment, later: Segment) -> bool:
    """Does a segment begin where the one before it ended, or could it not have joined it?"""
    return (
        later.base_offset == earlier.next_offset
        or later.base_offset - earlier.base_offset > RELATIVE_OFFSET_MAX
    )
