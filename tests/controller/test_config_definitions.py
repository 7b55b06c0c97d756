"""Config definitions match those of Kafka 4.3."""

from pathlib import Path
from typing import NamedTuple

import pytest

from runnel.controller.config_broker import BROKER_CONFIGS, is_ignored, unknown_setting
from runnel.controller.config_group import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from runnel.controller.config_topic import TOPIC_CONFIGS
from runnel.controller.config_types import BadConfig, ConfigDefinition, Scope, parse_address_counts

TABLES = {
    "topic": TOPIC_CONFIGS,
    "broker": BROKER_CONFIGS,
    "group": GROUP_CONFIGS,
    "client-metrics": CLIENT_METRICS_CONFIGS,
}
ALL = [definition for table in TABLES.values() for definition in table.values()]

# Intentional differences.
OTHER_DEFAULTS = {
    "node.id": "1",  # Kafka has none; convenient for a single node
    "log.dir": "runnel-data",  # Kafka's is under /tmp, which is not persistent
    "metadata.log.segment.bytes": "8388608",  # the log is truncated after each snapshot, by whole segments
    "socket.send.buffer.bytes": "262144",  # bulk fetches were a tenth faster than with 102400
    "group.coordinator.rebalance.protocols": "classic,consumer",  # the supported protocols
    # Kafka's is GSSAPI, which is not supported: mechanisms are chosen explicitly.
    "sasl.enabled.mechanisms": "",
    "sasl.mechanism.controller.protocol": "",
    "sasl.mechanism.inter.broker.protocol": "",
    # A failure is detected within 1.5 s; Kafka takes 9.
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}
OTHER_TYPES = {"log.dir": "string"}  # one directory
FIXED_HERE = {
    "listeners",
    "listener.security.protocol.map",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.mechanism.inter.broker.protocol",
}
RUNNEL_ONLY = {
    "admin.listeners",
    "audit.log.allowed",
    "audit.log.denials.per.second.max",
    "audit.log.file",
    "audit.log.logger",
    "audit.log.queue.max",
    "audit.log.repeat.interval.ms",
    "audit.log.topic",
    "audit.log.topic.replication.factor",
    "audit.log.topic.retention.ms",
    "broker.reconnect.timeout.ms",
    "cluster.id",
    "controller.quorum.unreachable.election.delay.ms",
    "dedup.keys.max",
    "dedup.window.ms",
    "encryption.enable",
    "encryption.master.key.command",
    "encryption.master.key.file",
    "encryption.master.key.refresh.ms",
    "flush.policy",
    "log.encryption.enable",
    "log.flush.policy",
    "runnel.key.schema.validation",
    "runnel.key.subject.name.strategy",
    "runnel.value.schema.validation",
    "runnel.value.subject.name.strategy",
}
# Kafka accepts these, dynamically or as settings of its authorizer, but does not list them.
UNLISTED = {
    "allow.everyone.if.no.acl.found",
    "super.users",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


class Fact(NamedTuple):
    kind: str
    name: str
    type: str
    importance: str
    scope: str
    default: str


def facts() -> list[Fact]:
    lines = (Path(__file__).parent / "kafka-4.3-configs.txt").read_text("utf-8").splitlines()
    return [Fact(*line.split(" ", 5)) for line in lines if not line.startswith("#")]


def test_every_kafka_config_is_defined_or_ignored() -> None:
    missing = [
        fact.name for fact in facts() if fact.name not in TABLES[fact.kind] and not is_ignored(fact.name)
    ]
    assert missing == []
    assert all(fact.name in TABLES[fact.kind] for fact in facts() if fact.kind != "broker")


def test_definitions_match_kafka() -> None:
    known = {(fact.kind, fact.name): fact for fact in facts()}
    for kind, table in TABLES.items():
        for name, definition in table.items():
            if name in RUNNEL_ONLY | UNLISTED:
                continue
            fact = known[kind, name]
            default = {"-": None, '""': ""}.get(fact.default, fact.default)
            assert definition.default == OTHER_DEFAULTS.get(name, default), name
            assert definition.type.name.lower() == OTHER_TYPES.get(name, fact.type), name
            assert definition.importance.value == fact.importance, name
            is_fixed = fact.scope == "fixed" or name in FIXED_HERE
            assert (definition.scope is Scope.READ_ONLY) == is_fixed, name


def test_ignored_names_are_kafka_configs() -> None:
    names = {fact.name for fact in facts()}
    for name in ("num.io.threads", "num.network.threads", "queued.max.requests"):
        assert name in names
        assert is_ignored(name)
    assert not is_ignored("num.partitions")
    assert not is_ignored("nonsense")


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.name)
def test_every_default_is_valid_and_every_config_documented(definition: ConfigDefinition) -> None:
    definition.parse(definition.default)
    assert definition.documentation.endswith(".")
    assert all(synonym in BROKER_CONFIGS for synonym in definition.synonyms)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("controller.quorum.voters", "1@a:1,2@b", "'2@b' is not of the form id@host:port"),
        ("controller.quorum.voters", "a:1", "'a:1' is not of the form id@host:port"),
        ("controller.quorum.voters", "1@a:1,1@b:1", "node 1 is listed twice"),
        ("controller.quorum.bootstrap.servers", "a:1,b:70000", "'b:70000' is not of the form host:port"),
        ("process.roles", "broker,zookeeper", "must be one of: broker, controller"),
        ("security.inter.broker.protocol", "TLS", "must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("ssl.enabled.protocols", "TLSv1.1", "must be one of: TLSv1.2, TLSv1.3"),
        ("ssl.enabled.protocols", "", "At least one version"),
        ("ssl.keystore.type", "BKS", "must be one of (case insensitive): JKS, PKCS12, PEM"),
        ("ssl.client.auth", "yes", "must be one of: required, requested, none"),
        ("replica.selector.class", "com.example.Nearest", "must be one of"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("cleanup.policy", "compact,wipe", "one of: compact, delete"),
        ("cleanup.policy", "compact,compact", "duplicates"),
        ("compression.type", "brotli", "String must be one of"),
        ("compression.gzip.level", "0", "-1 or 1 to 9"),
        ("preallocate", "yes", "true or false"),
        ("flush.policy", "always", "String must be one of: never, interval, commit"),
        (
            "runnel.value.subject.name.strategy",
            "MyStrategy",
            "String must be one of: TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy",
        ),
        ("leader.replication.throttled.replicas", "0:1,x", "[partitionId]:[brokerId]"),
    ],
)
def test_invalid_values_are_rejected_with_a_reason(name: str, text: str, complaint: str) -> None:
    with pytest.raises(BadConfig) as refused:
        {**BROKER_CONFIGS, **TOPIC_CONFIGS}[name].parse(text)
    assert str(refused.value).startswith(f"Invalid value {text} for configuration {name}: ")
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "text", ["192.0.2.1", "192.0.2.1:", "192.0.2.1:-1", "192.0.2.1:٣", "example.org:5", ":5"]
)
def test_connection_limits_require_ip_addresses(text: str) -> None:
    with pytest.raises(BadConfig, match="address:count pairs"):
        BROKER_CONFIGS["max.connections.per.ip.overrides"].parse(text)


