"""A cluster on free ports of the loopback."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.broker_process import free_port
from tools.cluster.nodes import (
    THREE_REPLICAS,
    Blueprint,
    ClusterNode,
    NodeCluster,
    Place,
    RunnelNode,
    new_cluster_id,
)

NODES = (1, 2, 3)
HOST = "127.0.0.1"


@contextmanager
def local_cluster(
    folder: Path,
    kind: type[ClusterNode] = RunnelNode,
    settings: Mapping[str, str] = THREE_REPLICAS,
    numbers: Iterable[int] = NODES,
) -> Iterator[NodeCluster]:
    """Nodes that are brokers and voters, started; they are killed at the end of the block."""
    ports = {number: (free_port(), free_port()) for number in numbers}
    voters = {number: f"{HOST}:{controller}" for number, (_, controller) in ports.items()}
    blueprint = Blueprint(voters, settings, new_cluster_id())
    cluster = NodeCluster({})
    for number, (client, controller) in ports.items():
        home = folder / f"node-{number}"
        place = Place(number, HOST, home, home / "data", [], client, controller)
        place.data.mkdir(parents=True)
        cluster.nodes[number] = kind(place, blueprint)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
