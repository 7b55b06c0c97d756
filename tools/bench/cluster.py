"""Three nodes of each broker, side by side on the loopback: replicated produce with acks=all."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench import loadgen
from tools.bench.loadgen import Load, LoadFailed
from tools.bench.measures import Numbers, Options
from tools.bench.warm_up import WarmUp, WarmUpPlan, run_until_steady
from tools.cluster import view
from tools.cluster.local import NODES, local_cluster
from tools.cluster.nodes import ClusterNode, KafkaNode, NodeCluster, RunnelNode
from tools.processes import cpu_seconds

RECORDS = 10
WORKLOADS: dict[str, Options] = {
    "single": {"connections": 1, "in_flight": 1, "records": 1},
    "many": {"connections": 12, "in_flight": 8, "records": RECORDS},
}
KINDS: dict[str, type[ClusterNode]] = {"Runnel": RunnelNode, "Kafka": KafkaNode}
CREATE_TIMEOUT_S = 120.0


@dataclass(slots=True)
class ClusterBench:
    """One cluster under measurement."""

    name: str
    nodes: NodeCluster
    program: Path
    warm_ups: dict[str, WarmUp] = field(default_factory=dict)

    def create(self, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.nodes.bootstrap, "log_level": 0})
        topic = topic_of(partitions)
        admin.create_topics([NewTopic(topic, partitions, len(NODES))])[topic].result(CREATE_TIMEOUT_S)
        deadline = time.monotonic() + CREATE_TIMEOUT_S
        while not self._is_ready(topic, partitions):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {topic} is not ready after {CREATE_TIMEOUT_S:.0f} s")
            time.sleep(0.2)

    def _is_ready(self, topic: str, partitions: int) -> bool:
        """Whether every node knows the topic, all replicas are in sync, and all leaders accept records."""
        states = [view.state(node.bootstrap) for node in self.nodes.nodes.values()]
        is_known = all((topic, partitions - 1) in state.partitions for state in states)
        if not is_known or any(state.unfinished(NODES) for state in states):
            return False
        try:
            self.load("many", partitions, seconds=1.0)
        except LoadFailed:
            return False
        return True

    def leaders(self, topic: str, partitions: int) -> str:
        """The port of each partition's leader."""
        states = view.state(self.nodes.bootstrap).partitions
        leaders = [states[topic, partition].leader for partition in range(partitions)]
        return ",".join(str(self.nodes.nodes[leader].port) for leader in leaders)

    def load(self, workload: str, partitions: int, seconds: float) -> tuple[Load, float]:
        """One load, and the CPU seconds that all nodes spent on it."""
        topic = topic_of(partitions)
        before = self._cpu_s()
        load = loadgen.run(
            self.program,
            "produce",
            0,
            topic=topic,
            partitions=partitions,
            leaders=self.leaders(topic, partitions),
            seconds=seconds,
            record_bytes=100,
            acks=-1,
            **WORKLOADS[workload],
        )
        return load, self._cpu_s() - before

    def _cpu_s(self) -> float:
        return sum(cpu_seconds(node.pid) for node in self.nodes.running)


def topic_of(partitions: int) -> str:
    return f"replicated-{partitions}"


def compare_clusters(
    folder: Path, program: Path, rounds: int, seconds: float, plan: WarmUpPlan, partitions: Sequence[int]
) -> tuple[dict[str, list[Numbers]], dict[str, dict[str, str]]]:
    """All rounds on two clusters that stay up, and how each was warmed."""
    found: dict[str, list[Numbers]] = {name: [{} for _ in range(rounds)] for name in KINDS}
    with ExitStack() as stack:
        benches = [
            ClusterBench(name, stack.enter_context(local_cluster(folder / name, kind)), program)
            for name, kind in KINDS.items()
        ]
        for count in partitions:
            for bench in benches:
                bench.create(count)
                warm_up(bench, count, plan)
            for number in range(rounds):
                for bench in benches if number % 2 == 0 else benches[::-1]:
                    os.sync()
                    found[bench.name][number] |= measure(bench, count, seconds)
                print(f"  three nodes, {count} partitions, round {number + 1} of {rounds}", flush=True)
    warm_ups = {
        bench.name: {name: done.describe() for name, done in bench.warm_ups.items()} for bench in benches
    }
    return found, warm_ups


def warm_up(bench: ClusterBench, partitions: int, plan: WarmUpPlan) -> None:
    for workload in WORKLOADS:
        limit_s = plan.limit_s if bench.warm_ups else plan.first_limit_s
        name = f"cluster_{workload}_{partitions}"
        _, bench.warm_ups[name] = run_until_steady(
            partial(bench.load, workload, partitions, plan.window_s),
            lambda result: result[0].requests_per_s,
            limit_s,
        )
        print(f"{bench.name} {name}: {bench.warm_ups[name].describe()}", flush=True)


def measure(bench: ClusterBench, partitions: int, seconds: float) -> Numbers:
    one, _ = bench.load("single", partitions, seconds)
    many, cpu_s = bench.load("many", partitions, seconds)
    return {
        f"cluster_single_{partitions}_p50_us": one.latency_us["p50"],
        f"cluster_many_{partitions}_mps": many.requests_per_s * RECORDS,
        f"cluster_many_{partitions}_cpu_us": cpu_s / (many.requests * RECORDS) * 1e6,
    }
