"""A cluster on loopback ports whose nodes are of Runnel or of Apache Kafka, and can be exchanged."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.broker_process import free_port
from tools.cluster.nodes import (
    Blueprint,
    ClusterNode,
    KafkaNode,
    NodeCluster,
    Place,
    RunnelNode,
    SmallKafkaNode,
    new_cluster_id,
)
from tools.crash.cluster.world import SETTINGS as CLUSTER_SETTINGS
from tools.crash.cluster.world import LoadedCluster
from tools.crash.rounds import Progress

HOST = "127.0.0.1"
SETTINGS = {
    **CLUSTER_SETTINGS,
    # A follower of Kafka rolls where the leader did, each time with an fsync: tens of segments per partition
    # would be most of the time in which it catches up.
    "log.roll.ms": "15000",
    # The same on all nodes: the defaults of Kafka and Runnel differ.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}
SENDER_SETTINGS = {"max.in.flight.requests.per.connection": 1}
"""A new leader of Kafka refuses a batch, and then the next one for its sequence number. librdkafka reacts
with a new producer epoch, and sends again what it has in flight to all partitions, stored or not."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which nodes a cluster has, and which of them are of Apache Kafka."""

    name: str
    kafka: frozenset[int]
    voters: tuple[int, ...] = (1, 2, 3)
    controllers_only: frozenset[int] = frozenset()
    brokers_only: tuple[int, ...] = ()


KAFKA_QUORUM = Layout(
    "brokers of Runnel in a cluster of Kafka", frozenset({1, 2, 3}), (1, 2, 3), frozenset({2, 3}), (4, 5)
)
RUNNEL_QUORUM = Layout(
    "brokers of Kafka in a cluster of Runnel", frozenset({4, 5}), (1, 2, 3), frozenset({2, 3}), (4, 5)
)
SHARED_QUORUM = Layout("one quorum of Kafka and Runnel", frozenset({1, 2}))
ALL_KAFKA = Layout("migration", frozenset({1, 2, 3}))


@dataclass(slots=True, kw_only=True)
class MixedWorld(LoadedCluster):
    """A cluster of both kinds of nodes."""

    blueprint: Blueprint

    def add_node(self, place: Place, *, is_kafka: bool) -> ClusterNode:
        """A node at this place, which replaces the one that was there; it is not started."""
        node = (SmallKafkaNode if is_kafka else RunnelNode)(place, self.blueprint)
        self.cluster.nodes[place.node] = node
        return node

    def exchange(self, number: int) -> ClusterNode:
        """The node that was stopped, as one of the other kind; it is not started."""
        node = self.cluster.nodes[number]
        return self.add_node(node.place, is_kafka=not isinstance(node, KafkaNode))

    def broker_of(self, kind: str) -> ClusterNode:
        """A running broker of this kind."""
        return next(node for node in self.cluster.running if node.is_broker and kind_of(node) == kind)

    def close(self) -> None:
        # Clients first: they would wait for nodes that no longer run.
        self._stack.close()
        self.cluster.kill()


def kind_of(node: ClusterNode) -> str:
    return "Kafka" if isinstance(node, KafkaNode) else "Runnel"


@contextmanager
def mixed_world(
    folder: Path, layout: Layout, seed: int, progress: Progress, settings: Mapping[str, str] = SETTINGS
) -> Iterator[MixedWorld]:
    """A new cluster without clients, started."""
    places = {}
    for number in (*layout.voters, *layout.brokers_only):
        home = folder / f"node-{number}"
        (home / "data").mkdir(parents=True)
        places[number] = Place(number, HOST, home, home / "data", [], free_port(), free_port())
    voters = {number: f"{HOST}:{places[number].controller_port}" for number in layout.voters}
    # Nodes of Runnel adopt the id; those of Kafka are formatted with it.
    cluster_id = new_cluster_id()
    blueprint = Blueprint(voters, {"cluster.id": cluster_id, **settings}, cluster_id, layout.controllers_only)
    world = MixedWorld(
        cluster=NodeCluster({}),
        folder=folder,
        rng=random.Random(seed),
        progress=progress,
        blueprint=blueprint,
        sender_settings=SENDER_SETTINGS,
    )
    try:
        for number, place in places.items():
            world.add_node(place, is_kafka=number in layout.kafka)
        world.cluster.start()
        yield world
    finally:
        world.close()
