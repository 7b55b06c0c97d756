"""The group coordinator: its shards, and the requests to them."""

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from runnel.broker.runtime.group_cluster import GroupCluster
from runnel.broker.runtime.group_lag import GroupLags
from runnel.broker.runtime.promise import MaybePromise
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.shard_driver import Refuse, ShardDriver, T
from runnel.broker.runtime.shards import Shards
from runnel.controller.settings import Settings
from runnel.controller.values import CONSUMER_OFFSETS
from runnel.coordinator.contract import CoordinatorResult
from runnel.coordinator.group.context import NOT_PARKED, RequestContext
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.shard import GroupShard
from runnel.coordinator.group.sync import Assigned
from runnel.model.errors import ApiError
from runnel.schemas.group import ConsumerGroupTargetAssignmentMetadataKey, OffsetCommitKey

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.context import Context

GroupDriver = ShardDriver[GroupShard]

_DELETED_MAX = 10_000
"""Number of deleted topics that are remembered for shards that are loaded later."""


class GroupCoordinator(Shards[GroupShard]):
    """All group shards of this node."""

    topic = CONSUMER_OFFSETS

    def __init__(self, broker: "Broker") -> None:
        super().__init__(broker)
        self._settings = group_settings(broker.settings)
        self._cluster = GroupCluster(broker)
        self._deleted_topics: dict[str, None] = {}
        """The last topics that were deleted: another leader of a shard may not have removed their offsets."""
        self.lags = GroupLags(broker, self)

    def start(self) -> None:
        """Start to load the groups of every partition with records."""
        self._deleted_topics = dict.fromkeys(self._broker.metadata.removed)
        super().start()

    def stop(self) -> None:
        self.lags.stop()
        super().stop()

    @property
    def has_shards(self) -> bool:
        """Does this node lead a partition with groups?"""
        return bool(self._drivers)

    def served(self) -> Iterator[GroupDriver]:
        """The shards that answer requests, except while they load or may have been replaced."""
        for driver in list(self._drivers.values()):
            if driver.is_loaded and self._is_current(driver) and not driver.partition.is_isolated:
                yield driver

    def write_or_park(
        self,
        group_id: str,
        context: "Context",
        decide: Callable[[GroupDriver, RequestContext], CoordinatorResult[T]],
        refuse: Refuse[T],
    ) -> MaybePromise[T]:
        """`write` for a request that the shard may park: its response comes with a later operation."""
        try:
            driver = self.driver_of(group_id)
        except ApiError as error:
            return refuse(error.error)
        waiter = driver.park(refuse)
        try:
            decision = decide(driver, self.request_context(context, waiter))
        except ApiError as error:
            driver.unpark(waiter)
            return driver.hold(refuse(error.error), refuse)
        return driver.decide(decision, refuse, waiter)

    def request_context(self, context: "Context", waiter: int = NOT_PARKED) -> RequestContext:
        """The client of a request, and the number under which it is parked."""
        return RequestContext(
            client_id=context.client_id or "",
            # Java's format of an address without a host name, which tools show.
            client_host=f"/{context.client_host}",
            api_version=context.api_version,
            waiter=waiter,
            uuid=str(UUID(bytes=self._broker.entropy.id_bytes())),
            shows_topic=context.shows_topic,
        )

    def topics_deleted(self, names: Collection[str]) -> None:
        """These topics were deleted: delete their committed offsets."""
        self._unload_stale()
        self._deleted_topics.update(dict.fromkeys(names))
        for name in list(islice(self._deleted_topics, max(0, len(self._deleted_topics) - _DELETED_MAX))):
            del self._deleted_topics[name]
        for driver in self._drivers.values():
            if driver.is_loaded:
                driver.run(driver.shard.topics_deleted(names))

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """A marker was appended to this partition: commit or drop its pending offsets."""
        driver = self._drivers.get(index)
        # A shard that is not loaded yet replays the marker from the log.
        if driver is not None and self._is_current(driver):
            driver.transaction_ended(producer_id, producer_epoch, is_commit)

    def _make(self, partition: ReplicatedLog) -> GroupDriver:
        settings = self._broker.settings
        return ShardDriver(
            GroupShard(self._settings, self._cluster),
            partition,
            self._broker.clock,
            self._broker.timers,
            settings["offsets.commit.timeout.ms"],
            settings["offsets.topic.compression.codec"],
            on_appended=self._count,
        )

    def _count(self, decision: CoordinatorResult[Any]) -> None:
        """Count the commits and the rebalances of which records were appended."""
        events = self._broker.events
        if isinstance(decision.continuation, Assigned):
            events.rebalances["classic"] += 1
        for record in decision.records:
            if type(record.key) is OffsetCommitKey:
                events.commits += record.value is not None
            elif type(record.key) is ConsumerGroupTargetAssignmentMetadataKey:
                events.rebalances["consumer"] += record.value is not None

    def _loaded(self, driver: GroupDriver, replayed_offset: int) -> None:
        driver.loaded(replayed_offset)
        # The topic may have been recreated: offsets committed since then are kept.
        deleted = sorted(self._deleted_topics.keys() - self._broker.metadata.image.topics.keys())
        driver.run(driver.shard.topics_deleted(deleted))
        self.lags.wake()


def group_settings(settings: Settings) -> GroupSettings:
    """The broker's group settings."""
    policy = settings["group.consumer.migration.policy"].upper()
    return GroupSettings(
        initial_rebalance_delay_ms=settings["group.initial.rebalance.delay.ms"],
        session_timeout_min_ms=settings["group.min.session.timeout.ms"],
        session_timeout_max_ms=settings["group.max.session.timeout.ms"],
        members_max=settings["group.max.size"],
        offset_metadata_bytes_max=settings["offset.metadata.max.bytes"],
        offsets_retention_ms=settings["offsets.retention.minutes"] * 60_000,
        offsets_check_interval_ms=settings["offsets.retention.check.interval.ms"],
        consumer_members_max=settings["group.consumer.max.size"],
        consumer_assignors=tuple(settings["group.consumer.assignors"]) or ("uniform",),
        can_upgrade=policy in ("UPGRADE", "BIDIRECTIONAL"),
        can_downgrade=policy in ("DOWNGRADE", "BIDIRECTIONAL"),
    )
