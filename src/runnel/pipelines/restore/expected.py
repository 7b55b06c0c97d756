"""The expected contents of a data folder, from its recovery points and the manifest of a clean shutdown."""

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


class ExpectedContents:
    """The expected contents of the logs of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closed = read_manifest(folder / MANIFEST)
        """The state of each log at a clean shutdown; empty after an unclean one."""
        self._durable = read_offsets(folder / RECOVERY_POINTS)
        self._cleaned = read_offsets(folder / KAFKA_CLEANED)
        self._starts = read_offsets(folder / LOG_STARTS)
        for partition, entry in self._closed.items():
            self._starts[partition] = max(entry.log_start_offset, self._starts.get(partition, 0))

    def log_start(self, partition: TopicPartition) -> int:
        """The log start offset; files with earlier records may still exist."""
        return self._starts.get(partition, 0)

    def missing(self, topic: str, present: Collection[TopicPartition]) -> list[Scan]:
        """Partitions of a topic that had records at shutdown, and whose folder is missing."""
        return [
            Scan(topic, partition.partition, 0, damages=[f"{partition}: its folder is missing"])
            for partition, entry in sorted(self._closed.items())
            if partition.topic == topic
            and partition not in present
            and any(segment.size_bytes for segment in entry.segments)
        ]

    def check(self, found: Scan) -> None:
        """Compare a scan with the expected contents; missing durable records are lost."""
        folder = self._folder / str(found.topic_partition)
        if not folder.is_dir():
            return
        files = {base_offset_of(path): path for path in segment_files(folder)}
        entry = self._closed.get(found.topic_partition)
        if entry is not None and not (folder / COMPACTION_SWAP).exists():
            lost = list(_lost_since_shutdown(found, entry, files))
        else:
            lost = list(self._lost_durable(found, files))
            self._report_gaps(found, folder)
        if lost:
            found.damages += lost
            # Not a torn write.
            found.torn_bytes = 0

    def _lost_durable(self, found: Scan, files: Collection[int]) -> Iterator[str]:
        # The name of an empty last segment is the end offset, even if earlier records were compacted.
        reach = max(found.next_offset, found.log_start_offset, *files, 0)
        durable = self._durable.get(found.topic_partition, 0)
        if reach < durable:
            lost = f"offsets {reach} to {durable - 1} are lost, although they were durable"
            yield f"{found.topic_partition}: {lost}"

    def _report_gaps(self, found: Scan, folder: Path) -> None:
        if found.topic_partition in self._cleaned or (folder / CLEANER_CHECKPOINT).exists():
            return
        found.notes += [
            f"{found.topic_partition}: offsets {first} to {following - 1} are in no file: either they were "
            "compacted, or a file is missing"
            for first, following in found.gaps
        ]


def _lost_since_shutdown(found: Scan, entry: LogEntry, files: dict[int, Path]) -> Iterator[str]:
    last = max(files, default=-1)
    for segment in entry.segments:
        if segment.size_bytes == 0 or segment.next_offset <= found.log_start_offset:
            continue
        name = offset_name(segment.base_offset, LOG)
        file, last_offset = f"{found.topic_partition}: {name}", segment.next_offset - 1
        path = files.get(segment.base_offset)
        if path is None:
            yield f"{file} is missing: offsets {segment.base_offset} to {last_offset} are lost"
        elif not any(damage.startswith(f"{file},") for damage in found.damages):
            torn_bytes = found.torn_bytes if segment.base_offset == last else 0
            valid_bytes = path.stat().st_size - torn_bytes
            if valid_bytes < segment.size_bytes:
                yield (
                    f"{file} was closed with {segment.size_bytes} bytes, of which {valid_bytes} are left: "
                    f"offsets up to {last_offset} are lost"
                )
