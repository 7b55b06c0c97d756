"""The broker: the state and ports that handlers use, assembled by the server or the simulator."""

from asyncio import Task
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from runnel.broker.runtime.bug_reports import BugReports
from runnel.broker.runtime.controller_channel import ControllerChannel
from runnel.broker.runtime.elections import Elections
from runnel.broker.runtime.fetch_sessions import FetchSessions
from runnel.broker.runtime.follower_sessions import FollowerSessions
from runnel.broker.runtime.gates import Gates
from runnel.broker.runtime.links import Links, NoPeers
from runnel.broker.runtime.log_verification import LogVerification
from runnel.broker.runtime.producer_ids import ProducerIds
from runnel.broker.runtime.promise import Promise, in_task
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.replication import Replication
from runnel.broker.runtime.suspects import Suspects
from runnel.broker.runtime.topic_creation import AutoCreation
from runnel.broker.runtime.topic_metadata import TopicMetadataCache
from runnel.broker.runtime.turn import Turn
from runnel.broker.runtime.waiting import Waiting
from runnel.controller.settings import Settings
from runnel.controller.token_ids import TokenIds
from runnel.controller.values import Endpoint
from runnel.messages.registry import API_NAMES
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.model.pauses import LoopPauses
from runnel.observe.counters import EventCounts, RequestCounts, Traffic
from runnel.ports.clock import Clock, Timers
from runnel.ports.disk import Disk
from runnel.ports.entropy import Entropy
from runnel.ports.peers import Peers
from runnel.ports.service import Session
from runnel.replica.replica import Replica
from runnel.schemas.metadata import MetadataRecord

