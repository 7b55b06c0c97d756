"""One and two workers of a host (`runnel serve --workers N`): what a second broker process adds."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench import loadgen
from tools.bench.loadgen import Load, LoadFailed
from tools.bench.measures import Numbers, Options
from tools.bench.warm_up import WarmUpPlan, run_until_steady
from tools.broker_process import BrokerProcess
from tools.processes import tree_cpu_seconds

COUNTS = (1, 2)
TOPIC = "shared-by-workers"
PARTITIONS = 12
READY_TIMEOUT_S = 60.0
WORKLOADS: dict[str, Options] = {
    "produce": {"connections": 12, "in_flight": 8, "records": 1, "record_bytes": 100},
    "produce_1m": {"connections": 4, "in_flight": 2, "records": 1000, "record_bytes": 1000},
}


class HostOfWorkers(BrokerProcess):
    """`runnel serve --workers N`."""

    workers = 1

    def command(self) -> list[str]:
        return [*super().command(), "--workers", str(self.workers)]


@contextmanager
def host_of(folder: Path, workers: int) -> Iterator[HostOfWorkers]:
    """A host with this many workers and a topic that all of them lead partitions of."""
    host = HostOfWorkers(folder / "data", log_path=folder / "host.log")
    host.workers = workers
    folder.mkdir(parents=True)
    try:
        host.start()
        admin = AdminClient({"bootstrap.servers": host.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(READY_TIMEOUT_S)
        yield host
    finally:
        host.stop()
        shutil.rmtree(folder, ignore_errors=True)


def leaders(host: HostOfWorkers) -> str:
    """The port of each partition's leader."""
    admin = AdminClient({"bootstrap.servers": host.bootstrap, "log_level": 0})
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        seen = admin.list_topics(TOPIC, timeout=READY_TIMEOUT_S)
        partitions = seen.topics[TOPIC].partitions
        ports = [
            seen.brokers[part.leader].port for part in partitions.values() if part.leader in seen.brokers
        ]
        if len(ports) == PARTITIONS:
            return ",".join(map(str, ports))
        if time.monotonic() > deadline:
            raise LoadFailed(f"only {len(ports)} of {PARTITIONS} partitions of {TOPIC} have a leader")
        time.sleep(0.2)


def load(host: HostOfWorkers, program: Path, ports: str, workload: str, seconds: float) -> tuple[Load, float]:
    """One load, and the CPU seconds that all workers spent on it."""
    before = tree_cpu_seconds(host.pid)
    done = loadgen.run(
        program,
        "produce",
        0,
        topic=TOPIC,
        partitions=PARTITIONS,
        leaders=ports,
        seconds=seconds,
        acks=1,
        **WORKLOADS[workload],
    )
    return done, tree_cpu_seconds(host.pid) - before


def measure(host: HostOfWorkers, program: Path, seconds: float, plan: WarmUpPlan) -> Numbers:
    ports = leaders(host)
    numbers: Numbers = {"workers": host.workers}
    for workload in WORKLOADS:
        once = partial(load, host, program, ports, workload)
        run_until_steady(partial(once, plan.window_s), lambda result: result[0].requests_per_s, plan.limit_s)
        os.sync()
        done, cpu_s = once(seconds)
        numbers[f"{workload}_rps"] = done.requests_per_s
        numbers[f"{workload}_mbps"] = done.mb_per_s
        numbers[f"{workload}_cpu_us"] = cpu_s / done.requests * 1e6
    return numbers


def compare_workers(folder: Path, program: Path, seconds: float, plan: WarmUpPlan) -> list[Numbers]:
    """The same loads with one worker and with two."""
    found = []
    for count in COUNTS:
        with host_of(folder / f"workers-{count}", count) as host:
            found.append(measure(host, program, seconds, plan))
        print(f"  {count} worker{'s' * (count > 1)}", flush=True)
    return found
