"""The broker applies its metadata: partitions are opened, reconfigured and deleted; settings take effect."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import metadata_follower
from runnel.controller.image import BadMetadata
from runnel.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from runnel.model.errors import StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.ports.disk import PartitionLog
from tests.broker.world import BrokerWorld, Client

TOPIC, BROKER = 2, 4


async def alter(client: Client, kind: int, name: str, key: str, value: str | None) -> None:
    config = AlterableConfig(key, 1 if value is None else 0, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, [config])])
    (answer,) = (await client.ask(request, 1)).responses
    assert answer.error_code == 0, answer.error_message


def log_configs(world: BrokerWorld, topic: str) -> list[LogConfig]:
    partitions = world.broker.partitions
    return [partition.log.config for name, partition in partitions.items() if name.topic == topic]


def test_topic_settings_are_applied_to_logs(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("one", 2, retention_ms="5000")
        await world.create("two")
        client = await world.connect()
        assert [config.retention_ms for config in log_configs(world, "one")] == [5000, 5000]
        await alter(client, TOPIC, "one", "retention.ms", "7000")
        assert [config.retention_ms for config in log_configs(world, "one")] == [7000, 7000]
        await alter(client, BROKER, "", "log.retention.ms", "9000")
        assert [config.retention_ms for config in log_configs(world, "one")] == [7000, 7000]
        assert [config.retention_ms for config in log_configs(world, "two")] == [9000]
        await alter(client, TOPIC, "one", "retention.ms", None)
        assert [config.retention_ms for config in log_configs(world, "one")] == [9000, 9000]
        await alter(client, BROKER, "1", "message.max.bytes", "4321")
        assert [config.max_message_bytes for config in log_configs(world, "two")] == [4321]
        assert world.settings["message.max.bytes"] == 4321

    tell(scenario)


def test_restart_restores_partitions_and_settings(tell) -> None:
    known: dict[str, Any] = {}

    async def write(world: BrokerWorld) -> None:
        await world.create("kept", 3, cleanup_policy="compact")
        await alter(await world.connect(), BROKER, "", "log.retention.ms", "9000")
        known.update(cluster_id=world.broker.cluster_id, topic_id=world.topic_id("kept"))
        known.update(end_offset=world.broker.quorum.end_offset)

    async def read(world: BrokerWorld) -> None:
        assert world.broker.cluster_id == known["cluster_id"]
        assert world.topic_id("kept") == known["topic_id"]
        assert len(log_configs(world, "kept")) == 3
        assert all(config.cleanup_compact for config in log_configs(world, "kept"))
        assert all(config.retention_ms == 9000 for config in log_configs(world, "kept"))
        # Only the epoch of the quorum and the port have changed.
        while world.broker.metadata.image.brokers[1].endpoints[0].port != world.broker.port:
            await world.broker.metadata.changed()
        assert world.broker.quorum.end_offset == known["end_offset"] + 2
        assert world.broker.metadata.image.brokers[1].endpoints[0].port == world.broker.port

    tell(write)
    tell(read)


def test_a_broker_alone_serves_again_after_a_controlled_shutdown(tell) -> None:
    """Apache Kafka shuts down so in a cluster of one too, as does the last node of a larger cluster."""

    async def write(world: BrokerWorld) -> None:
        await world.create("t", 1)
        await world.broker.lifecycle.shut_down()
        assert world.broker.metadata.image.brokers[1].is_stopping

    async def read(world: BrokerWorld) -> None:
        async with asyncio.timeout(20):
            while world.broker.metadata.image.topics["t"].partitions[0].leader != 1:
                await world.broker.metadata.changed()
        registered = world.broker.metadata.image.brokers[1]
        assert not registered.is_stopping and not registered.is_fenced

    tell(write)
    tell(read)


def test_new_partitions_are_opened_and_deleted_topics_are_removed(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t", 1)
        client = await world.connect()
        grow = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)])
        assert (await client.ask(grow, 3)).results[0].error_code == 0
        assert len(log_configs(world, "t")) == 3
        first_id = world.topic_id("t")
        await client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
        assert log_configs(world, "t") == []
        assert not any(name.topic == "t" for name in world.disk.known_logs())
        await world.create("t", 1)
        assert world.topic_id("t") != first_id
        assert world.broker.partition("t", 0).high_watermark == 0

    tell(scenario)


def test_failed_open_of_a_log_is_retried(tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_follower, "RETRY_DELAY_MS", 10)

    async def scenario(world: BrokerWorld) -> None:
        open_log = world.disk.open_log
        attempts = 0

        def fail_twice(name: TopicPartition, topic_id: bytes, config: LogConfig) -> PartitionLog:
            nonlocal attempts
            attempts += 1
            if attempts <= 2:
                raise StorageFailed("no room")
            return open_log(name, topic_id, config)

        monkeypatch.setattr(world.disk, "open_log", fail_twice)
        await world.create("t")
        async with asyncio.timeout(20):
            while TopicPartition("t", 0) not in world.broker.partitions:
                await asyncio.sleep(0.01)
        assert attempts == 3

    tell(scenario)


def test_deleted_topic_stays_deleted_after_a_crash(tell) -> None:
    async def lose_files_late(world: BrokerWorld) -> None:
        await world.create("doomed", 2)
        await world.create("kept", 1)
        # The deletion is durable, but the process ends before the files are removed.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.disk, "remove_log", lambda _: None)
            await (await world.connect()).ask(DeleteTopicsRequest(topic_names=["doomed"]), 5)

    async def look(world: BrokerWorld) -> None:
        assert {name.topic for name in world.disk.known_logs()} == {"kept", "__cluster_metadata"}

    tell(lose_files_late)
    tell(look)


def refused_start(folder: Path, node_id: int) -> str:
    """The error of a broker that does not start on this directory."""

    async def start() -> str:
        world = BrokerWorld(folder)
        world.broker.node_id = node_id
        try:
            await world.__aenter__()
        except BadMetadata as error:
            return str(error)
        finally:
            await world.listener.close(grace_seconds=0)
            world.disk.close()
        raise AssertionError("it started")

    return asyncio.run(start())


async def one_topic(world: BrokerWorld) -> None:
    await world.create("t")


def test_data_directory_of_another_node_is_rejected(tell, tmp_path: Path) -> None:
    tell(one_topic)
    reason = refused_start(tmp_path, node_id=7)
    assert f"{tmp_path} belongs to node 1, and this is node 7: start it with node.id=1" in reason
    tell(one_topic_is_there)


async def one_topic_is_there(world: BrokerWorld) -> None:
    assert "t" in world.broker.metadata.image.topics


def test_partitions_without_metadata_prevent_the_start(tell, tmp_path: Path) -> None:
    tell(one_topic)
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    assert "holds 1 partitions but no metadata" in refused_start(tmp_path, node_id=1)
    assert (tmp_path / "t-0").exists()
