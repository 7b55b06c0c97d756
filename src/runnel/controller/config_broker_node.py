"""Broker configs of the node: identity, listeners, connections, topics and the metadata log."""

from runnel.controller.config_types import (
    INT_MAX,
    LONG_MAX,
    ConfigType,
    Importance,
    Scope,
    address_counts,
    addresses_or,
    at_least,
    not_zero,
    table,
)
from runnel.controller.config_types import broker_config as _row

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
LIST, SHORT = ConfigType.LIST, ConfigType.SHORT
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED, ANY = Scope.READ_ONLY, Scope.CLUSTER_WIDE

ADMIN_LISTENERS = "admin.listeners"
ADMIN_PORT = 9644
OFF = "off"

NODE_CONFIGS = table(
    # Identity and listeners.
    _row("node.id", INT, 1, at_least(0), HIGH, FIXED,
         "The id of this node, unique in the cluster."),
    _row("broker.id", INT, -1, None, HIGH, FIXED,
         "The former name of node.id."),
    _row("broker.rack", STRING, None, None, MEDIUM, FIXED,
         "The rack or availability zone of this node, used for rack-aware replica placement."),
    _row("listeners", LIST, "PLAINTEXT://:9092", None, HIGH, FIXED,
         "The listeners, as NAME://host:port. An empty host binds to all interfaces, port 0 to a free port."),
    _row("advertised.listeners", LIST, None, None, HIGH, FIXED,
         "The listeners that are published to clients, if different from listeners."),
    _row(ADMIN_LISTENERS, LIST, f"127.0.0.1:{ADMIN_PORT}", addresses_or(OFF), MEDIUM, FIXED,
         "The addresses, as host:port, at which metrics and health are served by HTTP without "
         "authentication; off for none. If the default one is in use, there are none. DescribeConfigs "
         "returns the addresses that are bound."),
    _row("listener.security.protocol.map", STRING,
         "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None, LOW, FIXED,
         "The security protocol of each listener name."),
    _row("log.dirs", LIST, None, None, HIGH, FIXED,
         "The data directory; log.dir applies if this is not set."),
    _row("log.dir", STRING, "runnel-data", None, HIGH, FIXED,
         "The data directory, if log.dirs is not set."),
    _row("metadata.log.dir", STRING, None, None, HIGH, FIXED,
         "The directory of the metadata log, which must be the data directory."),
    # Connections and requests.
    _row("socket.send.buffer.bytes", INT, 262144, at_least(-1), HIGH, FIXED,
         "The SO_SNDBUF of sockets; -1 for the default of the operating system."),
    _row("socket.receive.buffer.bytes", INT, 102400, at_least(-1), HIGH, FIXED,
         "The SO_RCVBUF of sockets; -1 for the default of the operating system."),
    _row("socket.request.max.bytes", INT, 104857600, at_least(1), HIGH, FIXED,
         "The maximum size of a request; a larger one closes the connection."),
    _row("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM, FIXED,
         "The maximum number of pending connections."),
    _row("max.connections", INT, INT_MAX, at_least(0), MEDIUM, ANY,
         "The maximum number of connections; new ones wait until another is closed. If this is lowered, the "
         "connections that have been idle longest are closed."),
    _row("max.connections.per.ip", INT, INT_MAX, at_least(0), MEDIUM, ANY,
         "The maximum number of connections per IP address; further ones are closed."),
    _row("max.connections.per.ip.overrides", STRING, "", address_counts, MEDIUM, ANY,
         "Overrides of max.connections.per.ip, as comma-separated address:count pairs; host names are not "
         "resolved."),
    _row("max.connection.creation.rate", INT, INT_MAX, at_least(0), MEDIUM, ANY,
         "The maximum rate of new connections per second; further ones are delayed."),
    _row("connections.max.idle.ms", LONG, 600000, None, MEDIUM, FIXED,
         "The idle time after which a connection is closed; negative for no limit."),
    _row("queued.max.request.bytes", LONG, -1, not_zero, MEDIUM, FIXED,
         "The maximum number of queued request bytes; -1 for the built-in limit."),
    _row("fetch.max.bytes", INT, 57671680, at_least(1024), MEDIUM, FIXED,
         "The maximum size of a fetch response."),
    _row("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM, FIXED,
         "The maximum number of incremental fetch sessions; the least recently used one is evicted."),
    _row("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM, FIXED,
         "The maximum number of partitions in a DescribeTopicPartitions response."),
    # Topics.
    _row("auto.create.topics.enable", BOOLEAN, "true", None, HIGH, FIXED,
         "Enables automatic topic creation."),
    _row("num.partitions", INT, 1, at_least(1), MEDIUM, FIXED,
         "The default number of partitions of a topic."),
    _row("default.replication.factor", INT, 1, at_least(1), MEDIUM, FIXED,
         "The default replication factor of a topic."),
    _row("delete.topic.enable", BOOLEAN, "true", None, HIGH, FIXED,
         "Enables topic deletion."),
    _row("min.insync.replicas", INT, 1, at_least(1), HIGH, ANY,
         "The number of in-sync replicas that acks=all requires."),
    _row("unclean.leader.election.enable", BOOLEAN, "false", None, HIGH, ANY,
         "Allows out-of-sync replicas to be elected leader as a last resort, which may lose data."),
    # The metadata log.
    _row("metadata.log.max.record.bytes.between.snapshots", LONG, 20971520, at_least(1), HIGH, FIXED,
         "The number of bytes written to the metadata log after which a snapshot is taken."),
    _row("metadata.log.segment.bytes", INT, 8388608, at_least(1048576), HIGH, FIXED,
         "The segment size of the metadata log."),
    # Quotas and throttles.
    _row("quota.window.num", INT, 11, at_least(1), LOW, FIXED,
         "The number of samples from which the rates of client quotas are computed."),
    _row("quota.window.size.seconds", INT, 1, at_least(1), LOW, FIXED,
         "The time span of each sample of client quotas."),
    _row("controller.quota.window.num", INT, 11, at_least(1), LOW, FIXED,
         "The number of samples that a client's controller_mutation_rate may save."),
    _row("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW, FIXED,
         "The time span of each sample of controller_mutation_rate."),
    _row("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM, ANY,
         "The outbound replication rate limit of throttled replicas, in bytes per second."),
    _row("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM, ANY,
         "The inbound replication rate limit of throttled replicas, in bytes per second."),
    _row("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, at_least(0), MEDIUM, ANY,
         "The rate limit of moves between log directories, in bytes per second."),
)  # fmt: skip
