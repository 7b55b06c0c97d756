"""Error codes of the admin APIs, equal to those of Kafka 4.3."""

from typing import Any

import pytest

from runnel.messages import alter_client_quotas as quotas
from runnel.messages import alter_configs as replace
from runnel.messages import alter_partition_reassignments as moves
from runnel.messages import alter_user_scram_credentials as scram
from runnel.messages import create_partitions as grow
from runnel.messages import create_topics as create
from runnel.messages import delete_topics as delete
from runnel.messages import describe_client_quotas as quotas_shown
from runnel.messages import describe_configs as show
from runnel.messages import describe_topic_partitions as pages
from runnel.messages import incremental_alter_configs as alter
from runnel.messages.describe_cluster import DescribeClusterRequest
from runnel.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from runnel.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from runnel.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from runnel.messages.list_config_resources import ListConfigResourcesRequest
from runnel.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from runnel.model.errors import ErrorCode
from runnel.wire import Request, Struct, fields_of
from tests.broker.world import BrokerWorld

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND = 0, 1, 2
OTHER_ID = b"7" * 16


def new(
    name: str, partitions: int = -1, copies: int = -1, assign: Any = (), **configs: str | None
) -> Request:
    topic = create.CreatableTopic(name, partitions, copies)
    topic.assignments = [create.CreatableReplicaAssignment(index, brokers) for index, brokers in assign]
    topic.configs = [
        create.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
    ]
    return create.CreateTopicsRequest([topic])


def more(name: str, count: int, assign: list[list[int]] | None = None) -> Request:
    assignments = None if assign is None else [grow.CreatePartitionsAssignment(brokers) for brokers in assign]
    return grow.CreatePartitionsRequest([grow.CreatePartitionsTopic(name, count, assignments)])


def change(kind: int, name: str, *configs: tuple[str, int, str | None]) -> Request:
    changes = [alter.AlterableConfig(*config) for config in configs]
    return alter.IncrementalAlterConfigsRequest([alter.AlterConfigsResource(kind, name, changes)])


def exactly(kind: int, name: str, key: str, value: str | None) -> Request:
    resource = replace.AlterConfigsResource(kind, name, [replace.AlterableConfig(key, value)])
    return replace.AlterConfigsRequest([resource])


def look(kind: int, name: str) -> Request:
    return show.DescribeConfigsRequest([show.DescribeConfigsResource(kind, name, None)])


def quota(entity: list[tuple[str, str | None]], key: str, value: float) -> Request:
    parts = [quotas.EntityData(*part) for part in entity]
    return quotas.AlterClientQuotasRequest([quotas.EntryData(parts, [quotas.OpData(key, value)])])


def find(*components: tuple[str, int, str | None]) -> Request:
    return quotas_shown.DescribeClientQuotasRequest(
        [quotas_shown.ComponentData(*component) for component in components]
    )


def user(name: str, mechanism: int, iterations: int) -> scram.ScramCredentialUpsertion:
    return scram.ScramCredentialUpsertion(name, mechanism, iterations, b"salt", b"salted")


def users(*upserted: scram.ScramCredentialUpsertion, removed: tuple[tuple[str, int], ...] = ()) -> Request:
    deletions = [scram.ScramCredentialDeletion(*deletion) for deletion in removed]
    return scram.AlterUserScramCredentialsRequest(deletions, list(upserted))


def move(topic: str, index: int, replicas: list[int] | None) -> Request:
    wish = moves.ReassignableTopic(topic, [moves.ReassignablePartition(index, replicas)])
    return moves.AlterPartitionReassignmentsRequest(topics=[wish])


def gone(*states: delete.DeleteTopicState) -> Request:
    return delete.DeleteTopicsRequest(list(states))


STATE = delete.DeleteTopicState

