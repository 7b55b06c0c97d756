"""The group coordinator: which shard keeps a group, and the requests that go to it.

A group belongs to the partition of `__consumer_offsets` that Java's hash of its id points to, as in Kafka, so
that its tools look in the right place. Partitions are loaded in the background at start; one without records
costs nothing.
"""

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from runnel.broker.deferred import Deferred
from runnel.broker.shard_driver import Refuse, ShardDriver
from runnel.broker.shard_loading import ShardLoading
from runnel.controller.settings import Settings
from runnel.controller.values import CONSUMER_OFFSETS
from runnel.coordinator.contract import Decision
from runnel.coordinator.group.caller import Caller
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.shard import GroupShard
from runnel.model.errors import ErrorCode, Refusal, Refused
from runnel.model.ids import TopicPartition

if TYPE_CHECKING:
    from runnel.broker.broker import Broker
    from runnel.broker.context import Context

GroupDriver = ShardDriver[GroupShard]


class Coordinators:
    """All group shards of this node."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = group_settings(broker.settings)
        self._drivers: dict[int, GroupDriver] = {}
        self._deleted_topics: set[str] = set()
        """Topics that were deleted before the shards that may hold offsets in them were loaded."""
        self._loading = ShardLoading(broker.timers)
        self._is_stopped = False

    def start(self) -> None:
        """Begin to load the groups of every partition that has records."""
        self._deleted_topics = set(self._broker.metadata.removed)
        for index in range(self.partition_count):
            partition = self._broker.partitions.get(TopicPartition(CONSUMER_OFFSETS, index))
            if partition is not None and partition.log.end_offset > partition.log.log_start_offset:
                self._driver(index)

    def stop(self) -> None:
        """Answer whoever waits, take no more requests and let no timer run on."""
        self._is_stopped = True
        self._loading.stop()
        for driver in self._drivers.values():
            driver.close()
        self._drivers.clear()

    @property
    def partition_count(self) -> int:
        """How many shards there are; 0 until the first group makes the topic necessary."""
        topic = self._broker.metadata.image.topics.get(CONSUMER_OFFSETS)
        return 0 if topic is None else len(topic.partitions)

    def partition_of(self, group_id: str) -> int:
        """The partition that keeps a group."""
        if self._is_stopped:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        count = self.partition_count
        if count == 0:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"{CONSUMER_OFFSETS} does not exist yet")
        return java_hash(group_id) % count

    def driver_of(self, group_id: str) -> GroupDriver:
        """The shard of a group; NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if it cannot answer."""
        driver = self._driver(self.partition_of(group_id))
        if not driver.is_loaded:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the groups are being read from the log")
        return driver

    def ask(self, group_id: str, decide: Callable[[GroupDriver], Decision[Any]], refuse: Refuse) -> Any:
        """Have a group's shard decide: the response, or a Deferred that will be it."""
        try:
            driver = self.driver_of(group_id)
            return driver.decide(decide(driver), refuse)
        except Refusal as refusal:
            return refuse(refusal.error)

    def ask_and_park(
        self,
        group_id: str,
        context: "Context",
        decide: Callable[[GroupDriver, Caller], Decision[Any]],
        refuse: Refuse,
    ) -> Any:
        """The same for a request that the shard may keep waiting."""
        try:
            driver = self.driver_of(group_id)
        except Refusal as refusal:
            return refuse(refusal.error)
        waiter = driver.park(refuse)
        caller = Caller(
            client_id=context.client_id or "",
            # As Java prints an address without a host name, which is what tools show.
            client_host=f"/{context.client_host}",
            api_version=context.api_version,
            waiter=waiter,
            unique=str(UUID(bytes=self._broker.entropy.id_bytes())),
        )
        try:
            decision = decide(driver, caller)
        except Refusal as refusal:
            driver.unpark(waiter)
            return refuse(refusal.error)
        return driver.decide(decision, refuse, waiter)

    def look(self, group_id: str, read: Callable[[GroupShard], Any], refuse: Refuse) -> Any:
        """Read from a group's shard; the answer comes when all that was read is committed."""
        try:
            driver = self.driver_of(group_id)
        except Refusal as refusal:
            return refuse(refusal.error)
        return driver.hold(read(driver.shard), refuse)

    def all_loaded(self) -> list[GroupDriver]:
        """Every shard that holds anything. COORDINATOR_LOAD_IN_PROGRESS if one is not ready."""
        if self._is_stopped:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")
        drivers = [driver for driver in self._drivers.values() if self._is_current(driver)]
        if not all(driver.is_loaded for driver in drivers):
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the groups are being read from the log")
        return drivers

    def topics_deleted(self, names: Collection[str]) -> None:
        """These topics are gone: the offsets in them mean nothing any more."""
        for index, driver in list(self._drivers.items()):
            if not self._is_current(driver):
                self._drop(index, driver)
        if not all(driver.is_loaded for driver in self._drivers.values()):
            self._deleted_topics.update(names)
        for driver in self._drivers.values():
            if driver.is_loaded:
                driver.run(driver.shard.forget_topics(names))

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """The end of a transaction was appended to this partition: the offsets in it count, or never did."""
        driver = self._drivers.get(index)
        # One that is not loaded yet finds the end in the log.
        if driver is not None and self._is_current(driver):
            driver.transaction_ended(producer_id, producer_epoch, is_commit)

    def _driver(self, index: int) -> GroupDriver:
        driver = self._drivers.get(index)
        if driver is not None and self._is_current(driver):
            return driver
        if driver is not None:
            self._drop(index, driver)
        partition = self._broker.partitions.get(TopicPartition(CONSUMER_OFFSETS, index))
        if partition is None:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"{CONSUMER_OFFSETS}-{index} is not on this node")
        settings = self._broker.settings
        driver = ShardDriver(
            GroupShard(self._settings),
            partition,
            self._broker.clock,
            self._broker.timers,
            settings["offsets.commit.timeout.ms"],
            settings["offsets.topic.compression.codec"],
        )
        self._drivers[index] = driver
        self._loading.load(driver, self._loaded)
        return driver

    def _drop(self, index: int, driver: GroupDriver) -> None:
        """The partition is no longer here, or another one has its name."""
        self._loading.forget(driver)
        driver.close()
        del self._drivers[index]

    def _loaded(self, driver: GroupDriver) -> None:
        driver.loaded()
        # A topic may have its name back already; what was committed in it since is not among this.
        gone = self._deleted_topics - self._broker.metadata.image.topics.keys()
        driver.run(driver.shard.forget_topics(gone))

    def _is_current(self, driver: GroupDriver) -> bool:
        return self._broker.partitions.get(driver.partition.name) is driver.partition


