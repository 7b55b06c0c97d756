"""Cases of topics, configs and the cluster: the requests of administrators and their tools."""

from dataclasses import dataclass

from runnel.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_partitions,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    update_features,
)
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from runnel.messages.sasl_authenticate import SaslAuthenticateRequest
from runnel.messages.sasl_handshake import SaslHandshakeRequest
from tools.differential.comparison import BrokerPair
from tools.differential.topics import create, new_topic

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
FEATURES = "api_keys supported_features finalized_features finalized_features_epoch"
"""Capabilities in which the two differ for now."""


def check_topics(pair: BrokerPair) -> None:
    """Creation, growth, metadata, deletion."""
    for version in range(5):
        for name in ("broker", "", "-broker"):
            request = ApiVersionsRequest(name, "1.0")
            pair.check(f"api versions: software {name!r}", request, version, ignore=FEATURES)
    for version in range(2, 8):
        _create(pair, version)
    _grow(pair, create(pair, new_topic("growing")))
    _look(pair, create(pair, new_topic("looked-at")))
    _delete(pair)


def _create(pair: BrokerPair, version: int) -> None:
    def assigned(*replicas: list[int], gap: int = 0) -> CreatableTopic:
        parts = [CreatableReplicaAssignment(index + gap, brokers) for index, brokers in enumerate(replicas)]
        return CreatableTopic(f"assigned-{version}", -1, -1, parts)

    name = f"new-{version}"
    for case, topic in (
        ("a new one", new_topic(name)),
        ("one that exists", new_topic(name)),
        ("defaults", new_topic(f"default-{version}", -1, -1)),
        ("no partitions", new_topic("bad", 0)),
        ("too many replicas", new_topic("bad", 1, 2)),
        ("no replicas", new_topic("bad", 1, 0)),
        ("a name with a slash", new_topic("a/b")),
        ("no name", new_topic("")),
        ("a name of dots", new_topic("..")),
        ("a long name", new_topic("x" * 250)),
        (
            "a name that looks like another",
            new_topic(name.replace("-", "_")) if version == 2 else new_topic(name),
        ),
        ("an unknown setting", new_topic("bad", nonsense="1")),
        ("a bad setting", new_topic("bad", retention_ms="soon")),
        ("a setting without a value", new_topic("bad", retention_ms=None)),
        ("given replicas", assigned([1], [1])),
        ("replicas on a broker that does not exist", assigned([7])),
        ("replicas with a gap", assigned([1], gap=1)),
        ("replicas that repeat", assigned([1, 1])),
    ):
        pair.check(f"create topic: {case}", CreateTopicsRequest([topic], 10_000), version, ignore="configs")
    twice = CreateTopicsRequest([new_topic("twice"), new_topic("twice")], 10_000)
    pair.check("create topic: one twice", twice, version, ignore="configs")
    tried = CreateTopicsRequest([new_topic("tried")], 10_000, True)
    pair.check("create topic: only try", tried, version, ignore="configs")


def _grow(pair: BrokerPair, topic: str) -> None:
    def grown(
        count: int, *replicas: list[int], name: str = topic
    ) -> create_partitions.CreatePartitionsRequest:
        placed = [create_partitions.CreatePartitionsAssignment(brokers) for brokers in replicas] or None
        wanted = create_partitions.CreatePartitionsTopic(name, count, placed)
        return create_partitions.CreatePartitionsRequest([wanted], 5_000)

    count = 2
    for version in range(4):
        count += 1
        pair.check("create partitions: one more", grown(count), version)
        pair.settle()
        for case, request in (
            ("none", grown(count)),
            ("fewer", grown(1)),
            ("a negative number", grown(-3)),
            ("too many places", grown(count + 1, [1], [1])),
            ("a broker that does not exist", grown(count + 1, [7])),
            ("a topic that does not exist", grown(5, name="nowhere")),
        ):
            pair.check(f"create partitions: {case}", request, version)
    for election in (0, 1):
        asked = [elect_leaders.TopicPartitions(topic, [0, 1]), elect_leaders.TopicPartitions("nowhere", [0])]
        elected = elect_leaders.ElectLeadersRequest(election, asked, 3_000)
        pair.check(f"elect leaders: of type {election}", elected, range(1 if election else 0, 3))
    for replicas in ([1], None, [9], [1, 1], [], [-1]):
        moved = alter_partition_reassignments.ReassignablePartition(0, replicas)
        named = alter_partition_reassignments.ReassignableTopic(topic, [moved])
        moving = alter_partition_reassignments.AlterPartitionReassignmentsRequest(3_000, topics=[named])
        pair.check(f"reassign: to {replicas}", moving, range(2))
    pair.check("reassign: list", list_partition_reassignments.ListPartitionReassignmentsRequest(3_000), 0)


