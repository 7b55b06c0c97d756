"""What Java and librdkafka clients get under each kind of quota; ends with 1 beyond 10 % of a limit.

    python -m tools.quota_rates [--seconds 20] [--only produce fetch time mutate connect]

Each client uses all it can get and reports how much that was. The share of the event loop that a client takes
is not known to it: it is between the CPU time of the broker and that plus the time for which it waited for a
processor, as the broker measures time and not CPU time. Most rates are measured over three windows of a
second instead of eleven, so that the bursts that they permit are small.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from confluent_kafka import Producer

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.quotas import Quotas
from tools.broker_process import BrokerProcess
from tools.fetch.programs import missing
from tools.kafka.commands import java, kafka_jars
from tools.processes import child, prefer, unwind_when_ended

TOLERANCE = 0.1
FIRST_USE_TIMEOUT_S = 120.0
TOPIC = "limited"
HOST = "127.0.0.1"
FILL_RECORDS, FILL_BYTES = 4000, 10_000
"""More than is read: a consumer at the end would wait."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A quota, and how clients exhaust it."""

    quota: str
    limit: float
    size: int
    """Bytes of a record or of a fetch, or partitions of a topic."""
    threads: int = 1
    windows: int = 3
    """Samples of the rate."""
    is_shared: bool = False
    """Clients would share it, or what they use is measured at the broker: one after the other."""

    @property
    def settings(self) -> dict[str, str]:
        windows = str(self.windows)
        return {"quota.window.num": windows, "controller.quota.window.num": windows}


KINDS = {
    "produce": Kind("producer_byte_rate", 500_000, 10_000),
    "fetch": Kind("consumer_byte_rate", 500_000, 50_000),
    "mutate": Kind("controller_mutation_rate", 10, 5),
    "time": Kind("request_percentage", 10, 100, is_shared=True),
    "connect": Kind("connection_creation_rate", 10, 0, threads=16, is_shared=True),
}
CLIENTS = ("java", "librdkafka")


@dataclass(slots=True)
class Usage:
    """What a client has reported: (seconds, how much it had used)."""

    reports: list[tuple[float, float]] = field(default_factory=list)

    def read(self, output: Iterator[str]) -> None:
        for line in output:
            at, used = line.split()
            self.reports.append((float(at), float(used)))

    @property
    def has_begun(self) -> bool:
        return bool(self.reports) and self.reports[-1][1] > 0

    def rate(self, first: int, span_s: float) -> float:
        """From the mean of a span at the start to that at the end: some clients come in bursts."""
        reports = self.reports[first:]
        began_at, ended_at = reports[0][0], reports[-1][0]
        begin = _mean([report for report in reports if report[0] < began_at + span_s])
        end = _mean([report for report in reports if report[0] > ended_at - span_s])
        return (end[1] - begin[1]) / (end[0] - begin[0])


def _mean(reports: list[tuple[float, float]]) -> tuple[float, float]:
    return fmean(at for at, _ in reports), fmean(used for _, used in reports)


@contextmanager
def using(kind: str, client: str, bootstrap: str) -> Iterator[Usage]:
    """A client of this kind is active meanwhile."""
    arguments = (kind, bootstrap, TOPIC, KINDS[kind].size, KINDS[kind].threads)
    if client == "java":
        command = java(str(Path(__file__).with_name("QuotaClient.java")), *arguments)
    else:
        command = [sys.executable, "-m", "tools.quota_rates.clients", *map(str, arguments)]
    usage = Usage()
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        threading.Thread(target=usage.read, args=(process.stdout,), daemon=True).start()
        deadline = time.monotonic() + FIRST_USE_TIMEOUT_S
        while not usage.has_begun:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the {client} client did not {kind}")
            time.sleep(0.1)
        yield usage


