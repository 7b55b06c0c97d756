"""Applies metadata to the node: opens, configures and removes partitions, applies settings."""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from runnel.controller.image import UNCHANGED, MetadataImage
from runnel.controller.log_settings import log_config, resolve_log_config
from runnel.controller.settings import Settings
from runnel.controller.values import CLUSTER_METADATA, Topic
from runnel.model.configs import ResourceType
from runnel.model.errors import ApiError
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.replica.leader import LeaderReplica
from runnel.schemas.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

PARTITIONS_PER_STEP = 32
"""Number of partitions opened or changed before control returns to the event loop."""

RETRY_DELAY_MS = 1000
"""Retry interval for logs that could not be opened."""


class MetadataFollower:
    """Applies records of the metadata log on this node."""

    def __init__(self, broker: "Broker", image: MetadataImage, settings: Settings) -> None:
        self._broker = broker
        self._image = image
        self._settings = settings
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
        count = 0
        for topic in self._image.topics.values():
            config = resolve_log_config(self._image, self._settings, topic.name)
            for index in range(len(topic.partitions)):
                self._open(topic, index, config)
                count += 1
                if count % PARTITIONS_PER_STEP == 0:
                    yield

    def remove_orphaned_logs(self, removed: set[str]) -> None:
        """Remove logs of topics whose deletion was durable before a crash.

        A log that is not mentioned in the metadata is kept: it may be the only copy of its records.
        """
        unknown = []
        for partition in list(self._broker.disk.known_logs()):
            if partition.topic in removed:
                self._remove_log(partition)
            elif self._image.partition(*partition) is None and partition.topic != CLUSTER_METADATA:
                unknown.append(str(partition))
        if unknown:
            log.warning("these logs are not in the metadata and are kept: %s", ", ".join(unknown))

    def apply(self, records: list[MetadataRecord], removed: list[Topic]) -> Iterator[None]:
        """Apply records that were replayed into the image."""
        yield from self._open_new(records)
        self._lead_again(records)
        changed = {
            (record.resource_type, record.resource_name): None
            for record in records
            if type(record) is ConfigRecord
        }
        if any(resource_type == ResourceType.BROKER for resource_type, _ in changed):
            yield from self._apply_broker_settings()
        for resource_type, name in changed:
            if resource_type == ResourceType.TOPIC:
                self._configure(name)
        if removed:
            yield from self._remove(removed)
        if any(type(record) is FeatureLevelRecord for record in records):
            for watcher in self._feature_watchers:
                watcher()

    def _open_new(self, records: list[MetadataRecord]) -> Iterator[None]:
        created = [record for record in records if type(record) is PartitionRecord]
        for count, record in enumerate(created, 1):
            topic = self._image.topics_by_id.get(record.topic_id)
            if topic is not None:
                config = resolve_log_config(self._image, self._settings, topic.name)
                self._open(topic, record.partition_id, config)
            if count % PARTITIONS_PER_STEP == 0:
                yield

    def _lead_again(self, records: list[MetadataRecord]) -> None:
        """Lead in the new epoch where an election kept the leader."""
        for record in records:
            if type(record) is not PartitionChangeRecord or record.leader == UNCHANGED:
                continue
            topic = self._image.topics_by_id.get(record.topic_id)
            if topic is None:
                continue
            state = topic.partitions[record.partition_id]
            partition = self._broker.partitions.get(TopicPartition(topic.name, record.partition_id))
            if partition is not None and state.leader == self._broker.node_id:
                partition.become_leader(LeaderReplica.sole(self._broker.node_id, state.leader_epoch))

    def _apply_settings(self) -> None:
        image = self._image
        self._settings.apply_dynamic(image.broker_configs(None), image.broker_configs(self._broker.node_id))

    def _apply_broker_settings(self) -> Iterator[None]:
        before = log_config(self._settings, {})
        self._apply_settings()
        if log_config(self._settings, {}) == before:
            return
        for count, name in enumerate(list(self._image.topics), 1):
            self._configure(name)
            if count % PARTITIONS_PER_STEP == 0:
                yield

    def _configure(self, name: str) -> None:
        topic = self._image.topics.get(name)
        if topic is None:
            return
        config = resolve_log_config(self._image, self._settings, name)
        for index in range(len(topic.partitions)):
            partition = self._broker.partitions.get(TopicPartition(name, index))
            if partition is not None:
                partition.log.configure(config)

    def _open(self, topic: Topic, index: int, config: LogConfig) -> None:
        state = topic.partitions[index]
        name = TopicPartition(topic.name, index)
        assert topic.name != CLUSTER_METADATA, "a topic must not take the place of the metadata log"
        if self._broker.node_id not in state.replicas or name in self._broker.partitions:
            return
        try:
            self._broker.open_partition(name, topic.id, state.leader_epoch, config)
        except (ApiError, OSError) as error:
            log.warning("the log of %s cannot be opened, will retry: %s", name, error)
            # The topic exists nevertheless: clients retry, and so does the broker.
            if not self._unopened:
                self._broker.timers.call_later(RETRY_DELAY_MS, self._retry)
            self._unopened.add(name)

    def _retry(self) -> None:
        unopened, self._unopened = self._unopened, set()
        for name in sorted(unopened):
            topic = self._image.topics.get(name.topic)
            if topic is not None and name.partition < len(topic.partitions):
                self._open(topic, name.partition, resolve_log_config(self._image, self._settings, name.topic))

    def _remove_log(self, name: TopicPartition) -> None:
        try:
            self._broker.disk.remove_log(name)
        except (ApiError, OSError) as error:
            # The topic is deleted nevertheless: a full disk must not block further deletions.
            log.warning("the log of %s cannot be removed, will retry: %s", name, error)
            if not self._unremoved:
                self._broker.timers.call_later(RETRY_DELAY_MS, self._retry_removal)
            self._unremoved.add(name)

    def _retry_removal(self) -> None:
        unremoved, self._unremoved = self._unremoved, set()
        for name in sorted(unremoved):
            # A recreated topic has replaced the log, or will.
            if self._image.partition(*name) is None:
                self._remove_log(name)

    def _remove(self, topics: list[Topic]) -> Iterator[None]:
        for topic in topics:
            for index in range(len(topic.partitions)):
                name = TopicPartition(topic.name, index)
                self._unopened.discard(name)
                self._broker.close_partition(name)
                self._remove_log(name)
                if index % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                    yield
        for watcher in self._removal_watchers:
            watcher([topic.name for topic in topics])