# A topic "a" with three partitions and one "x.y" exist; so does a SCRAM credential of alice.
REQUESTS: list[tuple[Request, int, str]] = [
    (new("a"), 7, "TOPIC_ALREADY_EXISTS"),
    (new("b/d"), 7, "INVALID_TOPIC_EXCEPTION"),
    (new(".."), 7, "INVALID_TOPIC_EXCEPTION"),
    (new(""), 7, "INVALID_TOPIC_EXCEPTION"),
    (new("x_y"), 7, "INVALID_TOPIC_EXCEPTION"),
    (new("__cluster_metadata"), 7, "INVALID_REQUEST"),
    (new("p", 0), 7, "INVALID_PARTITIONS"),
    (new("p", -2), 7, "INVALID_PARTITIONS"),
    (new("p", 1, 0), 7, "INVALID_REPLICATION_FACTOR"),
    (new("p", 1, 3), 7, "INVALID_REPLICATION_FACTOR"),
    (new("p", nonsense="1"), 7, "INVALID_CONFIG"),
    (new("p", retention_ms="soon"), 7, "INVALID_CONFIG"),
    (new("p", retention_ms=None), 7, "INVALID_CONFIG"),
    (new("p", segment_bytes="5"), 7, "INVALID_CONFIG"),
    (new("p", cleanup_policy="wipe"), 7, "INVALID_CONFIG"),
    (new("p", remote_storage_enable="true"), 7, "INVALID_CONFIG"),
    (new("p", 1, -1, [(0, [1])]), 7, "INVALID_REQUEST"),
    (new("p", -1, 1, [(0, [1])]), 7, "INVALID_REQUEST"),
    (new("p", -1, -1, [(0, [1]), (2, [1])]), 7, "INVALID_REPLICA_ASSIGNMENT"),
    (new("p", -1, -1, [(0, [7])]), 7, "INVALID_REPLICA_ASSIGNMENT"),
    (new("p", -1, -1, [(0, [1, 1])]), 7, "INVALID_REPLICA_ASSIGNMENT"),
    (new("p", -1, -1, [(0, [])]), 7, "INVALID_REPLICA_ASSIGNMENT"),
    (more("a", 3), 3, "INVALID_PARTITIONS"),
    (more("a", 2), 3, "INVALID_PARTITIONS"),
    (more("zz", 2), 3, "UNKNOWN_TOPIC_OR_PARTITION"),
    (more("a", 5, [[1]]), 3, "INVALID_REPLICA_ASSIGNMENT"),
    (more("a", 4, [[9]]), 3, "INVALID_REPLICA_ASSIGNMENT"),
    (more("a", 4, []), 3, "INVALID_REPLICA_ASSIGNMENT"),
    (change(TOPIC, "a", ("nonsense", SET, "1")), 1, "INVALID_CONFIG"),
    (change(TOPIC, "zz", ("retention.ms", SET, "1")), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    (change(TOPIC, "a", ("retention.ms", SET, None)), 1, "INVALID_REQUEST"),
    (change(TOPIC, "a", ("retention.ms", APPEND, "1")), 1, "INVALID_CONFIG"),
    (change(TOPIC, "a", ("retention.bytes", DELETE, None)), 1, "NONE"),
    (change(TOPIC, "a", ("segment.ms", SET, "1"), ("segment.ms", SET, "2")), 1, "INVALID_REQUEST"),
    (change(BROKER, "1", ("num.partitions", SET, "5")), 1, "INVALID_REQUEST"),
    (change(BROKER, "1", ("message.max.bytes", SET, "-5")), 1, "INVALID_REQUEST"),
    (change(BROKER, "9", ("message.max.bytes", SET, "5")), 1, "INVALID_REQUEST"),
    (change(BROKER, "x", ("message.max.bytes", SET, "5")), 1, "INVALID_REQUEST"),
    (change(GROUP, "g", ("consumer.session.timeout.ms", SET, "5")), 1, "INVALID_CONFIG"),
    (change(GROUP, "g", ("consumer.nope", SET, "5")), 1, "INVALID_CONFIG"),
    (change(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), 1, "INVALID_REQUEST"),
    (change(METRICS, "m", ("nope", SET, "1")), 1, "INVALID_REQUEST"),
    (change(METRICS, "m", ("interval.ms", SET, "5")), 1, "INVALID_REQUEST"),
    (change(METRICS, "", ("interval.ms", SET, "500")), 1, "INVALID_REQUEST"),
    (change(99, "m", ("interval.ms", SET, "500")), 1, "INVALID_REQUEST"),
    (exactly(TOPIC, "a", "nope", "1"), 2, "INVALID_CONFIG"),
    (exactly(TOPIC, "a", "retention.ms", None), 2, "INVALID_REQUEST"),
    (exactly(TOPIC, "zz", "retention.ms", "1"), 2, "UNKNOWN_TOPIC_OR_PARTITION"),
    (look(TOPIC, "zz"), 4, "UNKNOWN_TOPIC_OR_PARTITION"),
    (look(TOPIC, "b/d"), 4, "INVALID_TOPIC_EXCEPTION"),
    (look(BROKER, "9"), 4, "INVALID_REQUEST"),
    (look(BROKER, "x"), 4, "INVALID_REQUEST"),
    (look(GROUP, ""), 4, "INVALID_REQUEST"),
    (look(METRICS, ""), 4, "INVALID_REQUEST"),
    (look(99, "m"), 4, "INVALID_REQUEST"),
    (quota([], "producer_byte_rate", 1), 1, "INVALID_REQUEST"),
    (quota([("colour", "x")], "producer_byte_rate", 1), 1, "INVALID_REQUEST"),
    (quota([("user", "a"), ("ip", "1.2.3.4")], "connection_creation_rate", 1), 1, "INVALID_REQUEST"),
    (quota([("user", "a")], "nope", 1), 1, "INVALID_REQUEST"),
    (quota([("ip", "1.2.3.4")], "producer_byte_rate", 1), 1, "INVALID_REQUEST"),
    (quota([("user", "a")], "producer_byte_rate", 0), 1, "INVALID_REQUEST"),
    (quota([("user", "a")], "producer_byte_rate", 1.5), 1, "INVALID_REQUEST"),
    (quota([("user", "a")], "request_percentage", 1.5), 1, "NONE"),
    (quota([("user", "")], "producer_byte_rate", 1), 1, "INVALID_REQUEST"),
    (quota([("ip", "not-an-ip")], "connection_creation_rate", 1), 1, "INVALID_REQUEST"),
    (find(("user", 0, None)), 1, "INVALID_REQUEST"),
    (find(("user", 1, "x")), 1, "INVALID_REQUEST"),
    (find(("user", 9, "x")), 1, "INVALID_REQUEST"),
    (find(("user", 0, "a"), ("user", 0, "b")), 1, "INVALID_REQUEST"),
    (find(("user", 2, None), ("ip", 2, None)), 1, "INVALID_REQUEST"),
    (find(("", 0, "a")), 1, "INVALID_REQUEST"),
    (find(("colour", 0, "a")), 1, "UNSUPPORTED_VERSION"),
    (users(user("bob", 1, 4095)), 0, "UNACCEPTABLE_CREDENTIAL"),
    (users(user("bob", 1, 16385)), 0, "UNACCEPTABLE_CREDENTIAL"),
    (users(user("bob", 3, 4096)), 0, "UNSUPPORTED_SASL_MECHANISM"),
    (users(user("", 1, 4096)), 0, "UNACCEPTABLE_CREDENTIAL"),
    (users(removed=(("bob", 0),)), 0, "UNSUPPORTED_SASL_MECHANISM"),
    (users(removed=(("bob", 1),)), 0, "RESOURCE_NOT_FOUND"),
    (users(user("alice", 1, 4096), user("alice", 2, 4096)), 0, "DUPLICATE_RESOURCE"),
    (users(user("alice", 1, 4096), removed=(("alice", 1),)), 0, "DUPLICATE_RESOURCE"),
    (DescribeUserScramCredentialsRequest([UserName("zed")]), 0, "NONE RESOURCE_NOT_FOUND"),
    (DescribeUserScramCredentialsRequest([UserName("alice")] * 2), 0, "NONE DUPLICATE_RESOURCE"),
    (ElectLeadersRequest(0, [TopicPartitions("a", [0])]), 2, "NONE ELECTION_NOT_NEEDED"),
    (ElectLeadersRequest(1, [TopicPartitions("a", [0])]), 2, "NONE ELECTION_NOT_NEEDED"),
    (ElectLeadersRequest(0, [TopicPartitions("a", [9])]), 2, "NONE UNKNOWN_TOPIC_OR_PARTITION"),
    (ElectLeadersRequest(7, [TopicPartitions("a", [0])]), 2, "INVALID_REQUEST INVALID_REQUEST"),
    (move("a", 0, [1]), 1, "NONE NONE"),
    (move("a", 0, [5]), 1, "NONE INVALID_REPLICA_ASSIGNMENT"),
    (move("a", 0, [1, 1]), 1, "NONE INVALID_REPLICA_ASSIGNMENT"),
    (move("a", 0, []), 1, "NONE INVALID_REPLICA_ASSIGNMENT"),
    (move("a", 0, None), 1, "NONE NO_REASSIGNMENT_IN_PROGRESS"),
    (move("zz", 0, [1]), 1, "NONE UNKNOWN_TOPIC_OR_PARTITION"),
    (UpdateFeaturesRequest(60000, [FeatureUpdateKey("nope", 1)]), 1, "INVALID_UPDATE_VERSION"),
    (UpdateFeaturesRequest(60000, [FeatureUpdateKey("nope", 1)]), 2, "INVALID_UPDATE_VERSION"),
    (UpdateFeaturesRequest(60000, [FeatureUpdateKey("metadata.version", 30)]), 2, "NONE"),
    (ListConfigResourcesRequest([99]), 1, "UNSUPPORTED_VERSION"),
    (DescribeQuorumRequest([TopicData("a", [PartitionData(0)])]), 2, "NONE UNKNOWN_TOPIC_OR_PARTITION"),
    (DescribeClusterRequest(False, 2), 1, "MISMATCHED_ENDPOINT_TYPE"),
    (DescribeClusterRequest(False, 9), 1, "UNSUPPORTED_ENDPOINT_TYPE"),
    (
        pages.DescribeTopicPartitionsRequest([pages.TopicRequest("a")], 3, pages.Cursor("a", -3)),
        0,
        "INVALID_REQUEST",
    ),
    (pages.DescribeTopicPartitionsRequest([pages.TopicRequest("zz")], 3), 0, "UNKNOWN_TOPIC_OR_PARTITION"),
    (gone(STATE("zz")), 6, "UNKNOWN_TOPIC_OR_PARTITION"),
    (gone(STATE(None, OTHER_ID)), 6, "UNKNOWN_TOPIC_ID"),
    (gone(STATE("a", OTHER_ID)), 6, "INVALID_REQUEST"),
    (gone(STATE(None)), 6, "INVALID_REQUEST"),
    (gone(STATE("a"), STATE("a")), 6, "INVALID_REQUEST"),
]


def codes(answer: Any) -> list[str]:
    """All error codes of a response, the outermost first."""
    found: list[str] = []
    for field in fields_of(type(answer)):
        value = getattr(answer, field.name)
        if field.name == "error_code":
            found.insert(0, ErrorCode.from_code(value).name)
        elif isinstance(value, list):
            for item in value:
                found += codes(item) if isinstance(item, Struct) else []
    return found


def test_error_codes_equal_kafka(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("a", 3)
        await world.create("x.y")
        client = await world.connect()
        await client.ask(users(user("alice", 1, 4096)), 0)
        version = world.broker.metadata.image.version
        received = [" ".join(codes(await client.ask(request, number))) for request, number, _ in REQUESTS]
        wrong = [
            f"{request!r} v{number}: {ours}, not {theirs}"
            for ours, (request, number, theirs) in zip(received, REQUESTS, strict=True)
            if ours != theirs
        ]
        assert wrong == []
        # Only one of these requests changes a quota.
        assert world.broker.metadata.image.version == version + 1

    tell(scenario)


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_invalid_topic_name_in_every_version(tell, version: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        (topic,) = (await (await world.connect()).ask(new("bad name", 1, 1), version)).topics
        assert (topic.name, topic.error_code) == ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION.code)
        assert "bad name" in topic.error_message

    tell(scenario)
