"""Broker configs of the cluster: roles, the metadata quorum, the lifecycle of a broker, and replication."""

from runnel.controller.config_types import (
    BadConfig,
    ConfigType,
    ConfigValue,
    Importance,
    Scope,
    at_least,
    one_of,
    some_of,
    table,
)
from runnel.controller.config_types import broker_config as _row
from runnel.model.security_protocol import SecurityProtocol

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
LIST = ConfigType.LIST
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED, ANY = Scope.READ_ONLY, Scope.CLUSTER_WIDE

BROKER_ROLE, CONTROLLER_ROLE = "broker", "controller"
NO_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def parse_server(text: str, form: str = "host:port") -> tuple[str, int]:
    """(host, port) of `host:port`; BadConfig if it is malformed."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not colon or not _is_number(port) or int(port) > 65535:
        raise BadConfig(f"{text.strip()!r} is not of the form {form}")
    return host, int(port)


def parse_voters(entries: list[str]) -> dict[int, tuple[str, int]]:
    """The addresses by node id of controller.quorum.voters; BadConfig if it is malformed."""
    form = "id@host:port"
    voters = {}
    for entry in entries:
        node_id, _, address = entry.partition("@")
        if not _is_number(node_id.strip()) or ":" not in address:
            raise BadConfig(f"{entry!r} is not of the form {form}")
        if int(node_id) in voters:
            raise BadConfig(f"node {int(node_id)} is listed twice")
        voters[int(node_id)] = parse_server(address, form)
    return voters


def parse_bootstrap_servers(entries: list[str]) -> list[tuple[str, int]]:
    """The addresses of controller.quorum.bootstrap.servers; BadConfig if it is malformed."""
    return [parse_server(entry) for entry in entries]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _voters(value: ConfigValue) -> str | None:
    assert isinstance(value, list)
    try:
        parse_voters(value)
    except BadConfig as error:
        return str(error)
    return None


def _servers(value: ConfigValue) -> str | None:
    assert isinstance(value, list)
    try:
        parse_bootstrap_servers(value)
    except BadConfig as error:
        return str(error)
    return None


CLUSTER_CONFIGS = table(
    # Roles and listeners.
    _row("process.roles", LIST, None, some_of(BROKER_ROLE, CONTROLLER_ROLE), HIGH, FIXED,
         "The roles of this node: broker, controller, or both. If not set, the node is a cluster of one: a "
         "broker that is its own controller."),
    _row("cluster.id", STRING, None, None, HIGH, FIXED,
         "The id of the cluster: 16 bytes in URL-safe Base64, such as `runnel storage random-uuid` prints. "
         "All nodes of a cluster have the same. By default it comes from the data directory or the quorum."),
    _row("controller.listener.names", LIST, None, None, HIGH, FIXED,
         "The names of the listeners of controllers. Brokers connect to the first one."),
    _row("inter.broker.listener.name", STRING, None, None, MEDIUM, FIXED,
         "The listener for connections between brokers; by default that of security.inter.broker.protocol."),
    _row("security.inter.broker.protocol", STRING, "PLAINTEXT", one_of(*SecurityProtocol.__members__),
         MEDIUM, FIXED,
         "The listener for connections between brokers if inter.broker.listener.name is not set."),
    # The quorum of controllers. Its timeouts are shorter than Kafka's, for a failover within a second.
    _row("controller.quorum.voters", LIST, "", _voters, HIGH, FIXED,
         "The controllers of a static quorum, as comma-separated id@host:port."),
    _row("controller.quorum.bootstrap.servers", LIST, "", _servers, HIGH, FIXED,
         "The controllers from which the leader of the quorum is discovered, as comma-separated host:port."),
    _row("controller.quorum.auto.join.enable", BOOLEAN, "false", None, LOW, FIXED,
         "Whether a controller that is not a voter of a dynamic quorum adds itself."),
    _row("controller.quorum.election.timeout.ms", INT, 500, at_least(0), HIGH, FIXED,
         "How long a voter waits for votes before another election; up to twice as long, at random."),
    _row("controller.quorum.election.backoff.max.ms", INT, 500, at_least(0), HIGH, FIXED,
         "The maximum delay of an election after the leader resigned."),
    _row("controller.quorum.fetch.timeout.ms", INT, 1000, at_least(0), HIGH, FIXED,
         "How long a voter waits for the leader before it starts an election. A leader that no majority "
         "fetched from for 1.5 times as long resigns."),
    _row("controller.quorum.unreachable.election.delay.ms", INT, 100, at_least(0), LOW, FIXED,
         "When the connection to the leader of the quorum breaks, the voters try to replace it one after the "
         "other, this long apart, instead of waiting for the fetch timeout. A leader that a majority still "
         "reaches is not replaced. 0 turns this off."),
    _row("controller.quorum.request.timeout.ms", INT, 2000, at_least(0), MEDIUM, FIXED,
         "The timeout of requests between controllers."),
    _row("controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW, FIXED,
         "The delay before a failed request to a controller is repeated."),
    _row("controller.quorum.fetch.max.bytes", INT, 1048576, at_least(1), LOW, FIXED,
         "The maximum size of a fetch of metadata."),
    _row("controller.quorum.fetch.snapshot.max.bytes", INT, 1048576, at_least(1), LOW, FIXED,
         "The maximum size of a fetch of a metadata snapshot."),
    # The lifecycle of a broker.
    _row("broker.heartbeat.interval.ms", INT, 250, at_least(1), MEDIUM, FIXED,
         "The interval of a broker's heartbeats to the active controller."),
    _row("broker.session.timeout.ms", INT, 1500, at_least(1), MEDIUM, FIXED,
         "A broker without a heartbeat for this long is fenced: its partitions elect other leaders."),
    _row("broker.reconnect.timeout.ms", INT, 300, at_least(1), LOW, FIXED,
         "How long a broker whose connection to the controller was closed may take to connect again before "
         "it is fenced. A process that is killed closes its connections, so this is noticed at once. "
         "Specific to Runnel."),
    _row("initial.broker.registration.timeout.ms", INT, 60000, at_least(1), MEDIUM, FIXED,
         "How long a broker tries to register before it exits."),
    _row("controlled.shutdown.enable", BOOLEAN, "true", None, MEDIUM, FIXED,
         "Whether a broker that stops hands over its partitions first."),
    _row("auto.leader.rebalance.enable", BOOLEAN, "true", None, HIGH, FIXED,
         "Whether the controller returns leadership to the preferred replicas."),
    _row("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH, FIXED,
         "The interval at which leadership is returned to the preferred replicas."),
    _row("metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW, FIXED,
         "An active controller with nothing to write appends a record after this long, by whose age other "
         "nodes measure their lag; 0 for never. A node without others appends none."),
    # Replication.
    _row("replica.lag.time.max.ms", LONG, 30000, at_least(1), HIGH, FIXED,
         "A follower that has not caught up for this long leaves the ISR."),
    _row("num.replica.fetchers", INT, 1, at_least(1), HIGH, ANY,
         "The number of connections over which partitions of one leader are fetched at least. All are served "
         "by one thread, so that more of them only help where round trips are slow. Up to four are used "
         "anyway, where a partition would otherwise wait for the response to a fetch of others. A change "
         "applies to partitions whose leader changes from then on."),
    _row("replica.fetch.wait.max.ms", INT, 500, at_least(1), HIGH, FIXED,
         "How long a leader may delay the response to a follower's fetch."),
    _row("replica.fetch.min.bytes", INT, 1, at_least(1), HIGH, FIXED,
         "The minimum size of the response to a follower's fetch, unless it waited long enough."),
    _row("replica.fetch.max.bytes", INT, 1048576, at_least(0), MEDIUM, FIXED,
         "The maximum number of bytes of one partition in a follower's fetch; at least one batch is sent."),
    _row("replica.fetch.response.max.bytes", INT, 10485760, at_least(0), MEDIUM, FIXED,
         "The maximum size of the response to a follower's fetch; at least one batch is sent."),
    _row("replica.fetch.backoff.ms", INT, 1000, at_least(0), MEDIUM, FIXED,
         "The delay before a failed fetch of a partition is repeated."),
    _row("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, at_least(1), HIGH, FIXED,
         "The interval at which high watermarks are stored."),
    _row("replica.selector.class", STRING, None, one_of("", NO_SELECTOR, RACK_AWARE_SELECTOR), MEDIUM, FIXED,
         "Which replica consumers are directed to: the leader, or with Kafka's "
         "RackAwareReplicaSelector one in their rack."),
)  # fmt: skip
