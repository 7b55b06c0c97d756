"""Faults do not combine to a loss of records that no broker could prevent."""

from random import Random

from runnel.sim.cluster.faults import Faults
from runnel.sim.cluster.simulation import ClusterSimulation, Shape
from runnel.sim.cluster.targets import Targets


def faults_of(simulation: ClusterSimulation, kind: str) -> Faults:
    faults = Faults(simulation.cluster, Random(1), (kind,), Targets(simulation.cluster, Random(1)))
    faults.on_disk_replaced = simulation.invariants.disk_replaced
    return faults


def test_no_process_ends_before_the_cluster_knows_that_a_node_has_lost_its_data() -> None:
    simulation = ClusterSimulation("destroyed", Shape(3, "never", (), 0))
    with simulation.cluster.running():
        simulation.start()
        faults = faults_of(simulation, "empty disk")
        faults._victim = victim = simulation.cluster.nodes[2]
        faults._begin()
        faults._kinds = ("kill",)
        faults._begin()
        assert faults.counts == {"empty disk": 1}
        assert simulation.scheduler.run_until(lambda: victim.is_serving, simulation.scheduler.now + 20)
        simulation.scheduler.run_for(0.1)
        faults._begin()
        assert faults.counts == {"empty disk": 1, "kill": 1}


def test_no_data_is_destroyed_before_the_cluster_knows_that_a_process_has_ended() -> None:
    simulation = ClusterSimulation("ended", Shape(3, "never", (), 0))
    with simulation.cluster.running():
        simulation.start()
        faults = faults_of(simulation, "empty disk")
        faults._victim = simulation.cluster.nodes[2]
        other = simulation.cluster.nodes[3]
        other.kill()
        other.start()
        faults._begin()
        assert not faults.counts
        assert simulation.scheduler.run_until(lambda: other.is_serving, simulation.scheduler.now + 20)
        simulation.scheduler.run_for(0.1)
        faults._begin()
        assert faults.counts == {"empty disk": 1}
