"""Applies metadata to the node: opens, leads, follows, configures and removes partitions; settings."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from runnel.controller.image import MetadataImage
from runnel.controller.log_settings import log_config, resolve_log_config
from runnel.controller.settings import Settings
from runnel.controller.values import CLUSTER_METADATA, Topic
from runnel.model.configs import ResourceType
from runnel.model.errors import ApiError
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

WARNING_INTERVAL_MS = 1_000
"""Logs that cannot be opened or removed are reported this often, one for all."""

CONFIGURED_PER_STEP = 1_000
TOPIC_WEIGHT = 20
"""Partitions that get new settings in one step; a topic counts as TOPIC_WEIGHT partitions."""

PARTITIONS_PER_STEP = 32
"""Number of partitions opened or changed before control returns to the event loop."""

RETRY_DELAY_MS = 1000
"""Retry interval for logs that could not be opened."""

_BROKER_RECORDS = (RegisterBrokerRecord, UnregisterBrokerRecord, BrokerRegistrationChangeRecord)


class MetadataFollower:
    """Applies records of the metadata log on this node."""

    def __init__(self, broker: "Broker", image: MetadataImage, settings: Settings) -> None:
        self._broker = broker
        self._image = image
        self._settings = settings
        self._warned_ms = -WARNING_INTERVAL_MS
        self._unopened: set[TopicPartition] = set()
        """Partitions whose log could not be opened."""
        self._unremoved: set[TopicPartition] = set()
        """Partitions whose log could not be removed."""
        self._removal_watchers: list[Callable[[list[str]], None]] = []
        self._feature_watchers: list[Callable[[], None]] = []

    def when_topics_are_removed(self, watcher: Callable[[list[str]], None]) -> None:
        """Register a callback for deleted topics."""
        self._removal_watchers.append(watcher)

    def when_features_change(self, watcher: Callable[[], None]) -> None:
        """Register a callback for changed feature levels."""
        self._feature_watchers.append(watcher)

    def open_all(self) -> Iterator[None]:
        """At start: apply dynamic settings and open all partitions of this node."""
        self._apply_settings()
        self._broker.replication.brokers_changed()
        yield from self._update_all()

    def reload(self) -> Iterator[None]:
        """The image was replaced as a whole, by a snapshot: apply all that may have changed."""
        removed = [
            partition
            for partition in self._broker.partitions.values()
            if partition.topic_id not in self._image.topics_by_id
        ]
        topics = {partition.topic_id: partition.name.topic for partition in removed}
        for count, partition in enumerate(removed, 1):
            self._remove_partition(partition.name, partition.topic_id)
            if count % PARTITIONS_PER_STEP == 0:
                yield
        self._topics_removed(list(topics.values()))
        self._broker.replication.brokers_changed()
        yield from self._apply_broker_settings()
        yield from self._update_all()
        yield from self._configure(list(self._image.topics))
        for watcher in self._feature_watchers:
            watcher()

    def _update_all(self) -> Iterator[None]:
        count = 0
        for topic in list(self._image.topics.values()):
            config = resolve_log_config(self._image, self._settings, topic.name)
            for index in range(len(topic.partitions)):
                self._update(topic, index, config)
                count += 1
                if count % PARTITIONS_PER_STEP == 0:
                    yield

    def remove_orphaned_logs(self, removed: set[str]) -> None:
        """Remove logs of topics whose deletion was durable before a crash, and of replicas that were moved.

        A log that is not mentioned in the metadata is kept: it may be the only copy of its records.
        """
        unknown = []
        for name in list(self._broker.disk.known_logs()):
            state = self._image.partition(*name)
            if name.topic in removed or (state is not None and self._broker.node_id not in state.replicas):
                self._remove_log(name)
            elif state is None and name.topic != CLUSTER_METADATA:
                unknown.append(str(name))
        if unknown:
            log.warning("these logs are not in the metadata and are kept: %s", ", ".join(unknown))

    def apply(self, records: list[MetadataRecord], removed: list[Topic]) -> Iterator[None]:
        """Apply records that were replayed into the image."""
        if removed:
            # First, because a topic may be created again under the same name.
            yield from self._remove(removed)
        if any(type(record) in _BROKER_RECORDS for record in records):
            self._broker.replication.brokers_changed()
        yield from self._update_changed(records)
        changed = {
            (record.resource_type, record.resource_name): None
            for record in records
            if type(record) is ConfigRecord
        }
        if any(resource_type == ResourceType.BROKER for resource_type, _ in changed):
            yield from self._apply_broker_settings()
        topics = [name for resource_type, name in changed if resource_type == ResourceType.TOPIC]
        yield from self._configure(topics)
        if any(type(record) is FeatureLevelRecord for record in records):
            for watcher in self._feature_watchers:
                watcher()

    def _update_changed(self, records: list[MetadataRecord]) -> Iterator[None]:
        changed: dict[tuple[bytes, int], None] = {}
        for record in records:
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                changed[record.topic_id, record.partition_id] = None
            elif isinstance(record, ClearElrRecord):
                # It raises the partition epoch, without which the leader cannot change the ISR.
                names = [record.topic_name] if record.topic_name else list(self._image.topics)
                topics = [self._image.topics[name] for name in names if name in self._image.topics]
                changed |= {
                    (topic.id, index): None for topic in topics for index in range(len(topic.partitions))
                }
        for count, (topic_id, index) in enumerate(changed, 1):
            topic = self._image.topics_by_id.get(topic_id)
            if topic is not None:
                self._update(topic, index)
            if count % PARTITIONS_PER_STEP == 0:
                yield

    def _apply_settings(self) -> None:
        image = self._image
        self._settings.apply_dynamic(image.broker_configs(None), image.broker_configs(self._broker.node_id))

    def _apply_broker_settings(self) -> Iterator[None]:
        before = log_config(self._settings, {})
        self._apply_settings()
        if log_config(self._settings, {}) == before:
            return
        yield from self._configure(list(self._image.topics))

    def _configure(self, names: list[str]) -> Iterator[None]:
        """Apply the settings of these topics."""
        count = 0
        for name in names:
            self._broker.replication.topic_changed(name)
            topic = self._image.topics.get(name)
            if topic is None:
                continue
            config = resolve_log_config(self._image, self._settings, name)
            # A topic takes as long as some partitions.
            count += TOPIC_WEIGHT
            for index in range(len(topic.partitions)):
                partition = self._broker.partitions.get(TopicPartition(name, index))
                if partition is not None:
                    partition.configure(config)
                count += 1
                if count >= CONFIGURED_PER_STEP:
                    count = 0
                    yield

    def _update(self, topic: Topic, index: int, config: LogConfig | None = None) -> None:
        """Apply the state of a partition on this node."""
        state = topic.partitions[index]
        name = TopicPartition(topic.name, index)
        partition = self._broker.partitions.get(name)
        if self._broker.node_id not in state.replicas:
            if partition is not None and partition.topic_id == topic.id:
                log.info("%s is not on this node any more: its log is removed", name)
                self._remove_partition(name, topic.id)
            self._unopened.discard(name)
        elif partition is None:
            self._open(topic, index, config or resolve_log_config(self._image, self._settings, topic.name))
        elif partition.is_changing:
            partition.when_changed(partial(self._update_soon, name))
        else:
            self._broker.replication.update(partition, state)

    def _update_soon(self, name: TopicPartition) -> None:
        # Not at once, because the disk calls back in the midst of its work.
        self._broker.timers.call_later(0, partial(self._update_again, name))

    def _update_again(self, name: TopicPartition) -> None:
        topic = self._image.topics.get(name.topic)
        if topic is not None and name.partition < len(topic.partitions):
            self._update(topic, name.partition)

    def _open(self, topic: Topic, index: int, config: LogConfig) -> None:
        state = topic.partitions[index]
        name = TopicPartition(topic.name, index)
        assert topic.name != CLUSTER_METADATA, "a topic must not take the place of the metadata log"
        try:
            self._broker.open_partition(name, topic.id, self._broker.replication.role(state), config)
        except (ApiError, OSError) as error:
            self._warn("the log of %s cannot be opened, will retry: %s", name, error)
            # The topic exists nevertheless: clients retry, and so does the broker.
            if not self._unopened:
                self._broker.timers.call_later(RETRY_DELAY_MS, self._retry)
            self._unopened.add(name)

    def _retry(self) -> None:
        unopened, self._unopened = self._unopened, set()
        self._retry_in_steps(sorted(unopened), self._update_again)

    def _retry_in_steps(self, names: list[TopicPartition], retry: Callable[[TopicPartition], None]) -> None:
        for name in names[:PARTITIONS_PER_STEP]:
            retry(name)
        if rest := names[PARTITIONS_PER_STEP:]:
            self._broker.timers.call_later(0, partial(self._retry_in_steps, rest, retry))

    def _warn(self, message: str, name: TopicPartition, error: Exception) -> None:
        """The cause often concerns very many logs: a full disk, or too many open files."""
        now_ms = self._broker.clock.monotonic_ms()
        is_new = now_ms - self._warned_ms >= WARNING_INTERVAL_MS
        log.log(logging.WARNING if is_new else logging.DEBUG, message, name, error)
        if is_new:
            self._warned_ms = now_ms

    def _remove_log(self, name: TopicPartition) -> None:
        try:
            self._broker.disk.remove_log(name)
        except (ApiError, OSError) as error:
            # The topic is deleted nevertheless: a full disk must not block further deletions.
            self._warn("the log of %s cannot be removed, will retry: %s", name, error)
            if not self._unremoved:
                self._broker.timers.call_later(RETRY_DELAY_MS, self._retry_removal)
            self._unremoved.add(name)

    def _retry_removal(self) -> None:
        unremoved, self._unremoved = self._unremoved, set()
        self._retry_in_steps(sorted(unremoved), self._remove_again)

    def _remove_again(self, name: TopicPartition) -> None:
        # A recreated topic has replaced the log, or will.
        state = self._image.partition(*name)
        if state is None or self._broker.node_id not in state.replicas:
            self._remove_log(name)

    def _remove(self, topics: list[Topic]) -> Iterator[None]:
        for topic in topics:
            for index in range(len(topic.partitions)):
                self._remove_partition(TopicPartition(topic.name, index), topic.id)
                if index % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                    yield
        self._topics_removed([topic.name for topic in topics])

    def _remove_partition(self, name: TopicPartition, topic_id: bytes) -> None:
        self._unopened.discard(name)
        partition = self._broker.partitions.get(name)
        if partition is None or partition.topic_id == topic_id:
            self._broker.close_partition(name)
            self._remove_log(name)

    def _topics_removed(self, names: list[str]) -> None:
        for name in names:
            self._broker.replication.topic_changed(name)
            if name not in self._image.topics:
                self._broker.traffic.forget(name)
        if names:
            for watcher in self._removal_watchers:
                watcher(names)
