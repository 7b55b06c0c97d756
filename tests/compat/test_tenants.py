"""Tenants on a cluster with an authorizer: Apache Kafka's, for which `runnel tenant` is one more tool."""

import asyncio
from collections.abc import Iterator

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError
from runnel.client.producer import Producer
from runnel.client.tenants import Tenant, Tenants
from tools.kafka import node

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.usefixtures("kafka_jars")]

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TEAM_A = Tenant("team-a", "team-a-", ("User:alice", "User:etl"), {"producer_byte_rate": 1e6})
TEAM_B = Tenant("team-b", "b.", ("User:bob",), {})


@pytest.fixture(scope="module")
def kafka(kafka_jars: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of Apache Kafka on which ACLs can be created."""
    folder = tmp_path_factory.mktemp("kafka-with-acls")
    running = node.start(folder, {**node.ONE_NODE, **AUTHORIZER}, flags=node.QUICK_START)
    try:
        yield running.bootstrap
    finally:
        running.stop()


def test_a_tenant_from_its_creation_to_its_deletion(kafka: str) -> None:
    async def scenario() -> None:
        async with Cluster(kafka) as cluster:
            tenants = Tenants(cluster)
            assert await tenants.all() == []
            await tenants.create(TEAM_A)
            await tenants.create(TEAM_B)
            assert await tenants.all() == [TEAM_A, TEAM_B]
            for refused, reason in (
                (Tenant("team-a", "c-", ("User:carol",), {}), "exists"),
                (Tenant("c", "team-", ("User:carol",), {}), "overlaps"),
                (Tenant("c", "team-a-x", ("User:carol",), {}), "overlaps"),
                (Tenant("c", "c-", ("User:bob",), {}), "belongs to tenant 'team-b'"),
            ):
                with pytest.raises(ClientError, match=reason):
                    await tenants.create(refused)
            await use(cluster)
            usage = await tenants.usage(TEAM_A)
            assert (usage.acls, usage.topics, usage.partitions) == (6, 2, 4)
            assert usage.stored_bytes > 1000
            assert usage.quotas == {user: {"producer_byte_rate": 1e6} for user in ("alice", "etl")}
            await tenants.delete(TEAM_A)
            usage = await tenants.usage(TEAM_A)
            assert (usage.acls, usage.topics, usage.quotas) == (0, 2, {})
            assert await tenants.all() == [TEAM_B]
            assert (await tenants.usage(TEAM_B)).acls == 3

    asyncio.run(scenario())


async def use(cluster: Cluster) -> None:
    """Two topics of the first tenant, and one without a tenant."""
    for name, partitions in (("team-a-orders", 3), ("team-a-events", 1), ("team-c-orders", 1)):
        await Admin(cluster).create_topic(name, partitions=partitions)
    async with Producer(cluster) as producer:
        await producer.send_and_wait("team-a-orders", bytes(1000))
        await producer.send_and_wait("team-c-orders", bytes(5000))