def _look(pair: BrokerPair, topic: str) -> None:
    def named(*names: str, **options: bool) -> metadata.MetadataRequest:
        return metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(name=name) for name in names], **options
        )

    versions = range(14)
    pair.check("metadata: a topic, named twice", named(topic, topic), versions)
    pair.check("metadata: invalid names", named("a/b", ""), versions)
    pair.check("metadata: none", metadata.MetadataRequest([]), range(1, 14))
    forbidden = named("nowhere", allow_auto_topic_creation=False)
    pair.check("metadata: a topic that does not exist", forbidden, range(4, 14))
    allowed = named(topic, include_topic_authorized_operations=True)
    pair.check("metadata: what is allowed", allowed, range(8, 14))
    unknown = metadata.MetadataRequest([metadata.MetadataRequestTopic(b"\x07" * 16, topic)])
    pair.check("metadata: an id that does not exist", unknown, (12, 13))
    for version in (0, 4, 13):
        pair.check("metadata: a topic that is created", named(f"auto-{version}"), version)
        pair.settle()
        pair.check("metadata: an auto-created topic", named(f"auto-{version}"), version)

    def page(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        request = describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(name) for name in names], limit
        )
        request.cursor = describe_topic_partitions.Cursor(*cursor) if cursor else None
        case = f"describe topics: {names}, {limit} from {cursor}"
        pair.check(case, request, 0, ignore="topic_authorized_operations")

    page(topic)
    page("nowhere", topic)
    page(topic, limit=1)
    page(topic, cursor=(topic, 1))
    page(topic, cursor=(topic, -1))
    page("a/b")


def _delete(pair: BrokerPair) -> None:
    for version in range(1, 7):
        topic = create(pair, new_topic(f"deleted-{version}"))

        def deletion(*names: str, version: int = version) -> delete_topics.DeleteTopicsRequest:
            if version < 6:
                return delete_topics.DeleteTopicsRequest(topic_names=list(names), timeout_ms=5_000)
            states = [delete_topics.DeleteTopicState(name) for name in names]
            return delete_topics.DeleteTopicsRequest(states, timeout_ms=5_000)

        pair.check("delete topic", deletion(topic), version)
        pair.settle()
        pair.check("delete topic: again", deletion(topic), version)
        pair.check("delete topic: invalid names", deletion("a/b", ""), version)
        pair.check("delete topic: none", deletion(), version)
    unknown = [delete_topics.DeleteTopicState(None, b"\x07" * 16), delete_topics.DeleteTopicState(None)]
    deletion_by_id = delete_topics.DeleteTopicsRequest(unknown, timeout_ms=5_000)
    pair.check("delete topic: ids that are not there", deletion_by_id, 6)


