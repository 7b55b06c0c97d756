"""Nodes of a simulated cluster: processes that end in every way, and what survives them."""

import logging
import threading
from collections.abc import Callable

import pytest

from runnel.sim.clients import TOPIC, Producer, Reader, create_topic
from runnel.sim.cluster.client_host import ClientHost
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.damage import damageable, verifiable
from runnel.sim.cluster.node import SimNode
from runnel.sim.history import History
from runnel.sim.simulation import SETTINGS

FAULTS: dict[str, Callable[[SimNode], None]] = {
    "stop": SimNode.stop,
    "kill": SimNode.kill,
    "power": SimNode.cut_power,
}


class World:
    """One node, and clients that write and read."""

    def __init__(self, seed: str) -> None:
        self.cluster = Cluster(seed)
        self.node = self.cluster.add_node(1, {**SETTINGS, "log.flush.policy": "commit"})
        self.clients = ClientHost(self.cluster)
        self.history = History()

    def start(self) -> None:
        self.node.start()
        created = self.clients.run(create_topic(self.clients, 1))
        assert self.cluster.scheduler.run_until(created.done, 10)
        for client in (Producer("p", 0, self.history, is_idempotent=True), Reader(0, self.history)):
            self.clients.run_client(client)

    def run_until_read(self, count: int) -> None:
        scheduler, reads = self.cluster.scheduler, self.history.reads
        assert scheduler.run_until(lambda: self.history.reads >= reads + count, scheduler.now + 60), "stuck"


@pytest.mark.parametrize("fault", FAULTS)
def test_clients_continue_after_a_restart(fault: str) -> None:
    world = World(fault)
    with world.cluster.running():
        world.start()
        world.run_until_read(100)
        FAULTS[fault](world.node)
        world.cluster.scheduler.run_for(3)
        assert not world.node.is_running
        reads = world.history.reads
        world.cluster.scheduler.run_for(3)
        assert world.history.reads == reads
        world.node.start()
        world.run_until_read(100)


def test_a_power_failure_in_the_middle_of_a_file_operation_ends_the_process() -> None:
    world = World("operation")
    with world.cluster.running():
        world.start()
        for _ in range(5):
            world.run_until_read(10)
            world.node.files.power_failure_at = world.node.files.operations + 10
            assert world.cluster.scheduler.run_until(lambda: not world.node.is_running, 100)
            world.node.start()
        world.run_until_read(10)


def test_a_paused_node_continues() -> None:
    world = World("pause")
    with world.cluster.running():
        world.start()
        world.run_until_read(10)
        assert world.node.process is not None
        world.node.process.loop.pause()
        reads = world.history.reads
        world.cluster.scheduler.run_for(20)
        assert world.history.reads == reads
        world.node.process.loop.resume()
        world.run_until_read(10)


def digest(seed: str) -> int:
    world = World(seed)
    with world.cluster.running():
        world.start()
        world.run_until_read(50)
        world.node.kill()
        world.node.start()
        world.run_until_read(50)
        return world.cluster.trace.digest


def test_equal_seeds_have_equal_traces() -> None:
    assert digest("a") == digest("a")
    assert digest("a") != digest("b")


def test_logs_of_other_threads_are_not_part_of_the_trace() -> None:
    expected, is_done = digest("a"), threading.Event()

    def log() -> None:
        while not is_done.wait(0.001):
            logging.getLogger("runnel.broker").warning("a broker beside the simulation")

    beside = threading.Thread(target=log)
    beside.start()
    try:
        assert digest("a") == expected
    finally:
        is_done.set()
        beside.join()


def test_what_recovery_would_truncate_is_not_damaged_where_that_loses_records() -> None:
    world = World("damage")
    segment = f"/data/{TOPIC}-0/00000000000000000000.log"
    with world.cluster.running():
        world.start()
        world.run_until_read(100)
        files = world.node.files
        size_bytes = files.size_bytes(segment)
        assert damageable(files, is_truncated=False)[segment] == size_bytes
        assert segment not in damageable(files, is_truncated=True)
        world.node.stop()
        world.cluster.scheduler.run_for(3)
        # A clean stop has set the recovery point.
        found = damageable(files, is_truncated=True)
        assert found[segment] == files.size_bytes(segment) > 0
        assert not any("__cluster_metadata" in path and path.endswith(".log") for path in found)
        assert "/data/meta.properties" not in found
        assert not any(path.endswith("quorum-state") for path in found)


def test_flipped_bits_are_those_that_are_verified() -> None:
    world = World("flips")
    segment = f"/data/{TOPIC}-0/00000000000000000000.log"
    with world.cluster.running():
        world.start()
        world.run_until_read(10)
        files = world.node.files
        second = 12 + int.from_bytes(files.read(segment)[8:12])
        for position, expected in ((0, 16), (8, 8), (15, 16), (16, 16), (20, 20), (second - 1, second - 1)):
            assert verifiable(files, segment, position) == expected
        assert verifiable(files, segment, second + 3) == second + 16
        assert verifiable(files, "/data/meta.properties", 3) == 3
