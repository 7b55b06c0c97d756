"""Faults that are aimed at a moment end a process in the middle of it, and the cluster recovers."""

from dataclasses import replace

import pytest

from runnel.sim.cluster.faults import AIMED
from runnel.sim.cluster.moments import MOMENTS, Ambush
from runnel.sim.cluster.node import Life, SimNode
from runnel.sim.cluster.simulation import ClusterSimulation, Shape
from runnel.sim.cluster.workloads import simulate_records


def test_one_process_ends_at_the_moment_and_no_other() -> None:
    ended: list[SimNode] = []

    def end(node: SimNode) -> None:
        assert node.process is not None
        assert node.process.life is Life.STARTING
        ended.append(node)
        node.kill()

    simulation = ClusterSimulation("moment", Shape(3, "never", (), 0))
    with simulation.cluster.running():
        nodes = list(simulation.cluster.nodes.values())
        Ambush(nodes, MOMENTS["recovery"], simulation.random, end)
        for node in nodes:
            node.start()
        simulation.scheduler.run_for(5)
        assert len(ended) == 1
        assert [node.is_serving for node in nodes] == [node is not ended[0] for node in nodes]
        ended[0].start()
        simulation.scheduler.run_for(5)
        assert all(node.is_serving for node in nodes)


def test_a_process_does_not_end_after_an_ambush_is_disarmed() -> None:
    simulation = ClusterSimulation("disarmed", Shape(3, "never", (), 0))
    with simulation.cluster.running():
        nodes = list(simulation.cluster.nodes.values())
        Ambush(nodes, MOMENTS["recovery"], simulation.random, SimNode.kill).disarm()
        simulation.start()
        assert all(node.starts == 1 for node in nodes)


SEEDS = range(1, 6)
"""A moment that depends on others, as a truncation does, is not reached in every history."""


@pytest.mark.parametrize(
    "kind",
    [
        "kill in recovery",
        "kill in truncation",
        "power cut in a snapshot write",
        "kill in a snapshot fetch",
        "kill in reassignment",
        "power cut in a voter change",
    ],
)
def test_each_moment_is_reached(kind: str) -> None:
    def aimed(shape: Shape) -> Shape:
        return replace(
            shape,
            nodes=5 if "reassignment" in kind else 3,
            policy="commit",
            kinds=(kind,),
            seconds=8,
            is_dynamic="voter" in kind,
            snapshot_bytes=1000,
        )

    assert kind in AIMED
    assert any(simulate_records(seed, None, aimed).faults[kind] for seed in SEEDS), "in none of the histories"
