"""A cluster whose controllers are sent mutated frames: it must recover, and log no exception."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from runnel.broker.apis.handlers import CONTROLLER_APIS
from runnel.client.cluster_admin import ClusterAdmin
from tools.cluster import view
from tools.cluster.local import NODES, local_cluster
from tools.cluster.nodes import NodeCluster
from tools.crash.rounds import Progress, no_progress
from tools.fuzz.attack import Attack
from tools.fuzz.recordings import Recordings
from tools.fuzz.run import MEMORY_GROWTH_BYTES_MAX, Outcome, bugs, create, mutated_frames, still_works
from tools.fuzz.samples import TOPIC, peer_frames
from tools.processes import memory_bytes

RECOVERY_TIMEOUT_S = 60.0


def fuzz_controllers(folder: Path, count: int, seed: int, progress: Progress = no_progress) -> Outcome:
    """Send `count` mutated frames to the controller listeners of a new cluster of three nodes."""
    kinds: Counter[str] = Counter()
    with local_cluster(folder) as cluster:
        topic_id = create(cluster.bootstrap, TOPIC)
        before = _memory(cluster)
        began = time.monotonic()
        cluster_id, _ = view.ask(cluster.bootstrap, lambda client: ClusterAdmin(client).describe())
        pool = peer_frames(cluster_id, topic_id, CONTROLLER_APIS)
        frames = mutated_frames(count, seed, {"declared": pool}, kinds, topic_id)
        outcomes, largest = asyncio.run(_attack(cluster, frames, progress))
        seconds = time.monotonic() - began
        complaints = _recover(cluster) or still_works(cluster.bootstrap)
        complaints += [
            f"in the log of node {number}: {line}"
            for number, node in cluster.nodes.items()
            for line in bugs(node.log_tail(10**9))
        ]
    if largest - before > MEMORY_GROWTH_BYTES_MAX:
        complaints.append(f"memory grew from {before >> 20} MB to {largest >> 20} MB")
    return Outcome(outcomes, kinds, Recordings(), seconds, before, largest, complaints)


def _memory(cluster: NodeCluster) -> int:
    """Of the node that has most."""
    return max(memory_bytes(node.pid) for node in cluster.running)


async def _attack(
    cluster: NodeCluster, frames: Iterator[bytes], progress: Progress
) -> tuple[Counter[str], int]:
    attacks = [Attack(node.place.controller_port, frames, connections=8) for node in cluster.nodes.values()]
    task = asyncio.gather(*(attack.run() for attack in attacks))
    outcomes: Counter[str] = Counter()
    largest = 0
    while not task.done():
        await asyncio.wait([task], timeout=2)
        largest = max(largest, _memory(cluster))
        outcomes = sum((attack.outcomes for attack in attacks), Counter[str]())
        progress(f"{outcomes.total()} frames, {largest >> 20} MB, {dict(outcomes)}")
    task.result()
    return outcomes, largest


def _recover(cluster: NodeCluster) -> list[str]:
    """Wait until all nodes are part of the cluster again; what is missing."""
    deadline = time.monotonic() + RECOVERY_TIMEOUT_S
    while True:
        if len(cluster.running) < len(NODES):
            return [f"{len(NODES) - len(cluster.running)} nodes have ended"]
        try:
            unfinished = [view.state(node.bootstrap).unfinished(NODES) for node in cluster.running]
        except view.Unreachable as unreachable:
            unfinished = [str(unreachable)]
        if not any(unfinished):
            return []
        if time.monotonic() > deadline:
            return [f"not whole {RECOVERY_TIMEOUT_S:.0f} s after the last frame: {max(unfinished)}"]
        time.sleep(0.2)
