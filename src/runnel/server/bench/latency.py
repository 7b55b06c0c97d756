"""Produce and end-to-end latency at a fixed rate."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

from runnel.client.cluster import Cluster
from runnel.client.offsets import end_offsets
from runnel.client.producer import Producer
from runnel.client.reader import Reader
from runnel.model.ids import TopicPartition
from runnel.server.bench.percentiles import percentile

ReportProgress = Callable[[str, int, int], None]

_STAMP = Struct(">q")


@dataclass(slots=True)
class Percentiles:
    """Percentiles of a set of durations."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, durations_ms: Sequence[float]) -> "Percentiles":
        """Nearest-rank percentiles; zero for an empty set."""
        ordered = sorted(durations_ms) or [0.0]
        return cls(*(round(percentile(ordered, share), 3) for share in (0.5, 0.9, 0.99, 1.0)))


@dataclass(slots=True)
class Latencies:
    """Latencies measured from the intended send time."""

    records: int
    produce: Percentiles
    end_to_end: Percentiles


async def measure_latency(
    cluster: Cluster,
    partition: TopicPartition,
    record_bytes: int,
    rate: int,
    seconds: float,
    report_progress: ReportProgress,
) -> Latencies:
    """Produce `rate` records per second and consume them concurrently.

    Latency counts from the intended send time, so that a stall is charged to every record it delays.
    """
    total = max(1, int(rate * seconds))
    acknowledged_ms: list[float] = []
    received_ms: list[float] = []
    end = (await end_offsets(cluster, [partition]))[partition]
    padding = bytes(max(record_bytes - _STAMP.size, 0))

    async def receive(reader: Reader) -> None:
        async for message in reader.messages(until={partition: end + total}):
            received_ms.append((time.perf_counter_ns() - _STAMP.unpack_from(message.value or b"")[0]) / 1e6)

    async def send_one(producer: Producer, due_ns: int) -> None:
        future = await producer.send(
            partition.topic, _STAMP.pack(due_ns) + padding, partition=partition.partition
        )
        future.add_done_callback(lambda _: acknowledged_ms.append((time.perf_counter_ns() - due_ns) / 1e6))

    async with Reader(cluster) as reader, Producer(cluster) as producer:
        await reader.assign({partition: end})
        receiving = asyncio.create_task(receive(reader))
        began_ns = time.perf_counter_ns()
        for index in range(total):
            due_ns = began_ns + index * 1_000_000_000 // rate
            await asyncio.sleep(max((due_ns - time.perf_counter_ns()) / 1e9, 0))
            await send_one(producer, due_ns)
            report_progress("measuring latency", index + 1, total)
        await producer.flush()
        await receiving
    return Latencies(total, Percentiles.of(acknowledged_ms), Percentiles.of(received_ms))
