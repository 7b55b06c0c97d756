"""The admin APIs in the versions used by clients."""

import asyncio
from collections.abc import Callable

import pytest

from runnel.controller.config_topic import TOPIC_CONFIGS
from runnel.messages import list_partition_reassignments as moves
from runnel.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from runnel.messages.create_acls import AclCreation, CreateAclsRequest
from runnel.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from runnel.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.describe_acls import DescribeAclsRequest
from runnel.messages.describe_cluster import DescribeClusterRequest
from runnel.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from runnel.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from runnel.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from runnel.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from runnel.messages.list_config_resources import ListConfigResourcesRequest
from runnel.messages.unregister_broker import UnregisterBrokerRequest
from runnel.model.errors import ErrorCode, StorageFailed
from runnel.model.ids import NO_ID
from runnel.wire import Request
from tests.broker.world import BrokerWorld

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.mark.parametrize("version", range(2, 8))
def test_created_topic_is_available_at_once(tell, version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        wish = CreatableTopic("t", 3, 1, configs=[CreatableTopicConfig("retention.ms", "5000")])
        (result,) = (await (await world.connect()).ask(CreateTopicsRequest([wish]), version)).topics
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        assert all(world.broker.partition("t", index).high_watermark == 0 for index in range(3))
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            configs = {config.name: config for config in result.configs}
            assert configs.keys() == set(TOPIC_CONFIGS)
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", 1)
            assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (
                "1073741824",
                5,
            )
        if version >= 7:
            assert result.topic_id == world.topic_id("t") != NO_ID

    tell(scenario, {"num.partitions": "9"})


def test_broker_defaults(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        request = CreateTopicsRequest([CreatableTopic("t", -1, -1)])
        (result,) = (await (await world.connect()).ask(request, 7)).topics
        assert (result.num_partitions, result.replication_factor) == (9, 1)

    tell(scenario, {"num.partitions": "9"})


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_and_by_id(tell, version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("one")
        await world.create("two")
        known = world.topic_id("two")
        states = [DeleteTopicState("one"), DeleteTopicState(None, known)]
        names = ["one", "two"]
        request = DeleteTopicsRequest(states if version >= 6 else [], names if version < 6 else [])
        results = (await (await world.connect()).ask(request, version)).responses
        assert [(result.name, result.error_code) for result in results] == [("one", 0), ("two", 0)]
        assert world.broker.metadata.image.topics == {}
        assert results[1].topic_id == (known if version >= 6 else NO_ID)

    tell(scenario)


@pytest.mark.parametrize(("version", "error"), [(1, "INVALID_REQUEST"), (5, "TOPIC_DELETION_DISABLED")])
def test_topic_deletion_disabled(tell, version: int, error: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t")
        (result,) = (
            await (await world.connect()).ask(DeleteTopicsRequest(topic_names=["t"]), version)
        ).responses
        assert ErrorCode.from_code(result.error_code).name == error
        assert "t" in world.broker.metadata.image.topics

    tell(scenario, {"delete.topic.enable": "false"})


@pytest.mark.parametrize("version", range(1, 5))
def test_all_settings_are_described(tell, version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t", cleanup_policy="compact")
        resources = [
            DescribeConfigsResource(kind, name, None) for kind, name in ((TOPIC, "t"), (BROKER, "1"))
        ]
        request = DescribeConfigsRequest(resources, include_synonyms=True, include_documentation=version >= 3)
        topic, broker = (await (await world.connect()).ask(request, version)).results
        policy = next(config for config in topic.configs if config.name == "cleanup.policy")
        assert (policy.value, policy.config_source, policy.is_sensitive) == ("compact", 1, False)
        assert [(s.name, s.value, s.source) for s in policy.synonyms] == [
            ("cleanup.policy", "compact", 1),
            ("log.cleanup.policy", "delete", 5),
        ]
        partitions = next(config for config in broker.configs if config.name == "num.partitions")
        assert (partitions.value, partitions.config_source, partitions.read_only) == ("7", 4, True)
        assert (policy.config_type, partitions.config_type) == ((7, 3) if version >= 3 else (0, 0))
        if version >= 3:
            assert all(config.documentation for config in topic.configs + broker.configs)
        assert all(config.value is not None for config in topic.configs)

    tell(scenario, {"num.partitions": "7"})


def test_secrets_are_not_described(tell) -> None:
    secrets = {"ssl.keystore.key": "hidden", "listener.name.outside.ssl.key.password": "hidden"}

    async def scenario(world: BrokerWorld) -> None:
        request = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", None)], include_synonyms=True)
        (broker,) = (await (await world.connect()).ask(request, 4)).results
        described = {config.name: config for config in broker.configs}
        for name in secrets:
            assert (described[name].value, described[name].is_sensitive) == (None, True)
            assert [synonym.value for synonym in described[name].synonyms] == [None]
        assert described["listener.name.outside.ssl.client.auth"].value == "required"

    protocols = {"listeners": "OUTSIDE://:9093", "listener.security.protocol.map": "OUTSIDE:SSL"}
    tell(scenario, {**protocols, **secrets, "listener.name.outside.ssl.client.auth": "required"})


@pytest.mark.parametrize(
    ("resource_name", "setting", "complaint"),
    [
        ("1", "listener.name.outside.ssl.keystore.location", None),
        ("", "listener.name.outside.ssl.keystore.location", "broker id must be specified"),
        ("1", "ssl.keystore.location", "using the listener prefix"),
        ("1", "listener.name.outside.ssl.principal.mapping.rules", "Cannot update these configs"),
        ("1", "listener.name.outside.ssl.nonsense", "Unknown broker config name"),
    ],
)
def test_settings_of_tls_are_changed_for_one_listener_of_one_broker(
    tell, resource_name: str, setting: str, complaint: str | None
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        resource = AlterConfigsResource(BROKER, resource_name, [AlterableConfig(setting, "/tmp/a.pem")])
        (answer,) = (await (await world.connect()).ask(AlterConfigsRequest([resource]), 2)).responses
        if complaint is None:
            assert answer.error_code == 0
            assert world.broker.settings.of_listener("OUTSIDE", "ssl.keystore.location") == "/tmp/a.pem"
        else:
            assert ErrorCode.from_code(answer.error_code) is ErrorCode.INVALID_REQUEST
            assert complaint in answer.error_message

    tell(scenario)


@pytest.mark.parametrize("version", range(3))
def test_settings_are_replaced(tell, version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t", retention_ms="5000")
        resource = AlterConfigsResource(TOPIC, "t", [AlterableConfig("segment.ms", "7")])
        client = await world.connect()
        for trial in (True, False):
            (answer,) = (await client.ask(AlterConfigsRequest([resource], trial), version)).responses
            assert (answer.error_code, answer.resource_type, answer.resource_name) == (0, TOPIC, "t")
            expected = {"retention.ms": "5000"} if trial else {"segment.ms": "7"}
            assert world.broker.metadata.image.topic_configs("t") == expected

    tell(scenario)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(tell, version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        request = DescribeClusterRequest(True, include_fenced_brokers=version >= 2)
        answer = await (await world.connect()).ask(request, version)
        assert (answer.cluster_id, answer.controller_id) == (world.broker.cluster_id, 1)
        assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [
            (1, "127.0.0.1", world.broker.port)
        ]
        assert answer.cluster_authorized_operations == 0b1111110100000
        assert len(answer.cluster_id) == 22

    tell(scenario)


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs(tell, version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t", 2)
        await world.create("u")
        client = await world.connect()
        (folder,) = (await client.ask(DescribeLogDirsRequest(None), version)).results
        assert folder.log_dir == world.disk.directory_path()
        assert {topic.name: len(topic.partitions) for topic in folder.topics} == {"t": 2, "u": 1}
        wish = [DescribableLogDirTopic("t", [1, 9]), DescribableLogDirTopic("zz", [0])]
        (folder,) = (await client.ask(DescribeLogDirsRequest(wish), version)).results
        (topic,) = folder.topics
        assert [(part.partition_index, part.partition_size) for part in topic.partitions] == [(1, 0)]
        if version >= 4:
            assert folder.total_bytes >= folder.usable_bytes > 0

    tell(scenario)


@pytest.mark.parametrize("version", range(3))
def test_describe_quorum_has_one_voter(tell, version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t")
        request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
        answer = await (await world.connect()).ask(request, version)
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.error_code) == (1, 0)
        end_offset = world.broker.quorum.end_offset
        assert partition.high_watermark == partition.current_voters[0].log_end_offset == end_offset > 0
        if version >= 2:
            assert answer.nodes[0].listeners[0].port == world.broker.port

    tell(scenario)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: DescribeAclsRequest(),
        lambda: CreateAclsRequest([AclCreation(), AclCreation()]),
        lambda: DeleteAclsRequest([DeleteAclsFilter()]),
    ],
)
@pytest.mark.parametrize("version", range(1, 4))
def test_acls_are_disabled(tell, request_of: Callable[[], Request], version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        answer = await (await world.connect()).ask(request_of(), version)
        results = getattr(answer, "results", None) or getattr(answer, "filter_results", None) or [answer]
        assert all(result.error_code == ErrorCode.SECURITY_DISABLED.code for result in results)
        assert all("Authorizer" in result.error_message for result in results)

    tell(scenario)


def test_list_config_resources(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t")
        client = await world.connect()
        for kind, name, key, value in (
            (GROUP, "g", "share.auto.offset.reset", "earliest"),
            (METRICS, "m", "interval.ms", "500"),
        ):
            resource = AlterConfigsResource(kind, name, [AlterableConfig(key, value)])
            await client.ask(AlterConfigsRequest([resource]), 2)
        old = await client.ask(ListConfigResourcesRequest(), 0)
        assert [(found.resource_name, found.resource_type) for found in old.config_resources] == [
            ("m", METRICS)
        ]
        everything = await client.ask(ListConfigResourcesRequest([]), 1)
        assert {(found.resource_name, found.resource_type) for found in everything.config_resources} == {
            ("t", TOPIC),
            ("1", BROKER),
            ("1", LOGGER),
            ("m", METRICS),
            ("g", GROUP),
        }
        groups = await client.ask(ListConfigResourcesRequest([GROUP]), 1)
        assert [found.resource_name for found in groups.config_resources] == ["g"]

    tell(scenario)


def test_unregister_of_a_live_broker_fails(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.connect()
        own = await client.ask(UnregisterBrokerRequest(1), 0)
        other = await client.ask(UnregisterBrokerRequest(7), 0)
        assert own.error_code == ErrorCode.INVALID_REQUEST.code
        assert other.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED.code
        assert 1 in world.broker.metadata.image.brokers

    tell(scenario)


def test_describe_topic_partitions_is_paginated(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("b", 3)
        await world.create("a", 2)
        client = await world.connect()
        request = DescribeTopicPartitionsRequest([], 2000)
        seen = []
        while True:
            answer = await client.ask(request, 0)
            assert sum(len(topic.partitions) for topic in answer.topics) <= 2
            seen += [
                (topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions
            ]
            if answer.next_cursor is None:
                break
            request.cursor = answer.next_cursor
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
        (topic,) = (await client.ask(DescribeTopicPartitionsRequest([TopicRequest("a")]), 0)).topics
        assert (topic.topic_id, topic.topic_authorized_operations) == (world.topic_id("a"), 3576)
        assert [(part.leader_id, part.isr_nodes) for part in topic.partitions] == [(1, [1]), (1, [1])]

    tell(scenario, {"max.request.partition.size.limit": "2"})


def test_no_reassignments_in_progress(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t", 2)
        answer = await (await world.connect()).ask(moves.ListPartitionReassignmentsRequest(), 0)
        assert (answer.error_code, answer.topics) == (0, [])

    tell(scenario)


def broken_sync(_: object) -> "asyncio.Future[int]":
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_exception(StorageFailed("the disk is broken"))
    return future


def test_failed_metadata_log_rejects_changes_and_serves_reads(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("t")
        client = await world.connect()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.disk, "sync", broken_sync)
            (failed,) = (await client.ask(CreateTopicsRequest([CreatableTopic("u", 1, 1)]), 7)).topics
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR.code
        (created,) = (await client.ask(CreateTopicsRequest([CreatableTopic("u", 1, 1)]), 7)).topics
        (deleted,) = (await client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)).responses
        resource = AlterConfigsResource(TOPIC, "t", [AlterableConfig("segment.ms", "7")])
        (altered,) = (await client.ask(AlterConfigsRequest([resource]), 2)).responses
        for result in (created, deleted, altered):
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR.code
            assert "the metadata log cannot be written" in result.error_message
        described = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", None)])
        assert (await client.ask(described, 4)).results[0].error_code == 0

    tell(scenario)
