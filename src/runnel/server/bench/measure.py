"""Benchmark of a running broker: throughput with pre-built batches, then latency at a fixed rate."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.header import walk_headers
from runnel.batch.records import Record
from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.connection import Connection
from runnel.client.errors import check
from runnel.client.offsets import end_offsets
from runnel.client.producer import ACKS
from runnel.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from runnel.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from runnel.model.ids import TopicPartition
from runnel.server.bench.latency import Latencies, measure_latency
from runnel.server.bench.pauses import PauseReport, pauses_between, read_pauses

ReportProgress = Callable[[str, int, int], None]
FETCH_BYTES = 4 * 1024 * 1024
FETCH_WAIT_MS = 500


@dataclass(slots=True)
class Plan:
    """Parameters of a benchmark."""

    records: int = 1_000_000
    record_bytes: int = 100
    batch_bytes: int = 16_384
    partitions: int = 1
    connections: int = 1
    in_flight: int = 5
    acks: str = "all"
    compression: str = "none"
    latency_s: float = 3.0
    latency_rate: int = 200
    topic: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def records_per_batch(self) -> int:
        return max(1, min(self.batch_bytes // (self.record_bytes + 10), self.records))


@dataclass(slots=True)
class Throughput:
    """Records and bytes transferred in one direction, and the duration."""

    records: int
    size_bytes: int
    seconds: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def megabytes_per_s(self) -> float:
        return self.size_bytes / self.seconds / 1e6


@dataclass(slots=True)
class Report:
    """Results of a benchmark."""

    produce: Throughput
    consume: Throughput
    latency: Latencies | None
    pauses: PauseReport | None = None

    def as_json(self) -> dict[str, Any]:
        flows = {
            name: {
                "records": flow.records,
                "bytes": flow.size_bytes,
                "seconds": round(flow.seconds, 4),
                "records_per_s": round(flow.records_per_s),
                "megabytes_per_s": round(flow.megabytes_per_s, 2),
            }
            for name, flow in (("produce", self.produce), ("consume", self.consume))
        }
        return {
            **flows,
            "latency": None if self.latency is None else asdict(self.latency),
            "event_loop_pauses": None if self.pauses is None else asdict(self.pauses),
        }


async def measure(cluster: Cluster, plan: Plan, report_progress: ReportProgress) -> Report:
    """Run the plan on its topic, or on a temporary one that is deleted afterwards."""
    topic = plan.topic or f"runnel-bench-{uuid4().hex[:8]}"
    if plan.topic is None:
        await Admin(cluster).create_topic(topic, partitions=plan.partitions, settings=plan.settings)
    try:
        count = len((await cluster.topic(topic)).partitions)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        starts = await end_offsets(cluster, partitions)
        pauses_before = await read_pauses(cluster)
        produced = await _produce(cluster, plan, starts, report_progress)
        consumed = await _consume(cluster, plan, starts, report_progress)
        latency = None
        if plan.latency_s > 0:
            latency = await measure_latency(
                cluster, partitions[0], plan.record_bytes, plan.latency_rate, plan.latency_s, report_progress
            )
        pauses = pauses_between(pauses_before, await read_pauses(cluster))
        return Report(produced, consumed, latency, pauses)
    finally:
        if plan.topic is None:
            await Admin(cluster).delete_topic(topic)


# Producing.


async def _produce(
    cluster: Cluster, plan: Plan, starts: Mapping[TopicPartition, int], report_progress: ReportProgress
) -> Throughput:
    batch = _batch(plan)
    batches_left = -(-plan.records // plan.records_per_batch)
    total = batches_left * plan.records_per_batch
    sent = 0

    async def sender(connection: Connection, first: int) -> None:
        nonlocal batches_left, sent
        turn = first
        while batches_left > 0:
            batches_left -= 1
            partition = connections[connection][turn % len(connections[connection])]
            turn += 1
            request = _produce_request(plan, partition, batch)
            if plan.acks == "0":
                await connection.send_oneway(request)
            else:
                answer = await connection.send(request, ProduceResponse)
                result = answer.responses[0].partition_responses[0]
                check(result.error_code, f"writing to {partition}", result.error_message)
            sent += plan.records_per_batch
            report_progress("producing", sent, total)

    connections = await _connections(cluster, plan, list(starts))
    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for index, connection in enumerate(connections):
            for slot in range(plan.in_flight):
                tasks.create_task(sender(connection, index + slot))
    if plan.acks == "0":
        await _wait_until_written(cluster, starts, total)
    seconds = time.perf_counter() - began_s
    await asyncio.gather(*(connection.close() for connection in connections))
    return Throughput(total, total * plan.record_bytes, seconds)


async def _wait_until_written(cluster: Cluster, starts: Mapping[TopicPartition, int], total: int) -> None:
    # acks=0 has no response: the log end offset shows when the records have arrived.
    goal = sum(starts.values()) + total
    while sum((await end_offsets(cluster, starts)).values()) < goal:
        await asyncio.sleep(0.01)


def _batch(plan: Plan) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    # Text with about the compression ratio of real events.
    pattern = b" ".join(b"%06x" % (index * 2654435761 % 2**24) for index in range(plan.record_bytes // 7 + 1))
    records = [
        Record(0, now_ms, None, (b"%d " % index + pattern)[: plan.record_bytes])
        for index in range(plan.records_per_batch)
    ]
    return bytes(build_batch(records, compression=Compression.from_name(plan.compression)))


def _produce_request(plan: Plan, partition: TopicPartition, batch: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=partition.partition, records=memoryview(batch))
    topic = TopicProduceData(name=partition.topic, partition_data=[data])
    return ProduceRequest(acks=ACKS[plan.acks], timeout_ms=30_000, topic_data=[topic])


async def _connections(
    cluster: Cluster, plan: Plan, partitions: list[TopicPartition]
) -> dict[Connection, list[TopicPartition]]:
    """Dedicated connections to leaders, with the partitions each leads."""
    connections: dict[Connection, list[TopicPartition]] = {}
    groups = sorted((await cluster.by_leader(partitions)).items())
    for index in range(max(plan.connections, len(groups))):
        leader, led = groups[index % len(groups)]
        node = cluster.nodes[leader]
        connection = await Connection.open(
            node.host, node.port, client_id="runnel-bench", security=cluster.security
        )
        connections[connection] = led
    return connections


# Consuming.


async def _consume(
    cluster: Cluster, plan: Plan, starts: Mapping[TopicPartition, int], report_progress: ReportProgress
) -> Throughput:
    ends = await end_offsets(cluster, starts)
    total = sum(ends[partition] - starts[partition] for partition in starts)
    read = 0

    async def reader(connection: Connection, partitions: list[TopicPartition]) -> None:
        nonlocal read
        positions = {partition: starts[partition] for partition in partitions}
        while positions:
            answer = await connection.send(_fetch_request(positions), FetchResponse)
            check(answer.error_code, "reading")
            for topic in answer.responses:
                for view in topic.partitions:
                    partition = TopicPartition(topic.topic, view.partition_index)
                    check(view.error_code, f"reading {partition}")
                    for _, header in walk_headers(view.records or b""):
                        read += header.record_count
                        positions[partition] = header.next_offset
                    if positions[partition] >= ends[partition]:
                        del positions[partition]
            report_progress("consuming", read, total)

    connections = await _connections(cluster, plan, list(starts))
    shares = _distribute(connections)
    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for connection, partitions in shares.items():
            tasks.create_task(reader(connection, partitions))
    seconds = time.perf_counter() - began_s
    await asyncio.gather(*(connection.close() for connection in connections))
    return Throughput(read, read * plan.record_bytes, seconds)


def _distribute(
    connections: Mapping[Connection, list[TopicPartition]],
) -> dict[Connection, list[TopicPartition]]:
    """Assign each partition to exactly one connection."""
    shares: dict[Connection, list[TopicPartition]] = {connection: [] for connection in connections}
    for partition in {partition for led in connections.values() for partition in led}:
        candidates = [connection for connection, led in connections.items() if partition in led]
        shares[min(candidates, key=lambda connection: len(shares[connection]))].append(partition)
    return shares


def _fetch_request(positions: Mapping[TopicPartition, int]) -> FetchRequest:
    topic = FetchTopic(topic=next(iter(positions)).topic)
    for partition, offset in positions.items():
        topic.partitions.append(
            FetchPartition(
                partition=partition.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
            )
        )
    return FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=4 * FETCH_BYTES, topics=[topic])