def measured(kind: str, clients: tuple[str, ...], broker: BrokerProcess, seconds: float) -> list[list[float]]:
    """For each client its rate; for time, the least and the most that it may be."""
    with ExitStack() as stack:
        idle_s, _ = loop_seconds(broker.pid)
        time.sleep(2.0 if kind == "time" else 0.0)
        idle_s = (loop_seconds(broker.pid)[0] - idle_s) / 2.0
        usages = [stack.enter_context(using(kind, client, broker.bootstrap)) for client in clients]
        # The burst is over when its sample is.
        span_s = KINDS[kind].windows + 1
        time.sleep(span_s)
        first = [len(usage.reports) - 1 for usage in usages]
        run_s, wait_s = loop_seconds(broker.pid)
        began = time.monotonic()
        time.sleep(max(seconds, 3 * span_s))
        elapsed_s = time.monotonic() - began
        if kind != "time":
            return [[usage.rate(start, span_s)] for usage, start in zip(usages, first, strict=True)]
        ran_s, waited_s = loop_seconds(broker.pid)
        least = (ran_s - run_s) / elapsed_s - idle_s
        return [[100 * least, 100 * (least + (waited_s - wait_s) / elapsed_s)]]


def loop_seconds(pid: int) -> tuple[float, float]:
    """For how long the thread of the event loop ran, and waited for a processor."""
    run_ns, wait_ns, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(run_ns) / 1e9, int(wait_ns) / 1e9


async def prepare(bootstrap: str) -> None:
    async with Cluster(bootstrap, client_id="administrator") as cluster:
        await Admin(cluster).create_topic(TOPIC, partitions=1)
    # In small batches: a fetch returns a whole one.
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 2 * FILL_BYTES})
    for _ in range(FILL_RECORDS):
        producer.produce(TOPIC, bytes(FILL_BYTES), partition=0)
    assert producer.flush(120) == 0


async def limit(bootstrap: str, kind: str) -> None:
    quota = {KINDS[kind].quota: KINDS[kind].limit}
    async with Cluster(bootstrap, client_id="administrator") as cluster:
        if kind == "connect":
            await Quotas(cluster).alter({"ip": HOST}, quota)
            return
        for client in CLIENTS:
            await Quotas(cluster).alter({"client-id": f"{kind}-{client}"}, quota)


def is_within(rates: list[float], limit: float) -> bool:
    """Is the limit one of the possible rates, or within 10 % of them?"""
    return min(rates) <= limit * (1 + TOLERANCE) and max(rates) >= limit * (1 - TOLERANCE)


def report(kind: str, client: str, rates: list[float]) -> bool:
    row = KINDS[kind]
    is_kept = is_within(rates, row.limit)
    found = " to ".join(f"{rate:,.6g}" for rate in rates)
    share = " to ".join(f"{rate / row.limit - 1:+.1%}" for rate in rates)
    verdict = "" if is_kept else "  MORE THAN 10 % FROM THE LIMIT"
    print(f"{row.quota:<26}{client:<12}{row.limit:>10,.6g}{found:>24}{share:>20}{verdict}", flush=True)
    return is_kept


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.quota_rates", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    unwind_when_ended()
    if reasons := missing([kafka_jars]):
        print(*reasons, sep="\n", file=sys.stderr)
        return 2
    are_kept = []
    print(f"{'quota':<26}{'client':<12}{'limit':>10}{'measured':>24}{'difference':>20}")
    for kind in options.only:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            broker = stack.enter_context(BrokerProcess(folder / "data", KINDS[kind].settings))
            prefer(broker.pid)
            asyncio.run(prepare(broker.bootstrap))
            asyncio.run(limit(broker.bootstrap, kind))
            for clients in [(each,) for each in CLIENTS] if KINDS[kind].is_shared else [CLIENTS]:
                found = measured(kind, clients, broker, options.seconds)
                are_kept += [report(kind, *each) for each in zip(clients, found, strict=True)]
    return 0 if all(are_kept) else 1


if __name__ == "__main__":
    sys.exit(main())
