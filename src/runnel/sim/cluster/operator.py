"""The operator of a cluster: elects a leader where the only candidate is a damaged replica."""

import asyncio
from contextlib import suppress

from runnel.controller.image import MetadataImage
from runnel.controller.values import LOST_DIRECTORY, PartitionState
from runnel.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from runnel.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from runnel.model.ids import NO_LEADER, TopicPartition
from runnel.ports.disk import PartitionLog
from runnel.sim.cluster.client_host import ClientHost
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.targets import Targets
from runnel.sim.world import ConnectionLost

PATIENCE_SECONDS = 3.0
"""How long a partition is offline while all nodes serve, before the operator acts."""
UNCLEAN = 1
TIMEOUT_MS = 3000


class Operator:
    """Elects uncleanly the sound replica with the longest log, which has all that is committed.

    All replicas have what they stored, except for the damaged one. No other partition may need an operator.
    """

    def __init__(self, cluster: Cluster, targets: Targets) -> None:
        self.elections = 0
        self._cluster = cluster
        self._targets = targets
        self._host = ClientHost(cluster, "operator")

    def start(self) -> None:
        """Watch the cluster from now on."""
        self._host.run(self._run())

    async def _run(self) -> None:
        while True:
            offline = self._offline()
            await asyncio.sleep(PATIENCE_SECONDS)
            for name in sorted(offline & self._offline()):
                with suppress(ConnectionLost):
                    await self._elect(name)

    def _offline(self) -> set[TopicPartition]:
        """The partitions without a leader, if all nodes serve."""
        image = self._image()
        return set() if image is None else _leaderless(image)

    def _image(self) -> MetadataImage | None:
        is_complete = all(node.is_serving for node in self._cluster.nodes.values())
        return self._targets.image() if is_complete else None

    async def _elect(self, name: TopicPartition) -> None:
        image = self._image()
        state = None if image is None else image.partition(*name)
        if state is None or not self._is_damaged(name, state):
            return
        sound = {
            node: log
            for node, log in self._logs(name, state).items()
            if not log.is_damaged and state.directories[state.replicas.index(node)] != LOST_DIRECTORY
        }
        best = max(sound, key=lambda node: (sound[node].leader_epoch, sound[node].written_offset))
        self._cluster.trace.add("operator", f"elects n{best} for {name}")
        connection = await self._host.connect()
        # The first replica is elected.
        replicas = [best, *(node for node in state.replicas if node != best)]
        partition = ReassignablePartition(name.partition, replicas)
        await connection.ask(
            AlterPartitionReassignmentsRequest(
                TIMEOUT_MS, topics=[ReassignableTopic(name.topic, [partition])]
            ),
            AlterPartitionReassignmentsResponse,
        )
        await connection.ask(
            ElectLeadersRequest(UNCLEAN, [TopicPartitions(name.topic, [name.partition])], TIMEOUT_MS),
            ElectLeadersResponse,
        )
        self.elections += 1

    def _is_damaged(self, name: TopicPartition, state: PartitionState) -> bool:
        is_lost = LOST_DIRECTORY in state.directories
        return is_lost or any(log.is_damaged for log in self._logs(name, state).values())

    def _logs(self, name: TopicPartition, state: PartitionState) -> dict[int, PartitionLog]:
        processes = {node: self._cluster.nodes[node].process for node in state.replicas}
        return {
            node: process.broker.partitions[name].log
            for node, process in processes.items()
            if process is not None and name in process.broker.partitions
        }


def _leaderless(image: MetadataImage) -> set[TopicPartition]:
    return {
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
        if state.leader == NO_LEADER
    }
