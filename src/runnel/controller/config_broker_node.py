"""Broker settings about the node itself: identity, listeners, connections, topics and the metadata log."""

from runnel.controller.config_types import (
    INT_MAX,
    LONG_MAX,
    ConfigType,
    Importance,
    Scope,
    address_counts,
    at_least,
    not_zero,
    table,
)
from runnel.controller.config_types import broker_config as _row

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
LIST, SHORT = ConfigType.LIST, ConfigType.SHORT
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED, ANY = Scope.READ_ONLY, Scope.CLUSTER_WIDE

NODE_CONFIGS = table(
    # Who and where this node is.
    _row("node.id", INT, 1, at_least(0), HIGH, FIXED,
         "The number of this node; no other node of the cluster may have it."),
    _row("broker.id", INT, -1, None, HIGH, FIXED,
         "The older name of node.id, for settings files that still use it."),
    _row("broker.rack", STRING, None, None, MEDIUM, FIXED,
         "Which rack or zone this node stands in, so that copies of a partition do not share one fate."),
    _row("listeners", LIST, "PLAINTEXT://:9092", None, HIGH, FIXED,
         "Where the node listens, as NAME://host:port; no host means every address, port 0 means a "
         "free one."),
    _row("advertised.listeners", LIST, None, None, HIGH, FIXED,
         "Where clients are told to connect, if that is not where the node listens."),
    _row("listener.security.protocol.map", STRING,
         "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None, LOW, FIXED,
         "Which security protocol each listener name speaks."),
    _row("log.dirs", LIST, None, None, HIGH, FIXED,
         "The folder that holds the data; log.dir counts when this is not set."),
    _row("log.dir", STRING, "runnel-data", None, HIGH, FIXED,
         "The folder that holds the data, when log.dirs does not say."),
    # Connections and requests.
    _row("socket.send.buffer.bytes", INT, 262144, at_least(-1), HIGH, FIXED,
         "The socket's send buffer; -1 leaves it to the operating system."),
    _row("socket.receive.buffer.bytes", INT, 102400, at_least(-1), HIGH, FIXED,
         "The socket's receive buffer; -1 leaves it to the operating system."),
    _row("socket.request.max.bytes", INT, 104857600, at_least(1), HIGH, FIXED,
         "The largest request that is read; a larger one closes its connection."),
    _row("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM, FIXED,
         "How many new connections may wait to be accepted."),
    _row("max.connections", INT, INT_MAX, at_least(0), MEDIUM, ANY,
         "How many connections the node holds at a time; more wait until one is closed. When this is "
         "lowered, the longest silent connections are closed."),
    _row("max.connections.per.ip", INT, INT_MAX, at_least(0), MEDIUM, ANY,
         "How many connections one address may hold; more are closed at once."),
    _row("max.connections.per.ip.overrides", STRING, "", address_counts, MEDIUM, ANY,
         "Other limits for single addresses, as address:count pairs with commas between them; names of hosts "
         "are not looked up."),
    _row("max.connection.creation.rate", INT, INT_MAX, at_least(0), MEDIUM, ANY,
         "How many new connections are accepted per second; more wait for their turn."),
    _row("connections.max.idle.ms", LONG, 600000, None, MEDIUM, FIXED,
         "How long a connection may be silent before it is closed; negative is for ever."),
    _row("queued.max.request.bytes", LONG, -1, not_zero, MEDIUM, FIXED,
         "How many bytes of requests may be held at a time; -1 leaves it to the node's own bound."),
    _row("fetch.max.bytes", INT, 57671680, at_least(1024), MEDIUM, FIXED,
         "The most that one fetch is answered with, whatever the client asks for."),
    _row("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM, FIXED,
         "How many incremental fetch sessions are remembered; the longest unused one makes room."),
    _row("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM, FIXED,
         "The most partitions that one DescribeTopicPartitions answer holds."),
    # Topics.
    _row("auto.create.topics.enable", BOOLEAN, "true", None, HIGH, FIXED,
         "Create a topic when a client asks for one that does not exist."),
    _row("num.partitions", INT, 1, at_least(1), MEDIUM, FIXED,
         "How many partitions a topic gets when its creator does not say."),
    _row("default.replication.factor", INT, 1, at_least(1), MEDIUM, FIXED,
         "How many copies a topic gets when its creator does not say."),
    _row("delete.topic.enable", BOOLEAN, "true", None, HIGH, FIXED,
         "Whether topics can be deleted."),
    _row("min.insync.replicas", INT, 1, at_least(1), HIGH, ANY,
         "How many replicas must hold a record before acks=all is answered."),
    _row("unclean.leader.election.enable", BOOLEAN, "false", None, HIGH, ANY,
         "Let a replica that is not in sync become leader when no other is left, and lose what it lacks."),
    # The metadata log.
    _row("metadata.log.max.record.bytes.between.snapshots", LONG, 20971520, at_least(1), HIGH, FIXED,
         "How many bytes the metadata log may grow before its state is written anew and its past dropped."),
    _row("metadata.log.segment.bytes", INT, 8388608, at_least(1048576), HIGH, FIXED,
         "How large a segment of the metadata log grows."),
    # Quotas and throttles.
    _row("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM, ANY,
         "How many bytes per second throttled replicas may be copied from here, all together."),
    _row("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), MEDIUM, ANY,
         "How many bytes per second throttled replicas may copy to here, all together."),
    _row("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, at_least(0), MEDIUM, ANY,
         "How many bytes per second may move between data folders of this node."),
)  # fmt: skip
