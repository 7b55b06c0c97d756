"""All invariants of a cluster, checked after each step of a node."""

from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.node import Process, SimNode
from runnel.sim.cluster.partition_invariants import PartitionInvariants
from runnel.sim.cluster.quorum_invariants import QuorumInvariants
from runnel.sim.cluster.scheduler import ProcessLoop


class Invariants:
    """Watches the nodes of a cluster; a violation ends the simulation."""

    def __init__(self, cluster: Cluster) -> None:
        self.quorum = QuorumInvariants(cluster)
        self.partitions = PartitionInvariants(cluster)
        self._cluster = cluster
        self._hosts = {node.host: node for node in cluster.nodes.values()}
        self.topic_ids: dict[str, bytes] = {}
        """By name, in the newest committed metadata."""
        self._newest = -1
        cluster.scheduler.observer = self.step
        cluster.on_process_end = self.process_ended

    def step(self, loop: ProcessLoop) -> None:
        """A process has run a callback."""
        node = self._hosts.get(loop.name)
        if node is None:
            return
        process = node.process
        if process is None or process.loop is not loop or not process.has_quorum:
            return
        try:
            image = self.quorum.step(node, process)
            if image is not None and image.version > self._newest:
                self._newest = image.version
                self.topic_ids = {topic.name: topic.id for topic in image.topics.values()}
                self.partitions.metadata_changed(image)
            self.partitions.step(node, process)
        except AssertionError as violation:
            self._cluster.scheduler.fail(violation)

    def process_ended(self, node: SimNode, process: Process) -> None:
        """A process has ended."""
        self.quorum.process_ended(node, process)
        self.partitions.process_ended(node)

    def disk_replaced(self, node: SimNode) -> None:
        """A node returns with other files than it had."""
        self.quorum.disk_replaced(node)
        self.partitions.may_be_damaged.add(node.id)
