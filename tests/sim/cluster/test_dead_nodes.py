"""How long a simulated cluster takes to notice that a node is gone, and that it takes none for dead."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.ports.service import Session
from runnel.sim.clients import create_topic
from runnel.sim.cluster.node import CLIENT_PORT, SimNode
from runnel.sim.cluster.simulation import ClusterSimulation, Shape

NETWORK_S = 0.1
"""What several round trips and syncs take in the simulation."""
ELECTION_S = 0.5
"""What voters take to elect a controller whose predecessor's connections are closed."""


@contextmanager
def three_nodes(seed: str) -> Iterator[ClusterSimulation]:
    simulation = ClusterSimulation(seed, Shape(3, "never", (), 0))
    with simulation.cluster.running():
        simulation.start()
        simulation.scheduler.run_for(3)
        yield simulation


def controller(simulation: ClusterSimulation) -> SimNode:
    (active,) = (
        node
        for node in simulation.cluster.running_nodes()
        if node.process is not None and node.process.broker.metadata.is_active
    )
    return active


def seconds_until_fenced(simulation: ClusterSimulation, node: SimNode, seconds_max: float) -> float:
    """Until all other nodes know it."""
    began = simulation.scheduler.now

    def is_fenced() -> bool:
        return all(
            other.process is not None and other.process.broker.metadata.image.brokers[node.id].is_fenced
            for other in simulation.cluster.running_nodes()
            if other is not node
        )

    assert simulation.scheduler.run_until(is_fenced, began + seconds_max), f"not within {seconds_max} s"
    return simulation.scheduler.now - began


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_a_killed_broker_is_fenced_at_once(seed: str) -> None:
    with three_nodes(seed) as simulation:
        active = controller(simulation)
        victim = next(node for node in simulation.cluster.running_nodes() if node is not active)
        victim.kill()
        assert seconds_until_fenced(simulation, victim, 2) < NETWORK_S


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_a_killed_controller_is_fenced_by_its_successor_at_once(seed: str) -> None:
    with three_nodes(seed) as simulation:
        victim = controller(simulation)
        victim.kill()
        assert seconds_until_fenced(simulation, victim, 5) < ELECTION_S


def test_a_host_that_is_silent_is_fenced_when_its_session_ends() -> None:
    with three_nodes("silent") as simulation:
        active = controller(simulation)
        victim = next(node for node in simulation.cluster.running_nodes() if node is not active)
        assert victim.process is not None
        victim.process.loop.pause()
        assert 1 < seconds_until_fenced(simulation, victim, 5) < 2


def test_the_end_of_an_earlier_connection_does_not_shorten_a_session() -> None:
    with three_nodes("connections") as simulation:
        active = controller(simulation)
        victim = next(node for node in simulation.cluster.running_nodes() if node is not active)
        assert active.process is not None
        duties = active.process.broker.duties
        earlier, present = (Session("n9", 9, "CONTROLLER", number) for number in (1, 2))
        duties.connected(victim.id, earlier)
        duties.connected(victim.id, present)
        ends_ms = duties.sessions.next_expiry_ms()
        assert earlier.on_closed is not None
        earlier.on_closed()
        assert duties.sessions.next_expiry_ms() == ends_ms


@pytest.mark.parametrize("is_controller", [True, False])
def test_the_last_nodes_of_a_cluster_stop_without_waiting_for_a_controller(is_controller: bool) -> None:
    with three_nodes("stop") as simulation:
        active = controller(simulation)
        last = next(node for node in simulation.cluster.running_nodes() if (node is active) == is_controller)
        for node in simulation.cluster.running_nodes():
            if node is not last:
                node.kill()
        last.stop()
        began = simulation.scheduler.now
        assert simulation.scheduler.run_until(lambda: not last.is_running, began + 1)


def test_a_leader_that_is_silent_is_a_suspect_before_it_is_fenced() -> None:
    with three_nodes("suspect") as simulation:
        created = simulation.clients.run(create_topic(simulation.clients, 3, replicas=3))
        assert simulation.scheduler.run_until(created.done, simulation.scheduler.now + 10)
        simulation.scheduler.run_for(2)
        active = controller(simulation)
        victim = next(node for node in simulation.cluster.running_nodes() if node is not active)
        assert victim.process is not None
        assert active.process is not None
        suspects = active.process.broker.suspects
        victim.process.loop.pause()
        assert simulation.scheduler.run_until(lambda: victim.id in suspects, simulation.scheduler.now + 1.3)
        assert seconds_until_fenced(simulation, victim, 2) > 0
        simulation.scheduler.run_for(1)
        assert not suspects


def test_nodes_that_were_all_killed_do_not_wait_for_the_sessions_of_their_last_run() -> None:
    with three_nodes("all") as simulation:
        nodes = simulation.cluster.running_nodes()
        for node in nodes:
            node.kill()
        for node in nodes:
            node.start()
        began = simulation.scheduler.now
        assert simulation.scheduler.run_until(lambda: all(node.is_serving for node in nodes), began + 1.5)


def test_an_idle_controller_writes_records_by_which_others_measure_their_lag() -> None:
    with three_nodes("idle") as simulation:
        brokers = [node.process.broker for node in simulation.cluster.running_nodes() if node.process]
        before = [(b.metadata.image.version, b.metadata.image.content_version) for b in brokers]
        simulation.scheduler.run_for(5)
        for broker, (version, content_version) in zip(brokers, before, strict=True):
            image = broker.metadata.image
            assert 8 <= image.version - version <= 11
            assert image.content_version == content_version


def pause(node: SimNode) -> None:
    assert node.process is not None
    node.process.loop.pause()


@pytest.mark.parametrize("fail", [SimNode.kill, pause])
def test_producer_ids_are_allocated_while_the_controller_is_replaced(fail: Callable[[SimNode], None]) -> None:
    """The first block of a broker comes from the controller: clients wait for the next one."""
    with three_nodes("ids") as simulation:
        victim = controller(simulation)
        responses: list[InitProducerIdResponse] = []

        async def ask(host: str) -> None:
            connection = await simulation.clients.connect_to((host, CLIENT_PORT))
            request = InitProducerIdRequest(transactional_id=None)
            responses.append(await connection.ask(request, InitProducerIdResponse))

        asking = [
            simulation.clients.run(ask(node.host))
            for node in simulation.cluster.running_nodes()
            if node is not victim
        ]
        fail(victim)
        is_over = simulation.scheduler.run_until(
            lambda: all(task.done() for task in asking), simulation.scheduler.now + 4
        )
        assert is_over
        assert [response.error_code for response in responses] == [0, 0]
        assert len({response.producer_id for response in responses}) == 2
