"""Faults of the nodes of a cluster, and the nodes that they are aimed at."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tools.cluster import view
from tools.cluster.network import CLIENTS, Cut
from tools.cluster.nodes import ClusterNode
from tools.crash.chain.workers import GROUP
from tools.crash.cluster.disks import flip_bit, slow_disk, wipe
from tools.crash.cluster.world import LoadedCluster, World

PAUSE_S = 6.0
PARTITION_S = 8.0
SLOW_S = 6.0
CLOCK_JUMPS_S = (-86_400, -3600, -5, 5, 3600, 86_400, 10 * 365 * 86_400)
START_TIMEOUT_S = 120.0
TARGETS = ("leader", "follower", "controller", "coordinator")
ALL_NODES = "all nodes"


def kill(world: LoadedCluster, node: ClusterNode) -> str:
    """kill -9; it is restarted when all partitions work without it, and sometimes killed in its recovery."""
    moment = time.monotonic()
    node.kill()
    world.clients.wait_for_progress(moment)
    twice = world.rng.random() < 1 / 4
    if twice:
        node.launch()
        time.sleep(world.rng.uniform(0.05, 1.0))
        node.kill()
    node.start(START_TIMEOUT_S)
    return "twice" if twice else ""


def pause(world: LoadedCluster, node: ClusterNode) -> str:
    """SIGSTOP: the node keeps its connections and answers nothing."""
    os.kill(node.pid, signal.SIGSTOP)
    try:
        time.sleep(PAUSE_S)
    finally:
        os.kill(node.pid, signal.SIGCONT)
    return ""


def isolate(world: World, node: ClusterNode) -> str:
    """No packet reaches the node, from other nodes or from clients, and none leaves it."""
    others = [*_others(world, node), CLIENTS]
    _partition(world, [cut for other in others for cut in _both_ways(node.number, other)])
    return ""


def cut_one_way(world: World, node: ClusterNode) -> str:
    """Packets between the node and each other one are dropped in one direction. Clients reach all nodes."""
    cuts = [world.rng.choice(_both_ways(node.number, other)) for other in _others(world, node)]
    _partition(world, cuts)
    return " ".join(f"{sender}->{receiver}" for sender, receiver in cuts)


def cut_to_one(world: World, node: ClusterNode) -> str:
    """Two nodes lose each other; the third one is the bridge between them."""
    other = world.rng.choice(_others(world, node))
    _partition(world, _both_ways(node.number, other))
    return f"to node {other}"


def _others(world: World, node: ClusterNode) -> list[int]:
    return [number for number in world.cluster.nodes if number != node.number]


def _both_ways(one: int, other: int) -> list[Cut]:
    return [(one, other), (other, one)]


def _partition(world: World, cuts: list[Cut]) -> None:
    world.network.cut(cuts)
    try:
        time.sleep(PARTITION_S)
    finally:
        world.network.heal()


def slow(world: World, node: ClusterNode) -> str:
    """Every write of the node to its disk takes a fifth of a second."""
    with slow_disk(world.volumes[node.number], node.pid):
        time.sleep(SLOW_S)
    return ""


def clock_jump(world: World, node: ClusterNode) -> str:
    """The wall clock jumps, and back."""
    jump_s = world.rng.choice(CLOCK_JUMPS_S)
    world.clocks[node.number].shift(jump_s)
    time.sleep(world.rng.uniform(1, 3))
    world.clocks[node.number].shift(0)
    time.sleep(1)
    return f"{jump_s:+d} s"


def bit_flip(world: World, node: ClusterNode) -> str:
    """A bit changes while the node is down; one that refuses to start with the damage is emptied."""
    moment = time.monotonic()
    node.kill()
    world.clients.wait_for_progress(moment)
    flipped = flip_bit(node.place.data, world.rng)
    try:
        node.start(START_TIMEOUT_S)
    except RuntimeError:
        wipe(node.place.data)
        node.start(START_TIMEOUT_S)
        return f"{flipped}, refused at start"
    return flipped


def power_cut(world: World, _: ClusterNode) -> str:
    """All nodes lose their power at once, and with it what they had not synced."""
    nodes = list(world.cluster.nodes.values())
    # Between two system calls: see tools/crash/powercut.py.
    with _all_held(nodes):
        for node in nodes:
            world.volumes[node.number].cut_power()
    for node in nodes:
        node.kill()
    for node in nodes:
        world.volumes[node.number].restore_power()
    return f"all answer after {world.cluster.start():.1f} s"


def kill_all(world: World, _: ClusterNode) -> str:
    """kill -9 of all nodes."""
    world.cluster.kill()
    return f"all answer after {world.cluster.start():.1f} s"


@contextmanager
def _all_held(nodes: list[ClusterNode]) -> Iterator[None]:
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node.held())
        yield


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault: its share of the rounds, and what it does to its target."""

    name: str
    rounds: int
    """Of 200."""
    inject: Callable[[World, ClusterNode], str]
    targets: tuple[str, ...] = TARGETS


KINDS = [
    Kind("kill -9", 100, kill),
    Kind("pause", 30, pause),
    Kind("full partition", 10, isolate),
    Kind("one-way partition", 10, cut_one_way),
    Kind("bridge partition", 10, cut_to_one),
    Kind("slow disk", 10, slow),
    Kind("clock jump", 10, clock_jump),
    Kind("bit flip", 10, bit_flip),
]
POWER_CUT = Kind("power cut", 10, power_cut, (ALL_NODES,))


def find_target(world: LoadedCluster, target: str) -> ClusterNode:
    """The node that has this role now."""
    bootstrap, security, rng = world.cluster.bootstrap, world.cluster.security, world.rng
    if target == "controller":
        return world.cluster.nodes[view.controller(bootstrap, security)[0]]
    if target == "coordinator":
        transactional = rng.random() < 0.5
        node = (
            view.transaction_coordinator(bootstrap, "w0", security)
            if transactional
            else view.group_coordinator(bootstrap, GROUP, security)
        )
        return world.cluster.nodes[node]
    state = view.state(bootstrap, security).partitions[rng.choice(world.clients.partitions)]
    if target == "leader":
        return world.cluster.nodes[state.leader]
    followers = [number for number in state.replicas if number != state.leader]
    return world.cluster.nodes[rng.choice(followers)]
