"""A client that changes the cluster: topics, settings, the placement of replicas, leaders."""

import asyncio
from contextlib import suppress
from random import Random

from runnel.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from runnel.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from runnel.messages.metadata import MetadataRequest, MetadataResponse
from runnel.model.configs import ResourceType
from runnel.sim.clients import SimClient
from runnel.sim.history import Anomaly
from runnel.sim.world import Connection, ConnectionLost, World

PAUSE_SECONDS = 0.3
SET = 0
PREFERRED = 0
TIMEOUT_MS = 3000
SETTLE_SECONDS_MAX = 5.0


class ClusterAdministrator(SimClient):
    """Changes that are acknowledged persist; others may or may not."""

    def __init__(self, topics: dict[str, int], brokers: list[int], replicas: int) -> None:
        """`topics` with their number of partitions are those whose replicas are moved."""
        self.topics = topics
        self.brokers = brokers
        self.replicas = replicas
        self.reassignments = 0
        self.present: set[str] = set()
        self.absent: set[str] = set()
        self._created = 0

    async def run_once(self, connection: Connection, world: World) -> None:
        await asyncio.sleep(world.random.random() * PAUSE_SECONDS)
        draw = world.random.random()
        if draw < 0.2:
            await self._create(connection)
        elif draw < 0.3 and self.present:
            await self._delete(connection, world.random.choice(sorted(self.present)))
        elif draw < 0.6:
            await self._reassign(connection, world.random)
        elif draw < 0.8:
            await self._configure(connection, world.random)
        else:
            request = ElectLeadersRequest(PREFERRED, None, TIMEOUT_MS)
            await connection.ask(request, ElectLeadersResponse)

    async def _create(self, connection: Connection) -> None:
        name = f"created-{self._created}"
        self._created += 1
        topic = CreatableTopic(name, num_partitions=1, replication_factor=self.replicas)
        answer = await connection.ask(CreateTopicsRequest([topic], TIMEOUT_MS), CreateTopicsResponse)
        if answer.topics[0].error_code == 0:
            self.present.add(name)

    async def _delete(self, connection: Connection, name: str) -> None:
        self.present.discard(name)
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=TIMEOUT_MS)
        answer = await connection.ask(request, DeleteTopicsResponse)
        if answer.responses[0].error_code == 0:
            self.absent.add(name)

    async def _reassign(self, connection: Connection, random: Random) -> None:
        """Reassign a partition to other brokers, or cancel the reassignment."""
        name = random.choice(sorted(self.topics))
        replicas = random.sample(self.brokers, self.replicas) if random.random() < 0.8 else None
        partition = ReassignablePartition(random.randrange(self.topics[name]), replicas)
        request = AlterPartitionReassignmentsRequest(
            TIMEOUT_MS, topics=[ReassignableTopic(name, [partition])]
        )
        answer = await connection.ask(request, AlterPartitionReassignmentsResponse)
        self.reassignments += bool(
            replicas and answer.responses and not answer.responses[0].partitions[0].error_code
        )

    async def _configure(self, connection: Connection, random: Random) -> None:
        config = AlterableConfig("segment.ms", SET, str(random.choice((200, 1000, 5000))))
        name = random.choice(sorted(self.topics))
        resource = AlterConfigsResource(ResourceType.TOPIC, name, [config])
        await connection.ask(IncrementalAlterConfigsRequest([resource]), IncrementalAlterConfigsResponse)

    async def check(self, world: World) -> None:
        """At the end: acknowledged changes persist. A broker applies them with a delay."""
        deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS_MAX
        while True:
            with suppress(ConnectionLost):
                answer = await (await world.connect()).ask(MetadataRequest(topics=None), MetadataResponse)
                names = {topic.name for topic in answer.topics}
                if self.present <= names and not self.absent & names:
                    return
                if asyncio.get_running_loop().time() > deadline:
                    lost = sorted(self.present - names)
                    raise Anomaly(f"lost topics {lost}, deleted ones {sorted(self.absent & names)}")
            await asyncio.sleep(0.1)
