"""What a tenant notices of another one that uses all it can get, without and with quotas.

    python -m tools.noisy_neighbour [--seconds 10] [--rate 200] [--clients 4]
                                    [--byte-rate 10000000] [--percentage 20]

The quiet tenant produces and consumes small records at a fixed rate; its latency is measured from intended
send times. The noisy one has several processes, each of which produces batches and reads all of them again as
fast as it can. Tenants are client ids here: what is measured does not depend on how they were authenticated.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.quotas import Quotas
from runnel.model.ids import TopicPartition
from runnel.server.bench.latency import Latencies, measure_latency
from tools.broker_process import BrokerProcess

QUIET, NOISY = "quiet", "noisy"
RECORD_BYTES = 200
SETTLE_SECONDS = 3.0
"""The time from the start of the flood, or a new quota, to the measurement."""


def flood(bootstrap: str) -> None:
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
            producer.poll(0.001)
        producer.poll(0)
        consumer.consume(100, 0)


@contextmanager
def flooded(bootstrap: str, clients: int) -> Iterator[None]:
    """The noisy tenant is active meanwhile."""
    command = [sys.executable, "-m", "tools.noisy_neighbour", "--flood", bootstrap]
    processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(clients)]
    try:
        time.sleep(SETTLE_SECONDS)
        yield
    finally:
        for process in processes:
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.noisy_neighbour", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=200, help="records per second of the quiet tenant")
    parser.add_argument("--clients", type=int, default=4, help="processes of the noisy tenant")
    parser.add_argument("--byte-rate", type=int, default=10_000_000, help="its quotas of bytes per second")
    parser.add_argument("--percentage", type=float, default=20.0, help="its quota of the event loop")
    parser.add_argument("--flood", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        flood(options.flood)
        return
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "data") as broker:
        bootstrap = broker.bootstrap
        asyncio.run(prepare(bootstrap))
        print(f"{'':<28}{'produce, ms':<30}{'end to end, ms'}")
        print(f"{'':<28}" + f"{'p50':>10}{'p99':>10}{'max':>10}" * 2)

        def measured(state: str) -> None:
            report(state, asyncio.run(measure(bootstrap, options.rate, options.seconds)))

        measured("alone")
        with flooded(bootstrap, options.clients):
            measured("noisy neighbour")
            asyncio.run(limit(bootstrap, options.byte_rate, options.percentage))
            time.sleep(SETTLE_SECONDS)
            measured("noisy neighbour, quotas")


if __name__ == "__main__":
    main()
