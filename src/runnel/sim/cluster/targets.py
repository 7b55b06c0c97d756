"""The targets of faults: nodes by their current role."""

from random import Random

from runnel.controller.image import MetadataImage
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.node import SimNode

COORDINATORS = ("__consumer_offsets", "__transaction_state")


class Targets:
    """Finds nodes by role; any node if the role has none."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    def pick(self) -> tuple[str, SimNode]:
        """A role, and a node that has it."""
        role = self._random.choice(("controller", "leader", "follower", "coordinator", "node"))
        node = self._find(role)
        if node is None:
            return "node", self._random.choice(list(self._cluster.nodes.values()))
        return role, node

    def controller(self) -> SimNode | None:
        """The leader of the quorum, the newest if several nodes believe to be it."""
        leaders = [
            (node.process.broker.quorum.epoch, node.id, node)
            for node in self._cluster.running_nodes()
            if node.process is not None and node.process.has_quorum and node.process.broker.quorum.is_leader
        ]
        return max(leaders)[2] if leaders else None

    def image(self) -> MetadataImage | None:
        """The newest image of all running nodes."""
        images = [
            node.process.broker.metadata.image
            for node in self._cluster.running_nodes()
            if node.process is not None and node.process.has_quorum
        ]
        return max(images, key=lambda image: image.version) if images else None

    def is_registered(self, node: SimNode) -> bool:
        """Does a node serve, and does the newest metadata have its registration?"""
        image, process = self.image(), node.process
        if image is None or process is None or not node.is_serving:
            return False
        registration = image.brokers.get(node.id)
        return registration is not None and registration.epoch == process.broker.epoch

    def have_metadata_of(self, node: SimNode) -> bool:
        """Do all other voters have what a voter may have acknowledged of the metadata, durable?"""
        if node.process is None or not node.process.has_quorum:
            return False
        quorum = node.process.broker.quorum
        end_offset = quorum.log.durable_offset
        return node.id not in quorum.voters.ids or all(
            other.process is not None
            and other.process.has_quorum
            and other.process.broker.quorum.log.durable_offset >= end_offset
            for voter, other in self._cluster.nodes.items()
            if voter in quorum.voters.ids and other is not node
        )

    def _find(self, role: str) -> SimNode | None:
        if role == "controller":
            return self.controller()
        image = self.image()
        if role == "node" or image is None:
            return None
        states = [
            state
            for topic in image.topics.values()
            for state in topic.partitions
            if (topic.name in COORDINATORS) == (role == "coordinator") and state.leader >= 0
        ]
        if not states:
            return None
        state = self._random.choice(states)
        if role == "follower":
            others = [replica for replica in state.replicas if replica != state.leader]
            return self._cluster.nodes[self._random.choice(others)] if others else None
        return self._cluster.nodes[state.leader]
