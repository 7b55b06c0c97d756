"""What many partitions cost: making them, holding them, asking about one, and starting with them again."""

import socket
import statistics
import struct
import time
from pathlib import Path

from tools.bench.measures import Bench, Numbers, Shape
from tools.bench.systems import System

PARTITIONS_PER_TOPIC = 100
QUESTIONS = 300


def with_partitions(
    system: System, folder: Path, program: Path | None, count: int, seconds: float
) -> Numbers:
    """One broker with `count` partitions, from creation to a clean restart."""
    running = system.launch(folder)
    bench = Bench(running, program, seconds, 1.0)
    try:
        began = time.monotonic()
        for start in range(0, count, PARTITIONS_PER_TOPIC):
            bench.create(f"many-{start}", min(PARTITIONS_PER_TOPIC, count - start))
        numbers: Numbers = {"partitions": count, "create_s": time.monotonic() - began}
        numbers["memory_mb"] = bench.meter.memory_mb()
        numbers["metadata_one_topic_us"] = metadata_us(running.port, "many-0")
        numbers |= _small_produce(bench, min(count, 16))
        numbers["memory_loaded_mb"] = bench.meter.memory_mb()
    finally:
        stopped_in_s = running.stop()
    again = system.launch(folder)
    try:
        # The first answer may come before the topics are there: wait for one that knows its partitions.
        metadata_us(again.port, "many-0", questions=1)
        restarted = Bench(again, program, seconds, 1.0)
        numbers["stop_s"], numbers["restart_s"] = stopped_in_s, again.started_in_s
        numbers["memory_restarted_mb"] = restarted.meter.memory_mb()
    finally:
        again.stop()
    return numbers


def _small_produce(bench: Bench, partitions: int) -> Numbers:
    if bench.program is None:
        return {}
    shape: Shape = {"connections": 16, "in_flight": 8, "topic": "many-0", "partitions": partitions}
    body: Shape = {"records": 1, "record_bytes": 100, "acks": 1}
    bench.warm("produce", **shape, **body)
    with bench.meter as producing:
        produced = bench.load("produce", **shape, **body)
    return {"produce_rps": produced["rps"], "produce_cpu_us": producing.spent_s / produced["reqs"] * 1e6}


def metadata_us(port: int, topic: str, questions: int = QUESTIONS) -> float:
    """The median time of a Metadata request (v1) for one topic."""
    name = topic.encode()
    body = struct.pack(">hhihih", 3, 1, 1, -1, 1, len(name)) + name
    frame = struct.pack(">i", len(body)) + body
    times = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        for _ in range(questions):
            began = time.monotonic_ns()
            connection.sendall(frame)
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)
            times.append((time.monotonic_ns() - began) / 1000)
        stream.close()
    return statistics.median(times)
