"""What many partitions cost: to create, to keep in memory, to look up, and to start with."""

import socket
import statistics
import struct
import time
from pathlib import Path

from tools.bench.measures import Bench, Numbers, Options
from tools.bench.systems import Meter, System
from tools.bench.warm_up import WarmUpPlan

PARTITIONS_PER_TOPIC = 100
LOADED_PARTITIONS = 16
REQUESTS = 300


def with_partitions(system: System, folder: Path, program: Path, count: int, seconds: float) -> Numbers:
    """One broker with `count` partitions, from creation to a clean restart."""
    running = system.launch(folder)
    bench = Bench(running, program, seconds, 1.0, WarmUpPlan())
    try:
        began = time.monotonic()
        for start in range(0, count, PARTITIONS_PER_TOPIC):
            bench.request_topic(f"many-{start}", min(PARTITIONS_PER_TOPIC, count - start))
        numbers: Numbers = {"partitions": count, "create_s": time.monotonic() - began}
        numbers["memory_mb"] = bench.meter.memory_mb()
        numbers["metadata_one_topic_us"] = metadata_us(running.port, "many-0")
        numbers |= _small_produce(bench, min(count, LOADED_PARTITIONS))
        numbers["memory_loaded_mb"] = bench.meter.memory_mb()
    finally:
        stopped_in_s = running.stop()
    again = system.launch(folder)
    try:
        # The first answer may come before the topics are there: wait for one that knows its partitions.
        metadata_us(again.port, "many-0", requests=1)
        numbers["stop_s"], numbers["restart_s"] = stopped_in_s, again.started_in_s
        numbers["memory_restarted_mb"] = Meter(again.pid).memory_mb()
    finally:
        again.stop()
    return numbers


def _small_produce(bench: Bench, partitions: int) -> Numbers:
    options: Options = {"connections": 16, "in_flight": 8, "topic": "many-0", "partitions": partitions}
    # Kafka answers the request that creates a topic before it leads all of its partitions.
    bench.wait_for_leaders("many-0", partitions)
    # Warmed as the other measurements are; the last window is the measurement.
    produced, cpu_s = bench.load("produce_small", "produce", **options, record_bytes=100, acks=1)
    return {"produce_rps": produced.requests_per_s, "produce_cpu_us": cpu_s / produced.requests * 1e6}


def metadata_us(port: int, topic: str, requests: int = REQUESTS) -> float:
    """The median time of a Metadata request (v1) for one topic."""
    name = topic.encode()
    body = struct.pack(">hhihih", 3, 1, 1, -1, 1, len(name)) + name
    frame = struct.pack(">i", len(body)) + body
    times = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        for _ in range(requests):
            began = time.monotonic_ns()
            connection.sendall(frame)
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)
            times.append((time.monotonic_ns() - began) / 1000)
        stream.close()
    return statistics.median(times)