def group_settings(settings: Settings) -> GroupSettings:
    """The broker's settings as the shards need them."""
    return GroupSettings(
        initial_rebalance_delay_ms=settings["group.initial.rebalance.delay.ms"],
        session_timeout_min_ms=settings["group.min.session.timeout.ms"],
        session_timeout_max_ms=settings["group.max.session.timeout.ms"],
        members_max=settings["group.max.size"],
        offset_metadata_bytes_max=settings["offset.metadata.max.bytes"],
        offsets_retention_ms=settings["offsets.retention.minutes"] * 60_000,
        offsets_check_interval_ms=settings["offsets.retention.check.interval.ms"],
    )


@lru_cache(maxsize=65536)
def java_hash(text: str) -> int:
    """Java's String.hashCode without its sign, as Kafka takes it."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value == 0x80000000:
        return 0
    return value if value < 0x80000000 else 0x100000000 - value


def gather(parts: Iterable[Any], combine: Callable[[list[Any]], Any]) -> Any:
    """Combine answers of several shards, some of which may be on their way."""
    known = list(parts)
    missing = [index for index, part in enumerate(known) if isinstance(part, Deferred)]
    if not missing:
        return combine(known)
    whole = Deferred()
    outstanding = len(missing)

    def arrived(index: int, outcome: Any) -> None:
        nonlocal outstanding
        known[index] = outcome
        outstanding -= 1
        if outstanding == 0:
            whole.complete(combine(known))

    for index in missing:
        known[index].then(lambda outcome, index=index: arrived(index, outcome))
    return whole
