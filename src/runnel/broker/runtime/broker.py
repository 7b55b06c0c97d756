"""The broker: the state and ports that handlers use, assembled by the server or the simulator."""

from asyncio import Task
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from runnel.broker.runtime.bug_reports import BugReports
from runnel.broker.runtime.elections import Elections
from runnel.broker.runtime.fetch_sessions import FetchSessions
from runnel.broker.runtime.gates import Gates
from runnel.broker.runtime.producer_ids import ProducerIds
from runnel.broker.runtime.promise import Promise, in_task
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.topic_metadata import TopicMetadataCache
from runnel.broker.runtime.turn import Turn
from runnel.broker.runtime.waiting import Waiting
from runnel.controller.settings import Settings
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.model.pauses import LoopPauses
from runnel.ports.clock import Clock, Timers
from runnel.ports.disk import Disk
from runnel.ports.entropy import Entropy
from runnel.replica.leader import LeaderReplica

if TYPE_CHECKING:
    from runnel.broker.runtime.group_coordinator import GroupCoordinator
    from runnel.broker.runtime.metadata_log import MetadataLog
    from runnel.broker.runtime.transaction_coordinator import TransactionCoordinator

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Broker:
    """A node: its identity, its ports, and the drivers of its cores."""

    node_id: int
    cluster_id: str
    host: str
    """The advertised address."""
    port: int
    clock: Clock
    timers: Timers
    disk: Disk
    entropy: Entropy
    settings: Settings
    """Every broker setting by Kafka's name, resolved and typed: settings["num.partitions"] is an int."""
    rack: str | None = None
    listener: str = "PLAINTEXT"
    partitions: dict[TopicPartition, ReplicatedLog] = field(default_factory=dict)
    partition_at: Mapping[tuple[str, int], ReplicatedLog] = field(init=False)
    """`partitions` by plain tuples, for lookups without a TopicPartition."""
    turn: Turn = field(init=False)
    waiting: Waiting = field(init=False)
    fetch_sessions: FetchSessions = field(init=False)
    producer_ids: ProducerIds = field(init=False)
    elections: Elections = field(init=False)
    """Partitions that reject writes until this node leads them in a new epoch."""
    topic_metadata: TopicMetadataCache = field(default_factory=TopicMetadataCache)
    gates: Gates = field(default_factory=Gates)
    """Authentication, authorization, quotas and accounting, which every request passes."""
    bugs: BugReports = field(init=False)
    """Where unexpected exceptions are logged."""
    loop_pauses: LoopPauses = field(default_factory=LoopPauses)
    """Histogram of event loop pauses, sampled by the composition root."""
    metadata: "MetadataLog" = field(init=False)
    """Cluster metadata: `image` to read, `change` to decide against it."""
    groups: "GroupCoordinator" = field(init=False)
    """The group coordinator."""
    transactions: "TransactionCoordinator" = field(init=False)
    """The transaction coordinator."""

    _tasks: set[Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.partition_at = cast("Mapping[tuple[str, int], ReplicatedLog]", self.partitions)
        self.bugs = BugReports(self.clock)
        self.turn = Turn(self.timers)
        self.waiting = Waiting(self.timers)
        self.producer_ids = ProducerIds(self)
        self.elections = Elections(self)
        slots_max = self.settings["max.incremental.fetch.session.cache.slots"]
        self.fetch_sessions = FetchSessions(slots_max, self.clock, self.entropy)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Promise[T]:
        """Run a coroutine as a task of this broker; returns a promise of its result."""
        return in_task(coroutine, self._tasks)

    def open_partition(
        self, name: TopicPartition, topic_id: bytes, leader_epoch: int, config: LogConfig
    ) -> ReplicatedLog:
        """Become leader of a partition: open its log and make its committed records readable."""
        log = self.disk.open_log(name, topic_id, config)
        leader = LeaderReplica.sole(self.node_id, leader_epoch)
        partition = ReplicatedLog(name, topic_id, log, leader, self.turn, self.disk, self.clock)
        partition.on_records_lost = self.elections.lost_records
        if name in self.elections:
            partition.suspend()
        self.partitions[name] = partition
        return partition

    def close_partition(self, name: TopicPartition) -> None:
        """The topic was deleted: remove the partition and fail its pending requests."""
        partition = self.partitions.pop(name, None)
        if partition is not None:
            partition.close()

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
        if self.metadata.image.partition(topic, index) is not None:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{index} cannot be opened")
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