def test_ip_addresses_are_normalized() -> None:
    assert parse_address_counts("192.0.2.1:5, 2001:DB8:0::1:7,,[::1]:0") == {
        "192.0.2.1": 5,
        "2001:db8::1": 7,
        "::1": 0,
    }


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "", []),
        ("cleanup.policy", " compact , delete ", ["compact", "delete"]),
        ("preallocate", "TRUE", True),
        ("compression.gzip.level", "-1", -1),
        ("retention.ms", " -1 ", -1),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("follower.replication.throttled.replicas", "*", ["*"]),
        ("follower.replication.throttled.replicas", "0:1,12:3", ["0:1", "12:3"]),
    ],
)
def test_values_are_parsed(name: str, text: str, value: object) -> None:
    assert TOPIC_CONFIGS[name].parse(text) == value


@pytest.mark.parametrize(
    "text", ["latest", "earliest", "by_duration:P1D", "by_duration:PT1H30M", "by_duration:P1DT2.5S"]
)
def test_valid_share_group_offset_resets(text: str) -> None:
    assert GROUP_CONFIGS["share.auto.offset.reset"].parse(text) == text


@pytest.mark.parametrize("text", ["", "by_duration:P", "by_duration:PT", "by_duration:-P1D", "none"])
def test_invalid_share_group_offset_resets(text: str) -> None:
    with pytest.raises(BadConfig):
        GROUP_CONFIGS["share.auto.offset.reset"].parse(text)


def test_client_metrics_match_known_attributes_only() -> None:
    match = CLIENT_METRICS_CONFIGS["match"]
    assert match.parse("client_id=app-.*,client_software_name=librdkafka")
    with pytest.raises(BadConfig, match="colour=blue"):
        match.parse("client_id=app,colour=blue")


def test_a_typo_gets_a_suggestion() -> None:
    assert unknown_setting("log.retenton.hours").endswith("(did you mean log.retention.hours?)")
    assert unknown_setting("zzz") == "Unknown broker config name: zzz"
