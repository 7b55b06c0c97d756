"""HTTP beside the native protocol: the same records through `runnel gateway`, and by produce and fetch.

Every window of publishes has a topic of its own, which is deleted after it: what others wrote would crowd the
page cache. Subscriptions read records that were produced natively, in batches as large as their responses.
"""

import os
import random
import secrets
import shutil
import string
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tools.bench import loadgen
from tools.bench.http_table import HTTP, NATIVE, RECORD_BYTES, WORKLOADS, Workload
from tools.bench.loadgen import Load, LoadFailed
from tools.bench.measures import Bench, Numbers, Options
from tools.bench.systems import Meter, Runnel
from tools.bench.warm_up import WarmUpPlan, run_until_steady
from tools.gateway_process import GatewayProcess

PARTITIONS = 4
BATCHES = 500
"""Batches of each partition that are read."""
WINDOW_SHARE, LIMIT_SHARE, LOAD_SHARE = 1 / 4, 1 / 10, 2 / 5
"""Of the windows and loads of other parts: CPython compiles nothing, and there are many workloads."""
FILL: Options = {"connections": 4, "in_flight": 4, "partitions": PARTITIONS, "record_bytes": RECORD_BYTES}
Measured = tuple[Load, float]
"""What a load did, and the CPU seconds of the process that served it."""


@dataclass(slots=True)
class Served:
    """One broker and its gateway, with what there is to read."""

    broker: Bench
    gateway: GatewayProcess
    folder: Path
    """For files of requests."""
    readable: dict[int, str] = field(default_factory=dict)
    """The topics that are read, by the records of a batch."""

    def fill(self) -> None:
        """Produce what is read."""
        for records in sorted({workload.records for workload in WORKLOADS}):
            topic = self.readable[records] = f"http-{records}"
            self.broker.create(topic, PARTITIONS)
            while self.broker.shortest(topic, PARTITIONS) < BATCHES * records:
                loadgen.run(
                    self.broker.program,
                    "produce",
                    self.broker.running.port,
                    **FILL,
                    topic=topic,
                    seconds=0.2,
                    records=records,
                )

    def window(self, way: str, workload: Workload, seconds: float) -> Measured:
        """One window of a workload."""
        once = self.by_http if way == HTTP else self.natively
        if workload.verb == "subscribe":
            return once(workload, self.readable[workload.records], seconds)
        topic = f"http-{secrets.token_hex(4)}"
        self.broker.create(topic, PARTITIONS)
        try:
            return once(workload, topic, seconds)
        finally:
            self.broker.delete(topic)

    def natively(self, workload: Workload, topic: str, seconds: float) -> Measured:
        """By Produce or Fetch requests."""
        options: Options = {"topic": topic, "partitions": PARTITIONS, "in_flight": 1, "seconds": seconds}
        if workload.verb == "publish":
            options |= {"acks": -1, "records": workload.records, "record_bytes": RECORD_BYTES}
        else:
            # A fetch returns a whole batch, however small its limit.
            size = workload.records
            options |= {"offset_end": BATCHES * size, "step": size, "fetch_bytes": 200}
        verb = "produce" if workload.verb == "publish" else "fetch"
        return self._load(self.broker.running.port, self.broker.running.pid, workload, verb, options)

    def by_http(self, workload: Workload, topic: str, seconds: float) -> Measured:
        """By requests to the gateway."""
        host = f"127.0.0.1:{self.gateway.port}"
        requests = self.folder / "requests"
        write = publishes if workload.verb == "publish" else subscribes
        encoded = write(host, topic, workload.records)
        requests.write_bytes(b"".join(struct.pack(">i", len(each)) + each for each in encoded))
        options: Options = {"requests": requests, "seconds": seconds}
        if workload.verb == "subscribe":
            options["body_min"] = workload.records * RECORD_BYTES
        return self._load(self.gateway.port, self.gateway.pid, workload, "http", options)

    def _load(self, port: int, pid: int, workload: Workload, verb: str, options: Options) -> Measured:
        with Meter(pid) as meter:
            load = loadgen.run(self.broker.program, verb, port, **options, connections=workload.connections)
        if load.empty:
            raise LoadFailed(f"{workload.key} by {verb}: {load.empty} of {load.requests} responses are empty")
        return load, meter.spent_s


def publishes(host: str, topic: str, records: int) -> list[bytes]:
    """A request with so many records; with one, it is no array."""
    texts = ("".join(random.choices(string.ascii_lowercase, k=RECORD_BYTES)) for _ in range(records))
    items = ",".join(f'{{"value":"{text}"}}' for text in texts)
    body = items if records == 1 else f"[{items}]"
    head = f"POST /topics/{topic}/publish HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return [f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()]


def subscribes(host: str, topic: str, records: int) -> list[bytes]:
    """A request for each batch of the topic."""
    return [
        f"GET /topics/{topic}/subscribe?partition={partition}&offset={batch * records}&max={records} "
        f"HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        for batch in range(BATCHES)
        for partition in range(PARTITIONS)
    ]


def compare_http(
    folder: Path,
    program: Path,
    rounds: int,
    seconds: float,
    plan: WarmUpPlan,
    settings: Mapping[str, str],
    workloads: Sequence[Workload] = WORKLOADS,
) -> dict[str, Any]:
    """All rounds on one broker and its gateway, both ways alternately; how each workload was warmed."""
    found: dict[str, Any] = {
        "rounds": {way: [{} for _ in range(rounds)] for way in (HTTP, NATIVE)},
        "warm_up": {HTTP: {}, NATIVE: {}},
        "run": {"rounds": rounds, "seconds": seconds * LOAD_SHARE},
    }
    folder.mkdir(parents=True)
    running = Runnel().launch(folder / "broker", settings)
    try:
        broker = Bench(running, program, seconds, 1.0, None)
        with GatewayProcess(broker.bootstrap) as gateway:
            served = Served(broker, gateway, folder)
            served.fill()
            for workload in workloads:
                _warm_up(found["warm_up"], served, workload, plan)
                for number in range(rounds):
                    _measure(found["rounds"], served, workload, number, seconds * LOAD_SHARE)
                print(f"  {workload.row.label}", flush=True)
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _warm_up(
    warm_ups: dict[str, dict[str, str]], served: Served, workload: Workload, plan: WarmUpPlan
) -> None:
    for way in (HTTP, NATIVE):
        window = partial(served.window, way, workload, plan.window_s * WINDOW_SHARE)
        _, done = run_until_steady(
            window, lambda result: result[0].requests_per_s, plan.limit_s * LIMIT_SHARE
        )
        warm_ups[way][workload.key] = done.describe()


def _measure(
    rounds: dict[str, list[Numbers]], served: Served, workload: Workload, number: int, seconds: float
) -> None:
    for way in (HTTP, NATIVE) if number % 2 == 0 else (NATIVE, HTTP):
        os.sync()
        load, cpu_s = served.window(way, workload, seconds)
        rounds[way][number] |= {
            f"{workload.key}_rps": load.requests_per_s,
            f"{workload.key}_p50_us": load.latency_us["p50"],
            f"{workload.key}_p99_us": load.latency_us["p99"],
            f"{workload.key}_cpu_us": cpu_s / load.requests * 1e6,
        }
