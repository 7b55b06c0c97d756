"""What is measured of a running broker with raw requests: rates, latencies, CPU time."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench import loadgen
from tools.bench.loadgen import Load
from tools.bench.systems import Meter, Running
from tools.bench.table import LATENCY_RATES
from tools.bench.warm_up import WarmUp, WarmUpPlan, run_until_steady

Numbers = dict[str, float]
Options = dict[str, Any]
Result = TypeVar("Result")

READY_TIMEOUT_S = 30.0
LATENCY_PARTITIONS = 4


@dataclass(slots=True)
class Bench:
    """One broker under measurement, how long each load lasts, and how far each workload is warmed."""

    running: Running
    program: Path
    seconds: float
    scale: float
    """1 for a full run; smaller counts of client records for a short one."""
    warm_up: WarmUpPlan | None
    """None once the broker is warm and is measured."""
    warm_ups: dict[str, WarmUp] = field(default_factory=dict)
    connection: Options = field(default_factory=dict)
    """How the load generator connects, if not to the broker's port in clear text."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.running.port}"

    @property
    def meter(self) -> Meter:
        return Meter(self.running.pid)

    @property
    def load_s(self) -> float:
        return self.warm_up.window_s if self.warm_up else self.seconds

    def request_topic(self, topic: str, partitions: int, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = self._admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(60)

    def create(self, topic: str, partitions: int, **config: str) -> None:
        """Create a topic and wait until each partition has a leader that answers."""
        self.request_topic(topic, partitions, **config)
        self.wait_for_leaders(topic, partitions)

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        """Wait until each partition has a leader that answers."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                self.shortest(topic, partitions)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def delete(self, topic: str) -> None:
        """Delete a topic, so that its pages do not weigh on the next measurement."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(60)

    def shortest(self, topic: str, partitions: int) -> int:
        """The end offset that every partition of the topic has reached."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "bench", "log_level": 0})
        try:
            places = [TopicPartition(topic, partition) for partition in range(partitions)]
            ends = [int(consumer.get_watermark_offsets(place, timeout=30)[1]) for place in places]
            return min(ends)
        finally:
            consumer.close()

    def _admin(self) -> AdminClient:
        # Held by the caller until its result is there: a client that is dropped gives up its requests.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def steady(
        self, workload: str, window: Callable[[], Result], figure: Callable[[Result], float]
    ) -> Result:
        """Run a window of a workload; while the broker is being warmed, until the figure is steady."""
        if self.warm_up is None:
            return window()
        limit_s = self.warm_up.limit_s if self.warm_ups else self.warm_up.first_limit_s
        result, self.warm_ups[workload] = run_until_steady(window, figure, limit_s)
        return result

    def load_once(self, verb: str, **options: Any) -> tuple[Load, float]:
        """One window of a load, and the CPU seconds that the broker spent on it."""
        connection = {"port": self.running.port, **self.connection}
        with self.meter as meter:
            load = loadgen.run(self.program, verb, **connection, seconds=self.load_s, **options)
        return load, meter.spent_s

    def load(self, workload: str, verb: str, **options: object) -> tuple[Load, float]:
        """A closed loop, and the CPU seconds that the broker spent on it."""

        def window() -> tuple[Load, float]:
            return self.load_once(verb, **options)

        return self.steady(workload, window, lambda result: result[0].requests_per_s)


def small_requests(bench: Bench) -> Numbers:
    """100-byte produce and fetch: 16 connections with 8 requests in flight each, and one with one."""
    many: Options = {"connections": 16, "in_flight": 8, "topic": "small", "partitions": 16}
    one: Options = {"connections": 1, "in_flight": 1, "topic": "small", "partitions": 1}
    bench.create("small", 16)
    numbers: Numbers = {}
    for name, options in (("produce_small", many), ("produce_single", one)):
        produced, cpu_s = bench.load(name, "produce", **options, record_bytes=100, acks=1)
        numbers |= _requests(name, produced, cpu_s)
    reach: Options = {"offset_end": min(2000, bench.shortest("small", 16)), "fetch_bytes": 200}
    fetched, cpu_s = bench.load("fetch_small", "fetch", **many, **reach)
    numbers |= _requests("fetch_small", fetched, cpu_s)
    bench.delete("small")
    return numbers


def _requests(name: str, load: Load, cpu_s: float) -> Numbers:
    return {
        f"{name}_rps": load.requests_per_s,
        f"{name}_p50_us": load.latency_us["p50"],
        f"{name}_p99_us": load.latency_us["p99"],
        f"{name}_cpu_us": cpu_s / load.requests * 1e6,
    }


def bulk(bench: Bench) -> Numbers:
    """10 KB and 1 MB batches in, 1 MB chunks out."""
    medium: Options = {"connections": 8, "in_flight": 4, "topic": "bulk10k", "partitions": 8}
    numbers = _bulk_produce(bench, "produce_10k", medium, records=10)
    bench.delete("bulk10k")
    return numbers | large_batches(bench)


def large_batches(bench: Bench) -> Numbers:
    """1 MB batches in, 1 MB chunks out."""
    large: Options = {"connections": 4, "in_flight": 2, "topic": "bulk1m", "partitions": 4}
    numbers = _bulk_produce(bench, "produce_1m", large, records=1000)
    # Fifty batches of each partition, written a moment ago: they are in the page cache for both.
    end = min(50_000, bench.shortest("bulk1m", 4))
    fetched, cpu_s = bench.load(
        "fetch_1m", "fetch", **large, offset_end=end, fetch_bytes=1_048_576, step=1000
    )
    numbers |= _bytes("fetch_1m", fetched, cpu_s)
    bench.delete("bulk1m")
    return numbers


def _bulk_produce(bench: Bench, name: str, options: Options, records: int) -> Numbers:
    """Each window fills a new topic: what earlier ones wrote would crowd the page cache."""
    topic, partitions = options["topic"], options["partitions"]
    has_topic = False

    def window() -> tuple[Load, float]:
        nonlocal has_topic
        if has_topic:
            bench.delete(topic)
        bench.create(topic, partitions)
        has_topic = True
        return bench.load_once("produce", records=records, record_bytes=1000, acks=1, **options)

    produced, cpu_s = bench.steady(name, window, lambda result: result[0].mb_per_s)
    return _bytes(name, produced, cpu_s)


def _bytes(name: str, load: Load, cpu_s: float) -> Numbers:
    return {f"{name}_mbps": load.mb_per_s, f"{name}_cpu_s_per_gb": cpu_s / (load.bytes / 1e9)}


def durable(bench: Bench) -> Numbers:
    """Small produce where the acknowledgement waits for the disk."""
    options: Options = {"connections": 16, "in_flight": 8, "topic": "durable", "partitions": 16}
    bench.create("durable", 16, **bench.running.waits_for_disk)
    produced, cpu_s = bench.load("produce_durable", "produce", **options, record_bytes=100, acks=-1)
    bench.delete("durable")
    return _requests("produce_durable", produced, cpu_s)


def latency(bench: Bench) -> Numbers:
    """Records on a fixed schedule, acks=all: from the intended send to acknowledgement and to consumer."""
    numbers: Numbers = {}
    for rate in LATENCY_RATES:
        window = partial(_open_loop, bench, rate)
        load, cpu_s = bench.steady(f"latency_{rate}", window, lambda result: result[0].latency_us["p50"])
        for name, figures in (("produce", load.latency_us), ("end_to_end", load.arrival_us)):
            numbers |= {f"{name}_{rate}_{share}_us": value for share, value in figures.items()}
        numbers[f"latency_{rate}_cpu_us"] = cpu_s / (rate * load.seconds) * 1e6
    return numbers


def _open_loop(bench: Bench, rate: int) -> tuple[Load, float]:
    # Its consumers read from the start: each window has a topic of its own.
    topic = f"latency-{secrets.token_hex(4)}"
    bench.create(topic, LATENCY_PARTITIONS)
    load, cpu_s = bench.load_once(
        "latency",
        topic=topic,
        partitions=LATENCY_PARTITIONS,
        rate=rate,
        record_bytes=100,
        discard=min(1.0, bench.load_s / 4),
    )
    bench.delete(topic)
    return load, cpu_s
