"""A replica that is damaged behind its recovery point, while all others have stopped uncleanly."""

from collections.abc import Callable

import pytest

from runnel.controller.values import PartitionState
from runnel.disk.power_failures import PowerFailures
from runnel.model.ids import NO_LEADER
from runnel.sim.clients import TOPIC, Producer, create_topic
from runnel.sim.cluster.node import SimNode
from runnel.sim.cluster.operator import Operator
from runnel.sim.cluster.simulation import ClusterSimulation, Shape
from runnel.sim.cluster.targets import Targets
from runnel.sim.history import Anomaly, History
from runnel.sim.workload import whole_log

SEGMENT = f"/data/{TOPIC}-0/00000000000000000000.log"


class World:
    """Three nodes and a partition with acknowledged records, whose leader is damaged."""

    def __init__(self, seed: str, policy: str) -> None:
        self.simulation = ClusterSimulation(seed, Shape(3, policy, (), 0))
        self.scheduler = self.simulation.scheduler
        self.targets = Targets(self.simulation.cluster, self.simulation.random)
        self.history = History()

    def state(self) -> PartitionState:
        image = self.targets.image()
        state = None if image is None else image.partition(TOPIC, 0)
        assert state is not None
        return state

    def kill_all(self) -> SimNode:
        """The node that is damaged; the others run again, and have left ISR and ELR."""
        simulation, clients = self.simulation, self.simulation.clients
        simulation.start()
        simulation.check(create_topic(clients, 1, TOPIC, 3))
        clients.run_client(Producer("p", 0, self.history, is_idempotent=True))
        assert self.scheduler.run_until(lambda: self.history.acknowledged >= 30, self.scheduler.now + 30)
        clients.stop()
        self.scheduler.run_for(1)
        nodes = simulation.cluster.nodes.values()
        damaged = simulation.cluster.nodes[self.state().leader]
        for node in nodes:
            node.kill()
        second = 12 + int.from_bytes(damaged.files.read(SEGMENT)[8:12])
        damaged.files.flip_bit(SEGMENT, second + 70)
        simulation.invariants.disk_replaced(damaged)
        for node in nodes:
            if node is not damaged:
                node.start()
        self.scheduler.run_for(5)
        return damaged


def play(policy: str, check: Callable[[World, SimNode], None]) -> None:
    """Check a world in which the damaged replica is the last known leader when its node starts."""
    for number in range(20):
        world = World(f"damage {number}", policy)
        with world.simulation.cluster.running():
            damaged = world.kill_all()
            # It depends on which of them the controller takes for dead first.
            if world.state().last_known_eligible == (damaged.id,):
                damaged.start()
                world.scheduler.run_for(5)
                check(world, damaged)
                return
    pytest.fail("no simulation gets there")


@pytest.mark.parametrize("policy", ["never", "commit"])
def test_a_damaged_replica_is_not_elected_even_if_it_is_the_last_known_leader(policy: str) -> None:
    def check(world: World, damaged: SimNode) -> None:
        state, simulation = world.state(), world.simulation
        assert (state.leader, state.isr, state.eligible, state.last_known_eligible) == (NO_LEADER, (), (), ())
        assert damaged.is_serving, "what else it has"
        # The operator elects another replica, which has everything, and the damaged one is fetched again.
        Operator(simulation.cluster, world.targets).start()
        simulation.wait_until_in_sync()
        assert world.state().leader != damaged.id
        found = simulation.clients.run(whole_log(simulation.clients, 0))
        assert world.scheduler.run_until(found.done, world.scheduler.now + 30)
        world.history.check_log(0, found.result())
        simulation.invariants.partitions.check_all()

    play(policy, check)


def test_the_damage_would_lose_records_if_it_was_truncated_like_a_torn_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PowerFailures, "may_have_lost_writes", lambda self, log: True)
    with pytest.raises(Anomaly, match="committed is"):
        play("never", lambda world, damaged: None)


def test_a_broker_fetches_a_damaged_copy_of_the_metadata_log_again() -> None:
    simulation = ClusterSimulation("metadata", Shape(5, "never", (), 0))
    with simulation.cluster.running():
        simulation.start()
        observer = simulation.cluster.nodes[5]
        assert not observer.is_controller
        observer.kill()
        path = next(
            path for path in observer.files.paths("/data/__cluster_metadata-0") if path.endswith(".log")
        )
        observer.files.flip_bit(path, observer.files.size_bytes(path) // 2)
        simulation.invariants.disk_replaced(observer)
        simulation.check(create_topic(simulation.clients, 1, TOPIC, 3))
        observer.start()
        simulation.wait_until_in_sync()
        assert observer.process is not None
        assert TOPIC in observer.process.broker.metadata.image.topics
