"""Random histories of a quorum in memory: its invariants hold, and it makes progress once it is connected.

`RUNNEL_RAFT_SEEDS=1000 pytest tests/raft/test_cluster.py` runs more histories.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from runnel.model.errors import ApiError
from tests.raft.cluster import Cluster, key, voter, wait_for_progress

SEEDS = int(os.environ.get("RUNNEL_RAFT_SEEDS", "12"))


def crash(cluster: Cluster, random: Random) -> None:
    node = random.choice(list(cluster.nodes.values()))
    if node.core is not None:
        node.crash()
        cluster.at(random.randrange(1, 3000), lambda: node.start() if node.core is None else None)


def partition(cluster: Cluster, random: Random) -> None:
    ids = list(cluster.nodes)
    group = set(random.sample(ids, random.randrange(len(ids))))
    for source in ids:
        for target in ids:
            is_cut = (source in group) != (target in group)
            if is_cut and (random.random() < 0.7 or source in group):
                cluster.cut.add((source, target))
    cluster.at(random.randrange(100, 4000), cluster.cut.clear)


def lose(cluster: Cluster, random: Random) -> None:
    cluster.loss, cluster.repeats = random.choice([0.0, 0.05, 0.3]), random.choice([0.0, 0.2])
    cluster.delay_max_ms = random.choice([5, 10, 60])


def append(cluster: Cluster, random: Random) -> None:
    leader = cluster.leader()
    if leader is not None and leader.core is not None:
        for _ in range(random.randrange(1, 5)):
            leader.append(leader.core.epoch)


def snapshot(cluster: Cluster, random: Random) -> None:
    random.choice(list(cluster.nodes.values())).snapshot()


def resign(cluster: Cluster, random: Random) -> None:
    leader = cluster.leader()
    if leader is not None and leader.core is not None:
        leader.core.resign(cluster.now_ms)
        leader.pump()


def add_voter(cluster: Cluster, random: Random) -> None:
    leader, node_id = cluster.leader(), random.choice(list(cluster.nodes))
    if cluster.is_dynamic and leader is not None and leader.core is not None:
        core = leader.core
        with suppress(ApiError):
            voters = core.changes.adding(voter(node_id))
            if core.changes.has_caught_up(key(node_id), cluster.now_ms):
                leader.append(core.epoch, voters)


def remove_voter(cluster: Cluster, random: Random) -> None:
    leader, node_id = cluster.leader(), random.choice(list(cluster.nodes))
    if cluster.is_dynamic and leader is not None and leader.core is not None:
        with suppress(ApiError):
            leader.append(leader.core.epoch, leader.core.changes.removing(key(node_id)))


EVENTS: list[Callable[[Cluster, Random], None]] = [
    *[append] * 10, *[crash] * 3, *[partition] * 2, *[lose] * 2, *[snapshot] * 2, resign,
    *[add_voter] * 3, *[remove_voter] * 2,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_history(seed: int) -> None:
    random = Random(seed)
    size, observers = random.choice([1, 2, 3, 3, 4, 5]), random.choice([0, 0, 1, 2])
    cluster = Cluster(seed, size, observers, is_dynamic=random.random() < 0.5)
    for _ in range(60):
        cluster.run(random.randrange(1, 500))
        random.choice(EVENTS)(cluster, random)
    wait_for_progress(cluster)


@pytest.mark.parametrize("size", [3, 5])
def test_a_killed_leader_is_replaced_within_half_a_second(size: int) -> None:
    durations = []
    for seed in range(20):
        cluster = Cluster(seed, size)
        wait_for_progress(cluster)
        leader = cluster.leader()
        assert leader is not None
        leader.crash()
        killed_ms, known = cluster.now_ms, len(cluster.invariants.committed)

        def is_replaced(cluster: Cluster = cluster, known: int = known) -> bool:
            return len(cluster.invariants.committed) > known

        assert cluster.run(5_000, is_replaced)
        durations.append(cluster.now_ms - killed_ms)
    durations.sort()
    assert durations[len(durations) // 2] <= 300
    assert durations[-1] <= 1000, durations
