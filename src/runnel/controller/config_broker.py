"""All broker configs, and the Kafka configs that have no effect here.

Configs of share and streams groups have no effect yet: they are defined because Kafka's tools set and
describe them, and because group configs are validated against them.
"""

from runnel.controller.config_broker_cluster import CLUSTER_CONFIGS
from runnel.controller.config_broker_groups import (
    GROUP_COORDINATOR_CONFIGS,
    SHARE_CONFIGS,
    STREAMS_CONFIGS,
    TRANSACTION_CONFIGS,
)
from runnel.controller.config_broker_log import LOG_CONFIGS
from runnel.controller.config_broker_node import NODE_CONFIGS
from runnel.controller.config_broker_security import SECURITY_CONFIGS

BROKER_CONFIGS = {
    **NODE_CONFIGS,
    **SECURITY_CONFIGS,
    **CLUSTER_CONFIGS,
    **LOG_CONFIGS,
    **GROUP_COORDINATOR_CONFIGS,
    **TRANSACTION_CONFIGS,
    **SHARE_CONFIGS,
    **STREAMS_CONFIGS,
}

# Kafka configs that a server.properties may contain: they tune threads, buffers, plug-ins or a quorum that
# this broker does not have, and are ignored with a warning. Those that promise protection prevent
# the broker from starting instead: see config_security.
IGNORED_PREFIXES = (
    "add.partitions.to.txn.", "alter.log.dirs.", "confluent.", "controller.", "delegation.token.",
    "kafka.metrics.",
    "leader.imbalance.", "metric", "password.encoder.", "remote.", "replica.", "replication.quota.", "sasl.",
    "security.", "share.coordinator.", "ssl.", "zookeeper.",
)  # fmt: skip
IGNORED_NAMES = frozenset({
    "alter.config.policy.class.name", "background.threads",
    "client.quota.callback.class", "config.providers", "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms", "cordoned.log.dirs", "create.topic.policy.class.name",
    "delete.records.purgatory.purge.interval.requests", "early.start.listeners",
    "fetch.purgatory.purge.interval.requests", "follower.fetch.last.tiered.offset.enable",
    "group.coordinator.append.linger.ms", "group.coordinator.background.threads",
    "group.coordinator.cached.buffer.max.bytes", "group.coordinator.threads", "group.share.assignors",
    "group.share.enable", "group.share.max.assignment.interval.ms", "group.share.min.assignment.interval.ms",
    "group.streams.max.assignment.interval.ms", "group.streams.min.assignment.interval.ms",
    "log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads", "log.dir.failure.timeout.ms",
    "metadata.log.max.snapshot.interval.ms", "metadata.log.segment.ms",
    "metadata.max.retention.bytes", "metadata.max.retention.ms",
    "num.io.threads",
    "num.network.threads", "num.recovery.threads.per.data.dir", "num.replica.alter.log.dirs.threads",
    "offsets.load.buffer.size",
    "principal.builder.class",
    "producer.purgatory.purge.interval.requests", "queued.max.requests", "quota.window.num",
    "quota.window.size.seconds", "request.timeout.ms",
    "share.fetch.purgatory.purge.interval.requests",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
    "telemetry.max.bytes", "transaction.state.log.load.buffer.size", "transaction.two.phase.commit.enable",
})  # fmt: skip


def is_ignored(name: str) -> bool:
    """Whether this is a Kafka config that has no effect here."""
    if name in BROKER_CONFIGS:
        return False
    return name in IGNORED_NAMES or name.startswith((*IGNORED_PREFIXES, "listener.name."))


def unknown_setting(name: str) -> str:
    """The error message for an unknown or ignored config."""
    if is_ignored(name):
        return f"{name} is a Kafka config that has no effect on this broker"
    # Only for people who made a mistake.
    from difflib import get_close_matches

    likely = get_close_matches(name, BROKER_CONFIGS, n=1)
    return f"Unknown broker config name: {name}" + (f" (did you mean {likely[0]}?)" if likely else "")
