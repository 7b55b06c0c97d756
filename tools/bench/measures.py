"""What is measured of a running broker with raw requests: rates, CPU time, memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench import loadgen
from tools.bench.systems import Meter, Running

Numbers = dict[str, float]
Shape = dict[str, Any]

WARM_UP_S = 6.0
"""Long enough for a JVM to compile what it runs most; shorter ones flatter us."""


@dataclass(slots=True)
class Bench:
    """One broker under measurement, and how long each load lasts."""

    running: Running
    program: Path | None
    seconds: float
    scale: float
    """1 for a full run; smaller counts of client records for a short one."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.running.port}"

    @property
    def meter(self) -> Meter:
        return Meter(self.running.pid)

    def create(self, topic: str, partitions: int, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(topic, partitions, 1, config=settings)
        admin = self._admin()
        admin.create_topics([new])[topic].result(60)

    def delete(self, topic: str) -> None:
        """Let go of a topic, so that its pages do not weigh on the next measurement."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(60)

    def shortest(self, topic: str, partitions: int) -> int:
        """The end offset that every partition of the topic has reached."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "bench"})
        try:
            places = [TopicPartition(topic, partition) for partition in range(partitions)]
            ends = [int(consumer.get_watermark_offsets(place, timeout=30)[1]) for place in places]
            return min(ends)
        finally:
            consumer.close()

    def _admin(self) -> AdminClient:
        # Held by the caller until its answer is there: a client that is let go gives up its requests.
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def warm(self, verb: str, **shape: Any) -> None:
        """The same load for a moment; a leader that has just been elected may still refuse."""
        assert self.program is not None
        loadgen.run(self.program, verb, self.running.port, seconds=WARM_UP_S, strict=False, **shape)

    def load(self, verb: str, **shape: Any) -> Numbers:
        assert self.program is not None
        return loadgen.run(self.program, verb, self.running.port, seconds=self.seconds, strict=True, **shape)


def small_requests(bench: Bench) -> Numbers:
    """100-byte produce and fetch, 16 connections with 8 requests in flight each."""
    shape: Shape = {"connections": 16, "in_flight": 8, "topic": "small", "partitions": 16}
    body: Shape = {"records": 1, "record_bytes": 100}
    bench.create("small", 16)
    bench.warm("produce", **shape, **body, acks=1)
    with bench.meter as producing:
        produced = bench.load("produce", **shape, **body, acks=1)
    reach: Shape = {"offset_end": min(2000, bench.shortest("small", 16)), "fetch_bytes": 200, "step": 1}
    bench.warm("fetch", **shape, **body, **reach)
    with bench.meter as fetching:
        fetched = bench.load("fetch", **shape, **body, **reach)
    bench.delete("small")
    return {
        "produce_small_rps": produced["rps"],
        "produce_small_p50_us": produced["p50us"],
        "produce_small_cpu_us": producing.spent_s / produced["reqs"] * 1e6,
        "fetch_small_rps": fetched["rps"],
        "fetch_small_p50_us": fetched["p50us"],
        "fetch_small_cpu_us": fetching.spent_s / fetched["reqs"] * 1e6,
    }


def bulk(bench: Bench) -> Numbers:
    """10 KB and 1 MB batches in, 1 MB chunks out."""
    bench.create("bulk10k", 8)
    medium: Shape = {"connections": 8, "in_flight": 4, "topic": "bulk10k", "partitions": 8}
    medium_body: Shape = {"records": 10, "record_bytes": 1000, "acks": 1}
    bench.warm("produce", **medium, **medium_body)
    medium_out = bench.load("produce", **medium, **medium_body)
    bench.delete("bulk10k")

    bench.create("bulk1m", 4)
    large: Shape = {"connections": 4, "in_flight": 2, "topic": "bulk1m", "partitions": 4}
    body: Shape = {"records": 1000, "record_bytes": 1000}
    bench.warm("produce", **large, **body, acks=1)
    with bench.meter as producing:
        produced = bench.load("produce", **large, **body, acks=1)
    # Fifty batches of each partition, written a moment ago: they are in the page cache for both.
    reach: Shape = {
        "offset_end": min(50_000, bench.shortest("bulk1m", 4)),
        "fetch_bytes": 1_048_576,
        "step": 1000,
    }
    bench.warm("fetch", **large, **body, **reach)
    with bench.meter as fetching:
        fetched = bench.load("fetch", **large, **body, **reach)
    bench.delete("bulk1m")
    return {
        "produce_10k_mbps": medium_out["MBps"],
        "produce_1m_mbps": produced["MBps"],
        "produce_1m_cpu_s_per_gb": producing.spent_s / (produced["MBps"] * produced["secs"] / 1000),
        "fetch_1m_mbps": fetched["MBps"],
        "fetch_1m_cpu_s_per_gb": fetching.spent_s / (fetched["MBps"] * fetched["secs"] / 1000),
    }


def durable(bench: Bench) -> Numbers:
    """Small produce where the acknowledgement waits for the disk."""
    bench.create("durable", 16, **bench.running.waits_for_disk)
    shape: Shape = {"connections": 16, "in_flight": 8, "topic": "durable", "partitions": 16}
    body: Shape = {"records": 1, "record_bytes": 100, "acks": -1}
    bench.warm("produce", **shape, **body)
    produced = bench.load("produce", **shape, **body)
    bench.delete("durable")
    return {"produce_durable_rps": produced["rps"], "produce_durable_p50_us": produced["p50us"]}
