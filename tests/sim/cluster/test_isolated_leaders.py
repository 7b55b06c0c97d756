"""A leader that is cut off from the other nodes, but not from its clients: they find its successor soon."""

import asyncio
from typing import Any

import pytest

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from runnel.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from runnel.model.errors import ErrorCode
from runnel.sim.clients import TOPIC, create_topic
from runnel.sim.cluster.node import CLIENT_PORT, SimNode
from runnel.sim.cluster.simulation import ClusterSimulation
from tests.sim.cluster.test_dead_nodes import controller, three_nodes

DETECTION_S = 2.1
"""The session timeout, two checks of followers, and a heartbeat."""


def leader_of(simulation: ClusterSimulation, partition: int) -> SimNode:
    active = controller(simulation)
    assert active.process is not None
    state = active.process.broker.metadata.image.partition(TOPIC, partition)
    assert state is not None
    return simulation.cluster.nodes[state.leader]


async def produce(simulation: ClusterSimulation, node: SimNode, partition: int, acks: int) -> ErrorCode:
    connection = await simulation.clients.connect_to((node.host, CLIENT_PORT))
    record = Record(0, simulation.clients.clock.now_ms(), None, b"value")
    data = PartitionProduceData(partition, build_batch([record]))
    request = ProduceRequest(None, acks, 30_000, [TopicProduceData(name=TOPIC, partition_data=[data])])
    answer = await connection.ask(request, ProduceResponse)
    return ErrorCode.from_code(answer.responses[0].partition_responses[0].error_code)


async def named_leader(simulation: ClusterSimulation, node: SimNode, partition: int) -> int:
    connection = await simulation.clients.connect_to((node.host, CLIENT_PORT))
    request = MetadataRequest([MetadataRequestTopic(name=TOPIC)], False)
    answer = await connection.ask(request, MetadataResponse)
    (leader,) = (each.leader_id for each in answer.topics[0].partitions if each.partition_index == partition)
    return leader


async def coordinator(simulation: ClusterSimulation, node: SimNode, group: str) -> tuple[int, int]:
    connection = await simulation.clients.connect_to((node.host, CLIENT_PORT))
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    (found,) = (await connection.ask(request, FindCoordinatorResponse)).coordinators
    return found.error_code, found.node_id


def outcome_of(simulation: ClusterSimulation, task: "asyncio.Task[Any]", seconds_max: float) -> Any:
    assert simulation.scheduler.run_until(task.done, simulation.scheduler.now + seconds_max), "no answer"
    return task.result()


@pytest.mark.parametrize("is_controller", [True, False], ids=["controller", "other"])
@pytest.mark.parametrize("directions", ["both", "to it", "from it"])
def test_an_isolated_leader_sends_producers_away_until_it_is_back(
    is_controller: bool, directions: str
) -> None:
    with three_nodes(f"isolated {is_controller} {directions}") as simulation:
        clients, scheduler = simulation.clients, simulation.scheduler
        outcome_of(simulation, clients.run(create_topic(clients, 3, replicas=3)), 10)
        scheduler.run_for(2)
        active = controller(simulation)
        partition, node = next(
            (number, leader)
            for number in range(3)
            if ((leader := leader_of(simulation, number)) is active) == is_controller
        )
        others = [other for other in simulation.cluster.running_nodes() if other is not node]
        cuts = [(node.host, other.host) for other in others if directions != "to it"]
        cuts += [(other.host, node.host) for other in others if directions != "from it"]
        heal = simulation.cluster.network.block(cuts)
        waiting = clients.run(produce(simulation, node, partition, acks=-1))
        assert outcome_of(simulation, waiting, DETECTION_S) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert outcome_of(simulation, clients.run(named_leader(simulation, node, partition)), 1) == -1
        for acks in (-1, 1):
            refused = outcome_of(simulation, clients.run(produce(simulation, node, partition, acks)), 0.1)
            assert refused is ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = outcome_of(simulation, clients.run(coordinator(simulation, node, "a group")), 1)
        assert found[1] != node.id
        # The others have elected a leader, whom they name.
        scheduler.run_for(1)
        named = outcome_of(simulation, clients.run(named_leader(simulation, others[0], partition)), 1)
        successor = simulation.cluster.nodes[named]
        assert successor in others
        written = clients.run(produce(simulation, successor, partition, acks=-1))
        assert outcome_of(simulation, written, 2) is ErrorCode.NONE
        heal()
        scheduler.run_for(5)
        assert outcome_of(simulation, clients.run(named_leader(simulation, node, partition)), 1) == named


def test_a_leader_whose_followers_fetch_needs_no_controller() -> None:
    """The quorum is lost, but records are committed: no other broker can lead."""
    with three_nodes("no controller") as simulation:
        clients, scheduler = simulation.clients, simulation.scheduler
        outcome_of(simulation, clients.run(create_topic(clients, 3, replicas=3)), 10)
        scheduler.run_for(2)
        node = leader_of(simulation, 0)
        assert node.process is not None
        broker = node.process.broker
        for _ in range(100):
            # As if no heartbeat had been answered for long.
            broker.contact_ms = -10_000
            assert broker.may_be_fenced
            written = clients.run(produce(simulation, node, 0, acks=-1))
            assert outcome_of(simulation, written, 0.5) is ErrorCode.NONE
            scheduler.run_for(0.01)
        assert not broker.replication.isolated
