"""All broker configs, and the Kafka configs that have no effect here.

Some configs may be set for one listener, and of these some for one SASL mechanism:

    listener.name.<listener, in lower case>.ssl.client.auth
    listener.name.<listener, in lower case>.<mechanism, in lower case>.sasl.jaas.config

Configs of share and streams groups have no effect yet: they are defined because Kafka's tools set and
describe them, and because group configs are validated against them.
"""

from dataclasses import replace

from runnel.controller.config_broker_cluster import CLUSTER_CONFIGS
from runnel.controller.config_broker_encryption import ENCRYPTION_CONFIGS
from runnel.controller.config_broker_groups import (
    GROUP_COORDINATOR_CONFIGS,
    SHARE_CONFIGS,
    STREAMS_CONFIGS,
    TRANSACTION_CONFIGS,
)
from runnel.controller.config_broker_log import LOG_CONFIGS
from runnel.controller.config_broker_node import NODE_CONFIGS
from runnel.controller.config_broker_sasl import (
    IGNORED_SASL_CONFIGS,
    LISTENER_SASL_CONFIGS,
    SASL_CONFIGS,
)
from runnel.controller.config_broker_security import SECURITY_CONFIGS
from runnel.controller.config_broker_ssl import SSL_CONFIGS
from runnel.controller.config_types import ConfigDefinition

BROKER_CONFIGS = {
    **NODE_CONFIGS,
    **SECURITY_CONFIGS,
    **CLUSTER_CONFIGS,
    **LOG_CONFIGS,
    **ENCRYPTION_CONFIGS,
    **GROUP_COORDINATOR_CONFIGS,
    **TRANSACTION_CONFIGS,
    **SHARE_CONFIGS,
    **STREAMS_CONFIGS,
    **SSL_CONFIGS,
    **SASL_CONFIGS,
}

LISTENER_PREFIX = "listener.name."
LISTENER_CONFIGS = frozenset(SSL_CONFIGS) | LISTENER_SASL_CONFIGS
"""What may be set for one listener."""

MECHANISM_CONFIGS = frozenset({
    "connections.max.reauth.ms", "sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class",
    "sasl.server.callback.handler.class",
})  # fmt: skip
"""What may be set for one SASL mechanism of a listener."""

# Kafka configs that a server.properties may contain: they tune threads, buffers, plug-ins or a quorum that
# this broker does not have, and are ignored with a warning. Those that promise protection prevent
# the broker from starting instead: see config_security.
IGNORED_PREFIXES = (
    "add.partitions.to.txn.", "alter.log.dirs.", "confluent.", "controller.", "delegation.token.",
    "kafka.metrics.",
    "leader.imbalance.", "metric", "password.encoder.", "remote.", "replica.", "replication.quota.",
    "security.", "share.coordinator.", "zookeeper.",
)  # fmt: skip
IGNORED_NAMES = frozenset({
    "alter.config.policy.class.name", "background.threads",
    "client.quota.callback.class", "config.providers",
    "cordoned.log.dirs", "create.topic.policy.class.name",
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
    "producer.purgatory.purge.interval.requests", "queued.max.requests",
    "request.timeout.ms",
    "share.fetch.purgatory.purge.interval.requests",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
    "ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
    "telemetry.max.bytes", "transaction.state.log.load.buffer.size", "transaction.two.phase.commit.enable",
})  # fmt: skip


def is_ignored(name: str) -> bool:
    """Whether this is a Kafka config that has no effect here."""
    if broker_definition(name) is not None:
        return False
    own_name = own_name_of(name)
    if own_name != name and not own_name.startswith(("ssl.", "sasl.")):
        return True
    return own_name in IGNORED_NAMES | IGNORED_SASL_CONFIGS or own_name.startswith(IGNORED_PREFIXES)


def own_name_of(name: str) -> str:
    """The name of a config without the prefix of a listener and a SASL mechanism."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    own_name = name[len(LISTENER_PREFIX) :].partition(".")[2]
    unprefixed = own_name.partition(".")[2]
    return unprefixed if unprefixed in MECHANISM_CONFIGS else own_name


def broker_definition(name: str) -> ConfigDefinition | None:
    """The definition of a broker config, or of one with the prefix of a listener, which has no default."""
    definition = BROKER_CONFIGS.get(name)
    if definition is not None or not name.startswith(LISTENER_PREFIX):
        return definition
    own_name = own_name_of(name)
    if own_name not in LISTENER_CONFIGS:
        return None
    return replace(BROKER_CONFIGS[own_name], name=name, default=None)


def is_sensitive(name: str) -> bool:
    """Whether the value of a config must not be shown. What is not known may be a secret."""
    definition = broker_definition(name)
    return name not in IGNORED_NAMES and (definition is None or definition.is_sensitive)


def unknown_setting(name: str) -> str:
    """The error message for an unknown or ignored config."""
    if is_ignored(name):
        return f"{name} is a Kafka config that has no effect on this broker"
    # Imported only when a setting is misspelt.
    from difflib import get_close_matches

    likely = get_close_matches(name, BROKER_CONFIGS, n=1)
    return f"Unknown broker config name: {name}" + (f" (did you mean {likely[0]}?)" if likely else "")
