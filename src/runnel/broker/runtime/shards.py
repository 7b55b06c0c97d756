"""The shards of a coordinator on this node: lookup, loading and requests.

A group or a transactional id belongs to the partition of its coordinator's topic that Java's hash of the name
points to, as in Kafka, so that its tools look in the right place. A shard exists while this node leads its
partition, in one leader epoch:

    elected ──▶ loading: COORDINATOR_LOAD_IN_PROGRESS ──▶ loaded ──▶ resigned, or elected again: unloaded
                                                                     everything pending gets NOT_COORDINATOR

Every other node answers NOT_COORDINATOR. Loading runs in the background; a partition without records costs
nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Generic

from runnel.broker.runtime.leadership_proof import LeadershipProofs
from runnel.broker.runtime.promise import MaybePromise, chain
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.shard_driver import AnyShard, Refuse, ShardDriver, T
from runnel.broker.runtime.shard_loading import ShardLoading
from runnel.coordinator.contract import CoordinatorResult
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker


class Shards(ABC, Generic[AnyShard]):
    """The shards of one internal topic that this node leads."""

    topic: str

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._drivers: dict[int, ShardDriver[AnyShard]] = {}
        self._loading = ShardLoading(broker.timers)
        self._proofs = LeadershipProofs(broker)
        self._is_started = self._is_stopped = False

    def start(self) -> None:
        """Start to load every partition with records that this node leads, and follow changes of leaders."""
        self._is_started = True
        self._broker.role_watchers.append(self.role_changed)
        for index in range(self.partition_count):
            self.role_changed(TopicPartition(self.topic, index))

    def stop(self) -> None:
        """Fail pending requests, reject new ones and cancel timers."""
        if self._is_started and not self._is_stopped:
            self._broker.role_watchers.remove(self.role_changed)
        self._is_stopped = True
        self._loading.stop()
        for driver in self._drivers.values():
            driver.close()
        self._drivers.clear()

    def role_changed(self, name: TopicPartition) -> None:
        """This node leads the partition in another epoch, or no longer; other partitions are ignored."""
        if name.topic != self.topic or not self._is_started or self._is_stopped:
            return
        index = name.partition
        driver = self._drivers.get(index)
        if driver is not None and not self._is_current(driver):
            self._unload(index, driver)
        partition = self._broker.partitions.get(name)
        if index in self._drivers or partition is None or not partition.is_leader:
            return
        if partition.log.end_offset > partition.log.log_start_offset:
            self._load(partition)

    @property
    def partition_count(self) -> int:
        """Number of shards; 0 until the topic is created."""
        topic = self._broker.metadata.image.topics.get(self.topic)
        return 0 if topic is None else len(topic.partitions)

    def partition_of(self, name: str) -> int:
        """The partition of a group or a transactional id."""
        if self._is_stopped:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        count = self.partition_count
        if count == 0:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self.topic} does not exist yet")
        return java_hash(name) % count

    def leader_of(self, name: str) -> int:
        """The broker that leads the partition of a name, or NO_LEADER."""
        topic = self._broker.metadata.image.topics.get(self.topic)
        if topic is None or not topic.partitions:
            return NO_LEADER
        return topic.partitions[java_hash(name) % len(topic.partitions)].leader

    def is_isolated(self, name: str) -> bool:
        """Does this node lead the partition of a name, and may have been replaced?"""
        return (self.topic, self.partition_of(name)) in self._broker.replication.isolated

    def driver_of(self, name: str) -> ShardDriver[AnyShard]:
        """The shard of a name. Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        driver = self._driver(self.partition_of(name))
        if driver.partition.is_isolated:
            raise ApiError(
                ErrorCode.NOT_COORDINATOR, f"another broker may lead {driver.partition.name} by now"
            )
        if not driver.is_loaded:
            raise _loading(self.topic)
        return driver

    def write(
        self, name: str, decide: Callable[[ShardDriver[AnyShard]], CoordinatorResult[T]], refuse: Refuse[T]
    ) -> MaybePromise[T]:
        """Run a write operation on the shard of a name; returns the response or a promise of it."""
        try:
            driver = self.driver_of(name)
        except ApiError as error:
            return refuse(error.error)
        try:
            decision = decide(driver)
        except ApiError as error:
            # What it was decided by may not be committed yet.
            return driver.hold(refuse(error.error), refuse)
        return driver.decide(decision, refuse)

    def read(
        self, name: str, read: Callable[[AnyShard], T], refuse: Refuse[T], *, needs_proof: bool = False
    ) -> MaybePromise[T]:
        """Run a read operation on the shard of a name; the response waits until its state is committed.

        With `needs_proof` also until it is certain that no other broker has replaced this one before.
        """
        try:
            driver = self.driver_of(name)
        except ApiError as error:
            return refuse(error.error)
        if not needs_proof or not driver.partition.has_followers:
            return driver.hold(read(driver.shard), refuse)

        def read_if_proven(error: ErrorCode | None) -> MaybePromise[T]:
            is_loaded = self._drivers.get(driver.partition.name.partition) is driver
            if error is not None or not is_loaded or not self._is_current(driver):
                # Another broker may be the coordinator: the client looks it up again.
                return refuse(ErrorCode.NOT_COORDINATOR)
            return driver.hold(read(driver.shard), refuse)

        return chain(self._proofs.next(driver.partition, driver.commit_timeout_ms), read_if_proven)

    def all_loaded(self) -> list[ShardDriver[AnyShard]]:
        """All shards here with records. Raises COORDINATOR_LOAD_IN_PROGRESS if one is not loaded."""
        if self._is_stopped:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        drivers = [driver for driver in self._drivers.values() if self._is_current(driver)]
        if not all(driver.is_loaded for driver in drivers):
            raise _loading(self.topic)
        return drivers

    def drivers(self) -> list[ShardDriver[AnyShard]]:
        """All shards here, those that are being loaded included."""
        return [driver for driver in self._drivers.values() if self._is_current(driver)]

    @abstractmethod
    def _make(self, partition: ReplicatedLog) -> ShardDriver[AnyShard]:
        """An empty shard and its driver."""

    def _loaded(self, driver: ShardDriver[AnyShard], replayed_offset: int) -> None:
        driver.loaded(replayed_offset)

    def _driver(self, index: int) -> ShardDriver[AnyShard]:
        driver = self._drivers.get(index)
        if driver is not None and self._is_current(driver):
            return driver
        if driver is not None:
            self._unload(index, driver)
        partition = self._broker.partitions.get(TopicPartition(self.topic, index))
        if partition is None or not partition.is_leader:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{index} is not led by this broker")
        return self._load(partition)

    def _load(self, partition: ReplicatedLog) -> ShardDriver[AnyShard]:
        driver = self._drivers[partition.name.partition] = self._make(partition)
        self._loading.load(driver, self._loaded)
        return driver

    def _unload_stale(self) -> None:
        """Unload shards whose partition was removed or recreated."""
        for index, driver in list(self._drivers.items()):
            if not self._is_current(driver):
                self._unload(index, driver)

    def _unload(self, index: int, driver: ShardDriver[AnyShard]) -> None:
        del self._drivers[index]
        self._loading.forget(driver)
        driver.close()

    def _is_current(self, driver: ShardDriver[AnyShard]) -> bool:
        is_here = self._broker.partitions.get(driver.partition.name) is driver.partition
        return is_here and driver.is_leading and not (driver.is_loaded and driver.is_ahead)


def _loading(topic: str) -> ApiError:
    return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{topic} is loading")


@lru_cache(maxsize=65536)
def java_hash(text: str) -> int:
    """Java's String.hashCode without its sign, as used by Kafka."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value == 0x80000000:
        return 0
    return value if value < 0x80000000 else 0x100000000 - value
