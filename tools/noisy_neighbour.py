"""What a tenant notices of another one that uses all it can get, without and with quotas.

    python -m tools.noisy_neighbour [--rounds 5] [--seconds 8] [--rate 200] [--clients 4]
                                    [--byte-rate 5000000] [--percentage 10]

The quiet tenant produces and consumes small records at a fixed rate; its latency is measured from intended
send times. The noisy one has several processes, each of which produces batches and reads all of them again as
fast as it can. Tenants are client ids here: what is measured does not depend on how they were authenticated.

The noisy tenant is paused and continued between measurements, so that slower and faster minutes of the
machine affect both alike. Ends with 1 if the median p99 beside a noisy tenant with quotas is more than 20 %
above that without one. The broker and the measuring client run before other processes, where that is
permitted: the processors that the noisy clients take are not the broker's to divide.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.quotas import Quotas
from runnel.model.ids import TopicPartition
from runnel.server.bench.latency import Latencies, measure_latency
from tools.broker_process import BrokerProcess
from tools.processes import prefer, unwind_when_ended

QUIET, NOISY = "quiet", "noisy"
RECORD_BYTES = 200
SETTLE_SECONDS = 2.0
"""The time from a change to the measurement."""
TOLERANCE = 0.2


def flood(bootstrap: str) -> NoReturn:
    """Produce and consume as fast as possible, until killed."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    config = {"bootstrap.servers": bootstrap, "client.id": NOISY}
    producer = Producer({**config, "batch.size": 100_000, "linger.ms": 0})
    consumer = Consumer({**config, "group.id": NOISY, "enable.auto.commit": False})
    consumer.assign([TopicPartition(NOISY, 0, 0)])
    value = bytes(10_000)
    while True:
        try:
            producer.produce(NOISY, value)
        except BufferError:
            producer.poll(0.005)
        producer.poll(0)
        consumer.consume(100, 0)


class Flood:
    """The processes of the noisy tenant, which can be paused."""

    def __init__(self, bootstrap: str, clients: int) -> None:
        command = [sys.executable, "-m", "tools.noisy_neighbour", "--flood", bootstrap]
        self._processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(clients)]

    def signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)

    @contextmanager
    def active(self) -> Iterator[None]:
        self.signal(signal.SIGCONT)
        try:
            time.sleep(SETTLE_SECONDS)
            yield
        finally:
            self.signal(signal.SIGSTOP)
            time.sleep(SETTLE_SECONDS)

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


async def measure(bootstrap: str, rate: int, seconds: float) -> Latencies:
    async with Cluster(bootstrap, client_id=QUIET) as cluster:
        partition = TopicPartition(QUIET, 0)
        return await measure_latency(cluster, partition, RECORD_BYTES, rate, seconds, lambda *_: None)


async def prepare(bootstrap: str) -> None:
    async with Cluster(bootstrap, client_id="administrator") as cluster:
        admin = Admin(cluster)
        await admin.create_topic(QUIET, partitions=1)
        await admin.create_topic(NOISY, partitions=1, settings={"retention.bytes": "500000000"})


async def limit(bootstrap: str, byte_rate: int, percentage: float) -> None:
    quotas: dict[str, float] = {
        "producer_byte_rate": byte_rate,
        "consumer_byte_rate": byte_rate,
        "request_percentage": percentage,
    }
    async with Cluster(bootstrap, client_id="administrator") as cluster:
        await Quotas(cluster).alter({"client-id": NOISY}, quotas)


def report(state: str, found: Latencies) -> None:
    parts = (found.produce, found.end_to_end)
    figures = "".join(f"{part.p50_ms:10.2f}{part.p99_ms:10.2f}{part.max_ms:10.2f}" for part in parts)
    print(f"{state:<28}{figures}", flush=True)


def compare(alone: list[Latencies], beside: list[Latencies]) -> bool:
    """Print the medians of p99; whether the noisy tenant is hardly noticed."""
    are_kept = []
    for name in ("produce", "end_to_end"):
        before, after = (
            statistics.median(getattr(found, name).p99_ms for found in states) for states in (alone, beside)
        )
        is_kept = after <= before * (1 + TOLERANCE)
        are_kept.append(is_kept)
        verdict = "" if is_kept else "  MORE THAN 20 % ABOVE"
        figures = f"{before:.2f} ms alone, {after:.2f} ms beside it ({after / before - 1:+.0%})"
        print(f"{name}, p99: {figures}{verdict}")
    return all(are_kept)


def measure_rounds(bootstrap: str, flood: Flood, options: argparse.Namespace) -> bool:
    print(f"{'':<28}{'produce, ms':<30}{'end to end, ms'}")
    print(f"{'':<28}" + f"{'p50':>10}{'p99':>10}{'max':>10}" * 2)

    def measured(state: str) -> Latencies:
        found = asyncio.run(measure(bootstrap, options.rate, options.seconds))
        report(state, found)
        return found

    with flood.active():
        measured("noisy neighbour")
    asyncio.run(limit(bootstrap, options.byte_rate, options.percentage))
    alone, beside = [], []
    for _ in range(options.rounds):
        alone.append(measured("alone"))
        with flood.active():
            beside.append(measured("noisy neighbour, quotas"))
    return compare(alone, beside)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.noisy_neighbour", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rate", type=int, default=200, help="records per second of the quiet tenant")
    parser.add_argument("--clients", type=int, default=4, help="processes of the noisy tenant")
    parser.add_argument("--byte-rate", type=int, default=5_000_000, help="its quotas of bytes per second")
    parser.add_argument("--percentage", type=float, default=10.0, help="its quota of the event loop")
    parser.add_argument("--flood", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        flood(options.flood)
    unwind_when_ended()
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "data") as broker:
        asyncio.run(prepare(broker.bootstrap))
        noisy = Flood(broker.bootstrap, options.clients)
        try:
            prefer(broker.pid)
            prefer(os.getpid())
            return 0 if measure_rounds(broker.bootstrap, noisy, options) else 1
        finally:
            noisy.kill()


if __name__ == "__main__":
    sys.exit(main())
