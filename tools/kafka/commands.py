"""Apache Kafka's command-line tools, as commands to run."""

from functools import lru_cache
from pathlib import Path

from tools.fetch import maven
from tools.fetch.programs import find

VERSION = "4.3.0"
ARTIFACTS = ("kafka_2.13", "kafka-tools", "kafka-streams-examples", "connect-mirror", "connect-file")
"""Broker and tools, and what `make conformance` runs of Streams, Connect and MirrorMaker 2."""
LOGGING = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
"""Kafka's distribution has it as well: without it, no node or tool logs anything."""
PURPOSE = f"run Apache Kafka {VERSION} and its tools"

SHORT_LIVED = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""For programs that run for seconds: they start sooner without the optimising compiler."""

MAIN_CLASSES = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-console-share-consumer": "consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delegation-tokens": "DelegationTokenCommand",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-dump-log": "DumpLogSegments",
    "kafka-e2e-latency": "EndToEndLatency",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-share-consumer-perf-test": "ShareConsumerPerformance",
    "kafka-share-groups": "consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "StreamsResetter",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
    "kafka-verifiable-producer": "VerifiableProducer",
    "transactional-message-copier": "TransactionalMessageCopier",
}
"""Script of Kafka's distribution → its class, below org.apache.kafka.tools unless it starts with kafka."""


@lru_cache
def kafka_jars() -> Path:
    """The folder of Apache Kafka's jars; raises Unavailable if Java is missing or they cannot be fetched."""
    find("java", PURPOSE)
    artifacts = [("org.apache.kafka", artifact, VERSION) for artifact in ARTIFACTS]
    return maven.jars(f"kafka-{VERSION}-logging", [*artifacts, LOGGING], PURPOSE)


def java(main_class: str, *arguments: object, flags: tuple[str, ...] = SHORT_LIVED) -> list[str]:
    """The command that runs a class of Apache Kafka."""
    logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.yaml')}"
    classpath = ["-cp", f"{kafka_jars()}/*"]
    return [find("java", PURPOSE), *flags, logging, *classpath, main_class, *map(str, arguments)]


def tool(script: str, *arguments: object, flags: tuple[str, ...] = SHORT_LIVED) -> list[str]:
    """The command that a script of Kafka's distribution would run."""
    name = MAIN_CLASSES[script]
    main_class = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
    return java(main_class, *arguments, flags=flags)
