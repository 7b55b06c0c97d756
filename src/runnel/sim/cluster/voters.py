"""Dynamic quorums (KIP-853): how nodes are formatted for one, and a client that changes its voters."""

import asyncio
from collections.abc import Iterable
from random import Random

from runnel.broker.runtime.quorum_log import METADATA_PARTITION
from runnel.disk.atomic import make_durable_folder
from runnel.disk.identity import store_identity
from runnel.disk.snapshots import SnapshotFiles
from runnel.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from runnel.messages.describe_quorum import (
    AnsweredPartitionData,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from runnel.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from runnel.ports.disk import Identity
from runnel.raft.control import bootstrap_snapshot
from runnel.raft.positions import BOOTSTRAP_SNAPSHOT
from runnel.raft.values import Endpoint, ReplicaKey
from runnel.raft.voters import Voter, Voters
from runnel.sim.clients import SimClient
from runnel.sim.cluster.node import CLUSTER_ID, CONTROLLER_LISTENER, CONTROLLER_PORT, SimNode
from runnel.sim.shells import EPOCH_MS
from runnel.sim.world import Connection, World

PAUSE_SECONDS = 1.0
TIMEOUT_MS = 2000


def format_voters(nodes: Iterable[SimNode], random: Random) -> None:
    """Format the disks of the first voters of a dynamic quorum."""
    keys = {node: ReplicaKey(node.id, random.randbytes(16)) for node in nodes}
    voters = Voters(
        Voter(key, (Endpoint(CONTROLLER_LISTENER, node.host, CONTROLLER_PORT),)) for node, key in keys.items()
    )
    for node, key in keys.items():
        folder = f"/data/{METADATA_PARTITION}"
        make_durable_folder(node.files, "/data")
        make_durable_folder(node.files, folder)
        SnapshotFiles(node.files, folder).write(BOOTSTRAP_SNAPSHOT, bootstrap_snapshot(voters, EPOCH_MS))
        store_identity(node.files, "/data", Identity(key.directory_id, CLUSTER_ID, node.id))


class VoterAdministrator(SimClient):
    """Adds and removes voters of a dynamic quorum."""

    def __init__(self, voters_min: int) -> None:
        self._voters_min = voters_min

    async def run_once(self, connection: Connection, world: World) -> None:
        await asyncio.sleep(world.random.random() * PAUSE_SECONDS)
        quorum = await self._describe(connection)
        if quorum is None:
            return
        voters = {voter.replica_id: voter for voter in quorum.current_voters}
        returned = [each for each in quorum.observers if each.replica_id in voters]
        observers = [each for each in quorum.observers if each.replica_id not in voters]
        if returned:
            # The node has another directory than before, and is no voter with it.
            await self._remove(connection, voters[world.random.choice(returned).replica_id])
        elif observers and (len(voters) <= self._voters_min or world.random.random() < 0.5):
            await self._add(connection, world.random.choice(observers))
        elif len(voters) > self._voters_min:
            await self._remove(connection, world.random.choice(quorum.current_voters))

    async def _describe(self, connection: Connection) -> AnsweredPartitionData | None:
        topic = TopicData(METADATA_PARTITION.topic, [PartitionData(METADATA_PARTITION.partition)])
        answer = await connection.ask(DescribeQuorumRequest([topic]), DescribeQuorumResponse)
        return None if answer.error_code or not answer.topics else answer.topics[0].partitions[0]

    async def _add(self, connection: Connection, observer: ReplicaState) -> None:
        listener = Listener(CONTROLLER_LISTENER, f"n{observer.replica_id}", CONTROLLER_PORT)
        request = AddRaftVoterRequest(
            CLUSTER_ID, TIMEOUT_MS, observer.replica_id, observer.replica_directory_id, [listener]
        )
        await connection.ask(request, AddRaftVoterResponse)

    async def _remove(self, connection: Connection, voter: ReplicaState) -> None:
        request = RemoveRaftVoterRequest(CLUSTER_ID, voter.replica_id, voter.replica_directory_id)
        await connection.ask(request, RemoveRaftVoterResponse)
