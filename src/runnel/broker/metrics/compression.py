"""How well producers compress: measured on some batches, as the broker does not decompress what it stores.

While metrics are read, the last batch of a few topics that were written to is decompressed in a thread.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import HEADER_BYTES, read_header
from runnel.batch.records import unpack_records
from runnel.broker.metrics.series import TOPIC_SERIES_MAX
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.promise import settled
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.model.errors import ApiError
from runnel.observe.metrics import Family

INTERVAL_MS = 5_000
"""Topics are sampled at most this often, when metrics are read."""
TOPICS_PER_ROUND = 8
PARTITIONS_EXAMINED_MAX = 100
"""Partitions of a topic among which one is chosen."""
BATCH_BYTES_MAX = 1024 * 1024
"""Larger batches are not sampled."""
DECAY = 0.75
"""What an earlier sample of a topic counts when another one is added."""


class CompressionMetrics:
    """The ratio of decompressed and stored bytes, by topic."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._samples: dict[str, tuple[float, float]] = {}
        """(decompressed bytes, stored bytes) by topic."""
        self._sampled: dict[str, int] = {}
        """The bytes that had been written to a topic when it was sampled, the longest ago first."""
        self._next_ms = 0
        self._is_sampling = False

    def __call__(self) -> Iterator[Family | None]:
        now_ms = self._broker.clock.monotonic_ms()
        if now_ms >= self._next_ms and not self._is_sampling:
            self._next_ms = now_ms + INTERVAL_MS
            self._is_sampling = True
            self._broker.run(self._sample())
        yield None
        yield Family(
            "runnel_compression_ratio",
            "gauge",
            "Decompressed size of records by their stored size, of batches that were sampled.",
            [
                ((("topic", topic),), round(raw / stored, 3))
                for topic, (raw, stored) in sorted(self._samples.items())
            ],
        )

    async def _sample(self) -> None:
        try:
            for topic in self._chosen():
                partition = self._written_partition(topic)
                if partition is not None:
                    await self._sample_partition(topic, partition)
        finally:
            self._is_sampling = False

    def _chosen(self) -> list[str]:
        """Topics that were written to since they were sampled, those first that waited for longest."""
        if len(self._broker.traffic) > TOPIC_SERIES_MAX:
            self._samples.clear()
            self._sampled.clear()
            return []
        traffic = dict(self._broker.traffic.topics())
        for topic in self._sampled.keys() - traffic.keys():
            del self._sampled[topic]
            self._samples.pop(topic, None)
        unsampled = [
            topic for topic, counts in traffic.items() if topic not in self._sampled and counts.bytes_in
        ]
        known = [topic for topic, seen in self._sampled.items() if traffic[topic].bytes_in != seen]
        chosen = [*unsampled, *known][:TOPICS_PER_ROUND]
        for topic in chosen:
            self._sampled.pop(topic, None)
            self._sampled[topic] = traffic[topic].bytes_in
        return chosen

    def _written_partition(self, topic: str) -> ReplicatedLog | None:
        """The partition of a topic to which most was written since the start."""
        candidates = (
            self._broker.partition_at.get((topic, index)) for index in range(PARTITIONS_EXAMINED_MAX)
        )
        led = [partition for partition in candidates if partition is not None and partition.is_leader]
        return max(led, key=lambda partition: partition.appended_bytes, default=None)

    async def _sample_partition(self, topic: str, partition: ReplicatedLog) -> None:
        log = partition.log
        if log.written_offset <= log.log_start_offset:
            return
        try:
            batches = await settled(partition.read_batches(log.written_offset - 1, BATCH_BYTES_MAX))
            sizes = await self._broker.disk.run_blocking(Job(partial(_sizes, batches)))
        except (ApiError, CorruptBatch):
            # A reader of these records gets the error.
            return
        if sizes is not None:
            raw, stored = self._samples.get(topic, (0.0, 0.0))
            self._samples[topic] = raw * DECAY + sizes[0], stored * DECAY + sizes[1]


def _sizes(batches: Sequence[memoryview]) -> tuple[int, int] | None:
    """(decompressed, stored) size of the records of the last batch; None if it is not to be sampled."""
    if not batches or len(batches[-1]) > BATCH_BYTES_MAX:
        return None
    header = read_header(batches[-1])
    stored_bytes = header.size_bytes - HEADER_BYTES
    if header.is_control or not stored_bytes:
        return None
    if not header.compression:
        return stored_bytes, stored_bytes
    return len(unpack_records(batches[-1], header)), stored_bytes