if TYPE_CHECKING:
    from runnel.broker.runtime.controller_duties import ControllerDuties
    from runnel.broker.runtime.group_coordinator import GroupCoordinator
    from runnel.broker.runtime.lifecycle import BrokerLifecycle
    from runnel.broker.runtime.metadata_log import MetadataLog
    from runnel.broker.runtime.own_configs import ValidateConfigs
    from runnel.broker.runtime.quorum_log import QuorumLog
    from runnel.broker.runtime.schema_validation import SchemaValidation
    from runnel.broker.runtime.transaction_coordinator import TransactionCoordinator

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Broker:
    """A node: its identity, its ports, and the drivers of its cores."""

    node_id: int
    cluster_id: str
    host: str
    """The advertised address of the listener for other brokers."""
    port: int
    clock: Clock
    timers: Timers
    disk: Disk
    entropy: Entropy
    settings: Settings
    """Every broker setting by Kafka's name, resolved and typed: settings["num.partitions"] is an int."""
    rack: str | None = None
    listener: str = "PLAINTEXT"
    """The listener for other brokers."""
    endpoints: tuple[Endpoint, ...] = ()
    """The advertised addresses of the listeners of the broker."""
    controller_endpoints: tuple[Endpoint, ...] = ()
    """The advertised addresses of the listeners of the controller."""
    controller_listeners: frozenset[str] = frozenset()
    """The listeners for the requests of brokers to controllers, and of controllers to each other."""
    peers: Peers = field(default_factory=NoPeers)
    """Connections to the listener for other brokers."""
    controller_peers: Peers | None = None
    """Connections to the listener of controllers, if they differ from those to brokers."""
    validate_configs: "ValidateConfigs | None" = None
    """Validates changes of the configs of this broker's listeners."""
    formatted: tuple[MetadataRecord, ...] = ()
    """The first records of a new cluster, if its directory was formatted with some."""
    epoch: int = -1
    """The broker epoch of the registration; -1 before."""
    partitions: dict[TopicPartition, ReplicatedLog] = field(default_factory=dict)
    partition_at: Mapping[tuple[str, int], ReplicatedLog] = field(init=False)
    """`partitions` by plain tuples, for lookups without a TopicPartition."""
    turn: Turn = field(init=False)
    waiting: Waiting = field(init=False)
    fetch_sessions: FetchSessions = field(init=False)
    producer_ids: ProducerIds = field(init=False)
    suspects: Suspects = field(init=False)
    """Brokers that have probably failed."""
    links: Links = field(init=False)
    """Channels to the other brokers."""
    controller: ControllerChannel = field(init=False)
    """Requests to the active controller."""
    auto_creation: AutoCreation = field(init=False)
    """Creation of topics on first use."""
    elections: Elections = field(init=False)
    """Partitions that reject writes until this node leads them in a new epoch."""
    role_watchers: list[Callable[[TopicPartition], None]] = field(default_factory=list)
    """Called when this node begins or ceases to lead a partition of an internal topic, or an epoch of it."""
    replication: Replication = field(init=False)
    """The partitions that this node leads for others, and those that it follows."""
    verification: LogVerification = field(init=False)
    """Verification of replicas in the background."""
    follower_sessions: FollowerSessions = field(init=False)
    """Fetch sessions of followers."""
    lost_records_watchers: list[Callable[[TopicPartition], None]] = field(default_factory=list)
    """Called when a replica with others may have lost committed records: the broker must leave the ISRs."""
    token_ids: TokenIds = field(default_factory=TokenIds)
    """Delegation tokens by HMAC."""
    topic_metadata: TopicMetadataCache = field(default_factory=TopicMetadataCache)
    gates: Gates = field(default_factory=Gates)
    """Authentication, authorization, quotas and accounting, which every request passes."""
    bugs: BugReports = field(init=False)
    """Where unexpected exceptions are logged."""
    loop_pauses: LoopPauses = field(default_factory=LoopPauses)
    """Histogram of event loop pauses, sampled by the composition root."""
    traffic: Traffic = field(default_factory=Traffic)
    """What was written to topics, and read from them."""
    requests: RequestCounts = field(init=False)
    """The durations and errors of requests."""
    events: EventCounts = field(default_factory=EventCounts)
    admin_addresses: tuple[str, ...] = ()
    """The addresses of the admin listener, as host:port; none if it is off."""
    serve_forwarded: Callable[[memoryview, Session], Promise[memoryview | None]] = field(init=False)
    """Serves a request that another broker forwarded, through the request pipeline."""
    quorum: "QuorumLog" = field(init=False)
    """The metadata log, replicated by the quorum of controllers."""
    duties: "ControllerDuties" = field(init=False)
    """What this node does as the active controller."""
    contact_ms: int | None = None
    """When the last heartbeat that the controller answered was sent."""
    lifecycle: "BrokerLifecycle" = field(init=False)
    """The registration and the session of this broker."""
    metadata: "MetadataLog" = field(init=False)
    """Cluster metadata: `image` to read, `change` to decide against it."""
    groups: "GroupCoordinator" = field(init=False)
    """The group coordinator."""
    transactions: "TransactionCoordinator" = field(init=False)
    """The transaction coordinator."""

    _schema_validation: "SchemaValidation | None" = None
    _tasks: set[Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.partition_at = cast("Mapping[tuple[str, int], ReplicatedLog]", self.partitions)
        self.bugs = BugReports(self.clock)
        self.requests = self.gates.accounting = RequestCounts(list(API_NAMES), self.clock.seconds)
        self.turn = Turn(self.timers)
        self.waiting = Waiting(self.timers)
        self.producer_ids = ProducerIds(self)
        self.suspects = Suspects(self)
        self.links = Links(self)
        self.controller = ControllerChannel(self)
        self.auto_creation = AutoCreation(self)
        self.elections = Elections(self)
        self.replication = Replication(self)
        self.verification = LogVerification(self)
        self.follower_sessions = FollowerSessions(self)
        slots_max = self.settings["max.incremental.fetch.session.cache.slots"]
        self.fetch_sessions = FetchSessions(slots_max, self.clock, self.entropy)

    @property
    def schema_validation(self) -> "SchemaValidation":
        """Validates the batches of topics that demand schemas."""
        if self._schema_validation is None:
            # Most brokers need none of it.
            from runnel.broker.runtime.schema_validation import SchemaValidation

            self._schema_validation = SchemaValidation(self)
        return self._schema_validation

    @property
    def to_controllers(self) -> Peers:
        """Connections to the listener of controllers."""
        return self.peers if self.controller_peers is None else self.controller_peers

    def endpoint(self, listener: str) -> Endpoint:
        """This broker's advertised address of a listener."""
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return Endpoint(self.listener, self.host, self.port)

    @property
    def may_be_fenced(self) -> bool:
        """Was the controller silent for a session timeout? Then other brokers may lead what this one led."""
        if self.contact_ms is None:
            return False
        timeout_ms: int = self.settings["broker.session.timeout.ms"]
        return self.clock.monotonic_ms() - self.contact_ms > timeout_ms

    def check_may_lead(self, partition: ReplicatedLog) -> None:
        """Reject a request for the end of a log: another broker may lead it by now, with more records."""
        if partition.has_followers and self.may_be_fenced:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another broker may lead {partition.name} by now"
            )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Promise[T]:
        """Run a coroutine as a task of this broker; returns a promise of its result."""
        return in_task(coroutine, self._tasks)

    def open_partition(
        self, name: TopicPartition, topic_id: bytes, replica: Replica, config: LogConfig
    ) -> ReplicatedLog:
        """Open the log of a partition, and lead or follow it."""
        log = self.disk.open_log(name, topic_id, config)
        traffic = self.traffic.of(name.topic)
        partition = ReplicatedLog(name, topic_id, log, replica, self.turn, self.disk, self.clock, traffic)
        partition.on_records_lost = self._records_lost
        partition.on_damaged = self._damaged
        if name in self.elections:
            partition.suspend()
        self.partitions[name] = partition
        if partition.is_internal:
            partition.on_role_changed = self._role_changed
            self._role_changed(name)
        self.replication.check(partition)
        self.replication.opened(partition)
        return partition

    def close_partition(self, name: TopicPartition) -> None:
        """The topic was deleted, or its replica moved: remove the partition and fail its pending requests."""
        self.replication.forget(name)
        partition = self.partitions.pop(name, None)
        if partition is not None:
            partition.close()

    def lost_records(self, name: TopicPartition) -> None:
        """A replica of this node may have lost committed records: it must not be elected as it is."""
        for watcher in self.lost_records_watchers:
            watcher(name)

    def _records_lost(self, name: TopicPartition) -> None:
        state = self.metadata.image.partition(*name)
        if state is not None and len(state.replicas) > 1:
            self.replication.damaged(self.partitions[name], "committed records may be lost")
        else:
            self.elections.lost_records(name)

    def _damaged(self, partition: ReplicatedLog, reason: str) -> None:
        state = self.metadata.image.partition(*partition.name)
        if state is not None and len(state.replicas) > 1 and self.partitions.get(partition.name) is partition:
            self.replication.damaged(partition, reason)

    def _role_changed(self, name: TopicPartition) -> None:
        for watcher in self.role_watchers:
            watcher(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id; None if there is none."""
        topic = self.metadata.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def partition(self, topic: str, index: int) -> ReplicatedLog:
        """The partition with this name. Raises ApiError if it is not on this node."""
        partition = self.partition_at.get((topic, index))
        if partition is None:
            raise self.no_partition(topic, index)
        return partition

    def no_partition(self, topic: str, index: int) -> ApiError:
        """The error for a partition that is not on this node."""
        state = self.metadata.image.partition(topic, index)
        if state is not None and self.node_id not in state.replicas:
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is on other brokers")
        if state is not None:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{index} cannot be opened")
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
