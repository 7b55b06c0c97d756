"""What a data folder says that it should hold: its notes of durable offsets, and of a clean shutdown."""

from collections.abc import Collection, Iterator
from pathlib import Path

from runnel.log.manifest import LogEntry
from runnel.log.names import (
    CLEANER_CHECKPOINT,
    COMPACTION_SWAP,
    LOG,
    LOG_STARTS,
    MANIFEST,
    RECOVERY_POINTS,
    offset_name,
)
from runnel.model.ids import TopicPartition
from runnel.pipelines.restore.checkpoint_files import KAFKA_CLEANED, read_manifest, read_offsets
from runnel.pipelines.restore.segments import Scan, base_offset_of, segment_files


class Expected:
    """What should be in the logs of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closed = read_manifest(folder / MANIFEST)
        """How a clean shutdown left each log; nothing after one that was not clean."""
        self._durable = read_offsets(folder / RECOVERY_POINTS)
        self._cleaned = read_offsets(folder / KAFKA_CLEANED)
        self._starts = read_offsets(folder / LOG_STARTS)
        for partition, entry in self._closed.items():
            self._starts[partition] = max(entry.log_start_offset, self._starts.get(partition, 0))

    def log_start(self, partition: TopicPartition) -> int:
        """Below this, records were deleted on request although their files may still be there."""
        return self._starts.get(partition, 0)

    def missing(self, topic: str, present: Collection[TopicPartition]) -> list[Scan]:
        """Partitions of a topic that had records when the broker stopped, and have no folder any more."""
        return [
            Scan(topic, partition.partition, 0, damages=[f"{partition}: its folder is missing"])
            for partition, entry in sorted(self._closed.items())
            if partition.topic == topic
            and partition not in present
            and any(segment.size_bytes for segment in entry.segments)
        ]

    def check(self, found: Scan) -> None:
        """Compare a scan with what should be there; what was durable and is not there is lost."""
        folder = self._folder / str(found.place)
        if not folder.is_dir():
            return
        files = {base_offset_of(path): path for path in segment_files(folder)}
        entry = self._closed.get(found.place)
        if entry is not None and not (folder / COMPACTION_SWAP).exists():
            lost = list(_lost_since_shutdown(found, entry, files))
        else:
            lost = list(self._lost_although_durable(found, files))
            self._report_gaps(found, folder)
        if lost:
            found.damages += lost
            # No write that a crash cut off.
            found.torn_bytes = 0

    def _lost_although_durable(self, found: Scan, files: Collection[int]) -> Iterator[str]:
        # The name of an empty last file is the end of the log, even if what was before is compacted away.
        reach = max(found.next_offset, found.log_start_offset, *files, 0)
        durable = self._durable.get(found.place, 0)
        if reach < durable:
            yield f"{found.place}: offsets {reach} to {durable - 1} are lost, which were safe on the disk"

    def _report_gaps(self, found: Scan, folder: Path) -> None:
        if found.place in self._cleaned or (folder / CLEANER_CHECKPOINT).exists():
            return
        found.notes += [
            f"{found.place}: offsets {first} to {following - 1} are in no file: either they were compacted "
            "away, or a file is missing"
            for first, following in found.gaps
        ]


def _lost_since_shutdown(found: Scan, entry: LogEntry, files: dict[int, Path]) -> Iterator[str]:
    last = max(files, default=-1)
    for segment in entry.segments:
        if segment.size_bytes == 0 or segment.next_offset <= found.log_start_offset:
            continue
        name = offset_name(segment.base_offset, LOG)
        where, last_offset = f"{found.place}: {name}", segment.next_offset - 1
        path = files.get(segment.base_offset)
        if path is None:
            yield f"{where} is missing: offsets {segment.base_offset} to {last_offset} are lost"
        elif not any(damage.startswith(f"{where},") for damage in found.damages):
            torn_bytes = found.torn_bytes if segment.base_offset == last else 0
            sound_bytes = path.stat().st_size - torn_bytes
            if sound_bytes < segment.size_bytes:
                yield (
                    f"{where} was closed with {segment.size_bytes} bytes, of which {sound_bytes} are left: "
                    f"offsets up to {last_offset} are lost"
                )
