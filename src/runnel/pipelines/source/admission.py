"""The limits of a micro-batch. No I/O, no clock.

Spark's Python API supports a limit on records only, so the other limits are applied here. An unlimited batch
after a backlog could exceed its transaction timeout: it would be aborted and retried with the same offsets
forever.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runnel.model.ids import TopicPartition
from runnel.pipelines.source.planning import Offsets, limited

OFFSETS_PER_TRIGGER = 1_000_000
BYTES_PER_TRIGGER = 512 * 1024 * 1024
"""Bytes as stored by the broker: seconds of work, and a small part of a transaction timeout."""
TRIGGER_DELAY_MS = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits of a micro-batch, as in Spark's Kafka connector."""

    offsets_max: int = OFFSETS_PER_TRIGGER
    bytes_max: int = BYTES_PER_TRIGGER
    offsets_min: int | None = None
    delay_max_ms: int = TRIGGER_DELAY_MS
    """After this time without a batch, one that is smaller than `offsets_min` is started."""

    def is_delayed(self, starts: Offsets, ends: Offsets, idle_ms: float | None) -> bool:
        """Should records wait for more? `idle_ms` is the time since the last batch, None before the first."""
        if self.offsets_min is None or idle_ms is None or idle_ms >= self.delay_max_ms:
            return False
        return available(starts, ends) < self.offsets_min

    def ends(
        self, starts: Offsets, ends: Offsets, offsets_max: int, offset_bytes: Mapping[TopicPartition, float]
    ) -> dict[TopicPartition, int]:
        """The end offsets of the batch. `offset_bytes` are the mean sizes, as far as known."""
        offsets = available(starts, ends)
        size_bytes = sum(
            max(end - starts.get(partition, 0), 0) * offset_bytes.get(partition, 0.0)
            for partition, end in ends.items()
        )
        if size_bytes > self.bytes_max:
            offsets_max = min(offsets_max, int(offsets * self.bytes_max / size_bytes))
        return limited(starts, ends, max(offsets_max, 1))


def available(starts: Offsets, ends: Offsets) -> int:
    """The number of offsets to read."""
    return sum(max(end - starts.get(partition, 0), 0) for partition, end in ends.items())


def mean_bytes(
    sizes: Mapping[TopicPartition, int], first: Offsets, ends: Offsets
) -> dict[TopicPartition, float]:
    """Bytes per offset of each partition whose log has a size and is not empty."""
    return {
        partition: size / (ends[partition] - first[partition])
        for partition, size in sizes.items()
        if partition in first and ends.get(partition, 0) > first[partition]
    }
