"""Administration of topics, configs, groups and offsets."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, ClientError
from runnel.client.groups import Commit, Groups
from runnel.client.offsets import start_offsets
from runnel.client.producer import Producer
from runnel.client.sync import SyncClient
from runnel.model.configs import AlterOperation, ConfigSource, ResourceType
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition


def run(address: str, work: Callable[[Cluster], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with Cluster(address) as cluster:
            await work(cluster)

    asyncio.run(connected())


def test_topic_lifecycle(address, name):
    async def work(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topic(name, partitions=2, settings={"retention.ms": "5000"})
        assert name in [topic.name for topic in await admin.topics()]
        assert len((await admin.topic(name)).partitions) == 2
        await admin.add_partitions(name, 5)
        assert len((await admin.topic(name)).partitions) == 5
        await admin.delete_topic(name)
        assert name not in [topic.name for topic in await admin.topics()]
        with pytest.raises(BrokerError) as refused:
            await admin.delete_topic(name)
        assert refused.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(address, work)


def test_invalid_topics_are_rejected(address, name):
    async def work(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topic(name)
        for error, attempt in [
            (ErrorCode.TOPIC_ALREADY_EXISTS, admin.create_topic(name)),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, admin.create_topic("no spaces")),
            (ErrorCode.INVALID_CONFIG, admin.create_topic(f"{name}-x", settings={"retention.ms": "soon"})),
            (ErrorCode.INVALID_REPLICATION_FACTOR, admin.create_topic(f"{name}-x", replication_factor=3)),
            (ErrorCode.INVALID_PARTITIONS, admin.add_partitions(name, 1)),
        ]:
            with pytest.raises(BrokerError) as refused:
                await attempt
            assert refused.value.error is error

    run(address, work)


def test_validate_only_creates_nothing(address, name):
    async def work(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, validate_only=True)
        assert name not in [topic.name for topic in await cluster.topics()]

    run(address, work)


def test_configs_are_set_and_deleted(address, name):
    async def work(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topic(name)

        async def policy() -> tuple[str | None, ConfigSource]:
            [setting] = await admin.settings(
                ResourceType.TOPIC, name, keys=["cleanup.policy"], documentation=True
            )
            assert setting.documentation
            return setting.value, setting.source

        async def alter(operation: AlterOperation, value: str | None) -> None:
            await admin.alter_settings(ResourceType.TOPIC, name, [("cleanup.policy", operation, value)])

        assert await policy() == ("delete", ConfigSource.DEFAULT)
        await alter(AlterOperation.SET, "compact")
        assert await policy() == ("compact", ConfigSource.TOPIC)
        await alter(AlterOperation.APPEND, "delete")
        assert await policy() == ("compact,delete", ConfigSource.TOPIC)
        await alter(AlterOperation.SUBTRACT, "compact")
        assert await policy() == ("delete", ConfigSource.TOPIC)
        await alter(AlterOperation.DELETE, None)
        assert await policy() == ("delete", ConfigSource.DEFAULT)

    run(address, work)


def test_broker_configs_are_described_by_that_broker(address):
    async def work(cluster: Cluster) -> None:
        admin = Admin(cluster)
        settings = {setting.name: setting for setting in await admin.settings(ResourceType.BROKER, "1")}
        assert settings["group.initial.rebalance.delay.ms"].value == "0"
        assert settings["group.initial.rebalance.delay.ms"].source is ConfigSource.STATIC_BROKER
        with pytest.raises(ClientError, match="'one' is not a broker id"):
            await admin.settings(ResourceType.BROKER, "one")
        with pytest.raises(ClientError, match="broker 9"):
            await admin.settings(ResourceType.BROKER, "9")

    run(address, work)


def test_delete_records_and_partition_sizes(address, name):
    async def work(cluster: Cluster) -> None:
        admin, partition = Admin(cluster), TopicPartition(name, 0)
        await admin.create_topic(name)
        async with Producer(cluster) as producer:
            for _ in range(10):
                await producer.send(name, b"x" * 100)
        assert 1000 < (await admin.sizes())[partition] < 5000
        assert await admin.delete_records({partition: 4}) == {partition: 4}
        assert await start_offsets(cluster, [partition]) == {partition: 4}
        assert await admin.delete_records({partition: -1}) == {partition: 10}

    run(address, work)


def test_group_offsets_are_administered(address, name):
    async def work(cluster: Cluster) -> None:
        groups = Groups(cluster)
        await Admin(cluster).create_topic(name, partitions=2)
        first, second = TopicPartition(name, 0), TopicPartition(name, 1)
        await groups.commit(name, {first: 3, second: 4})
        assert await groups.committed(name) == {first: Commit(3), second: Commit(4)}
        assert (await groups.describe(name)).state == "Empty"
        assert name in [listing.group_id for listing in await groups.list()]
        await groups.delete_offsets(name, [first])
        assert await groups.committed(name) == {second: Commit(4)}
        await groups.delete(name)
        assert name not in [listing.group_id for listing in await groups.list()]
        for attempt in (groups.describe(name), groups.delete(name)):
            with pytest.raises(BrokerError) as refused:
                await attempt
            assert refused.value.error is ErrorCode.GROUP_ID_NOT_FOUND

    run(address, work)


def test_the_synchronous_client(address, name):
    with SyncClient(address) as client:
        client.create_topic(name, partitions=2, settings={"retention.ms": "-1"})
        assert name in client.topics()
        assert client.send(name, b"one", key=b"k", partition=1, timestamp_ms=7).offset == 0
        assert len(client.send_all(name, [(b"k", b"two"), (None, b"three")])) == 2
        assert {message.value for message in client.read(name)} == {b"one", b"two", b"three"}
        assert client.read(name, partitions=[1], offset=0)[0].value == b"one"
        assert b"one" not in {message.value for message in client.read(name, since_ms=8)}
        assert client.run(lambda cluster: Admin(cluster).topic(name)).name == name
        client.delete_topic(name)
        assert name not in client.topics()
        with pytest.raises(BrokerError):
            client.delete_topic(name)