@dataclass(slots=True)
class Settings:
    """Describes and alters configs on both brokers."""

    pair: BrokerPair

    def look(self, kind: int, name: str, *keys: str) -> None:
        resource = describe_configs.DescribeConfigsResource(kind, name, list(keys) or None)
        request = describe_configs.DescribeConfigsRequest([resource])
        self.pair.check(f"describe configs: {kind} {name!r} {keys}", request, range(1, 5))

    def change(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> None:
        entries = [incremental_alter_configs.AlterableConfig(*change) for change in changes]
        resource = incremental_alter_configs.AlterConfigsResource(kind, name, entries)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        self.pair.check(f"change configs: {kind} {name!r} {changes}", request, range(2))
        self.pair.settle()


def check_settings(pair: BrokerPair) -> None:
    """Configs of topics, brokers, groups and metrics."""
    topic = create(pair, new_topic("settings"))
    settings = Settings(pair)
    look, change = settings.look, settings.change
    look(TOPIC, topic, "retention.ms", "cleanup.policy", "max.message.bytes", "nonsense")
    for kind, name in (
        (TOPIC, "nowhere"),
        (TOPIC, "a/b"),
        (BROKER, "77"),
        (BROKER, "x"),
        (3, "x"),
        (GROUP, ""),
    ):
        look(kind, name)
    look(GROUP, "some group")
    change(TOPIC, topic, ("retention.ms", SET, "1000"))
    change(TOPIC, topic, ("cleanup.policy", APPEND, "compact"))
    look(TOPIC, topic, "retention.ms", "cleanup.policy")
    change(TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"))
    look(TOPIC, topic, "cleanup.policy")
    change(TOPIC, topic, ("retention.ms", DELETE, None), ("cleanup.policy", DELETE, None))
    look(TOPIC, topic, "retention.ms", "cleanup.policy")
    for name, operation, value in (
        ("retention.ms", APPEND, "5"),
        ("retention.ms", SET, None),
        ("retention.ms", SET, "soon"),
        ("cleanup.policy", SET, "never"),
        ("min.cleanable.dirty.ratio", SET, "2"),
        ("preallocate", SET, "yes"),
        ("nonsense", SET, "1"),
        ("nonsense", DELETE, None),
    ):
        change(TOPIC, topic, (name, operation, value))
    change(TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    change(TOPIC, "nowhere", ("retention.ms", SET, "1"))
    change(BROKER, "1", ("message.max.bytes", SET, "2000000"))
    look(BROKER, "1", "num.partitions", "message.max.bytes")
    change(BROKER, "1", ("message.max.bytes", DELETE, None))
    change(BROKER, "1", ("num.partitions", SET, "7"))
    change(BROKER, "77", ("message.max.bytes", SET, "2000000"))
    change(GROUP, "some group", ("consumer.session.timeout.ms", SET, "50000"))
    change(GROUP, "some group", ("consumer.session.timeout.ms", SET, "5"))
    change(METRICS, "some metrics", ("interval.ms", SET, "5000"))
    for version in range(2):
        pair.check("list config resources", list_config_resources.ListConfigResourcesRequest(), version)
    _replace(pair, topic)


def _replace(pair: BrokerPair, topic: str) -> None:
    for name, value in (
        ("retention.ms", "1000"),
        ("retention.ms", "soon"),
        ("nonsense", "1"),
        ("retention.ms", None),
    ):
        entries = [alter_configs.AlterableConfig(name, value)]
        resource = alter_configs.AlterConfigsResource(TOPIC, topic, entries)
        request = alter_configs.AlterConfigsRequest([resource])
        pair.check(f"replace configs: {name}={value}", request, range(3))


def check_cluster(pair: BrokerPair) -> None:
    """The cluster, its quorum and features; quotas and credentials; what a plaintext listener refuses."""
    pair.check("cluster: describe", describe_cluster.DescribeClusterRequest(True), range(3))
    pair.check("cluster: controllers", describe_cluster.DescribeClusterRequest(False, 2), range(1, 3))
    nowhere = describe_quorum.TopicData("nowhere", [describe_quorum.PartitionData(0)])
    pair.check("quorum: of another topic", describe_quorum.DescribeQuorumRequest([nowhere]), range(3))
    for feature, level in (("nonsense", 1), ("metadata.version", 30), ("metadata.version", 99)):
        update = update_features.FeatureUpdateKey(feature, level)
        request = update_features.UpdateFeaturesRequest(feature_updates=[update])
        pair.check(f"features: {feature} {level}", request, range(3), ignore="error_message")
    asked = [describe_log_dirs.DescribableLogDirTopic("nowhere", [0])]
    pair.check(
        "log dirs: a topic that does not exist", describe_log_dirs.DescribeLogDirsRequest(asked), range(1, 6)
    )
    for version in range(2):
        pair.check("sasl: handshake", SaslHandshakeRequest("PLAIN"), version, client=f"handshake {version}")
        authenticate = SaslAuthenticateRequest(b"\0user\0password")
        pair.check("sasl: authenticate", authenticate, version, client=f"authenticate {version}")
    _check_quotas(pair)
    _check_credentials(pair)


def _check_quotas(pair: BrokerPair) -> None:
    def change(entity: list[tuple[str, str | None]], key: str, value: float, removes: bool = False) -> None:
        named = [alter_client_quotas.EntityData(kind, name) for kind, name in entity]
        entry = alter_client_quotas.EntryData(named, [alter_client_quotas.OpData(key, value, removes)])
        request = alter_client_quotas.AlterClientQuotasRequest([entry])
        pair.check(f"quotas: {entity} {key} {value} {removes}", request, range(2))
        pair.settle()

    def look(*components: tuple[str, int, str | None], strict: bool = False) -> None:
        asked = [describe_client_quotas.ComponentData(*component) for component in components]
        request = describe_client_quotas.DescribeClientQuotasRequest(asked, strict)
        pair.check(f"quotas: {components} {strict}", request, range(2))

    change([("user", "u")], "producer_byte_rate", 1000.0)
    change([("user", "u"), ("client-id", "c")], "request_percentage", 50.5)
    change([("user", None)], "producer_byte_rate", 99.0)
    change([("ip", "127.0.0.1")], "connection_creation_rate", 5.0)
    for strict in (False, True):
        look(("user", 0, "u"), strict=strict)
        look(("user", 1, None), strict=strict)
        look(("user", 2, None), strict=strict)
        look(strict=strict)
    look(("nonsense", 2, None))
    look(("user", 7, None))
    change([("user", "u")], "nonsense", 1.0)
    change([("user", "u")], "producer_byte_rate", -1.0)
    change([("user", "u")], "producer_byte_rate", 1.5)
    change([("nonsense", "u")], "producer_byte_rate", 1.0)
    change([("user", "u")], "producer_byte_rate", 0.0, True)
    # Those that apply to the connections of other checks.
    change([("user", None)], "producer_byte_rate", 0.0, True)
    change([("ip", "127.0.0.1")], "connection_creation_rate", 0.0, True)


def _check_credentials(pair: BrokerPair) -> None:
    def change(name: str, mechanism: int, iterations: int, removes: bool = False) -> None:
        request = alter_user_scram_credentials.AlterUserScramCredentialsRequest()
        if removes:
            deletion = alter_user_scram_credentials.ScramCredentialDeletion(name, mechanism)
            request.deletions = [deletion]
        else:
            added = alter_user_scram_credentials.ScramCredentialUpsertion(
                name, mechanism, iterations, b"salt" * 4, b"p" * 32
            )
            request.upsertions = [added]
        pair.check(f"credentials: {name!r} {mechanism} {iterations} {removes}", request, 0)
        pair.settle()

    for name, mechanism, iterations in (
        ("u", 1, 4096),
        ("u", 1, 100),
        ("u", 1, 10**6),
        ("u", 9, 4096),
        ("", 1, 4096),
    ):
        change(name, mechanism, iterations)
    for names in (["u"], ["unknown"], ["u", "u"], []):
        asked = [describe_user_scram_credentials.UserName(name) for name in names]
        request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(asked)
        pair.check(f"credentials: of {names}", request, 0)
    change("u", 1, 0, True)
    change("u", 1, 0, True)
