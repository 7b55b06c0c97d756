"""The metadata image: the state of the cluster after replaying its metadata records.

TopicRecord, PartitionRecord, PartitionChangeRecord, RemoveTopicRecord   → topics, topics_by_id
ConfigRecord                                                             → configs
FeatureLevelRecord                                                       → features
ClientQuotaRecord                                                        → quotas
UserScramCredentialRecord, RemoveUserScramCredentialRecord               → credentials
ProducerIdsRecord                                                        → next_producer_id
RegisterBrokerRecord, BrokerRegistrationChangeRecord, Unregister…        → brokers
ClusterRecord                                                            → cluster_id
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, TypeVar

from runnel.controller.values import (
    BrokerRegistration,
    ConfigResource,
    Endpoint,
    PartitionState,
    QuotaEntity,
    ScramCredential,
    Topic,
)
from runnel.model.configs import ResourceType
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    SnapshotRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

STATES_MIN = 1000
"""The minimum size of the cache of shared partition states."""

Key = TypeVar("Key")
Value = TypeVar("Value")

UNCHANGED = -2
"""The leader of a PartitionChangeRecord that does not change the leader."""


_VALUES_OF = attrgetter(*(field.name for field in fields(PartitionState)))


class BadMetadata(ValueError):
    """Metadata records that contradict each other or that this release does not support."""


@dataclass(slots=True)
class MetadataImage:
    """The state after the records up to `version`. Lookups take constant time."""

    version: int = 0
    """The offset after the last replayed record; images of one log with equal versions are equal."""
    cluster_id: str = ""
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[bytes, Topic] = field(default_factory=dict)
    partition_count: int = 0
    configs: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    credentials: dict[str, dict[int, ScramCredential]] = field(default_factory=dict)
    """By user, then by mechanism."""
    next_producer_id: int = 0
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    _names_by_metric: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names with '.' or '_' by their metric name, in which the two are not distinguished."""
    _states: dict[tuple[object, ...], PartitionState] = field(default_factory=dict)
    """Interned partition states."""
    _names: list[str] | None = None
    _token: object = field(default_factory=object, compare=False)
    """Marks the topics that this image owns."""

    def topic_configs(self, name: str) -> dict[str, str]:
        """The config overrides of a topic; must not be modified."""
        return self.configs.get(ConfigResource(ResourceType.TOPIC, name), {})

    def broker_configs(self, node_id: int | None) -> dict[str, str]:
        """The dynamic configs of one broker, or the cluster-wide default ones for None."""
        return self.configs.get(
            ConfigResource(ResourceType.BROKER, "" if node_id is None else str(node_id)), {}
        )

    def partition(self, name: str, index: int) -> PartitionState | None:
        """The state of a partition, or None if it does not exist."""
        topic = self.topics.get(name)
        return topic.partitions[index] if topic and 0 <= index < len(topic.partitions) else None

    def colliding(self, name: str) -> list[str]:
        """Topics whose names differ from this one only in '.' and '_'."""
        return [other for other in self._names_by_metric.get(_metric_form(name), ()) if other != name]

    def names_in_order(self) -> list[str]:
        """All topic names, sorted; cached until a topic is created or deleted."""
        if self._names is None:
            self._names = sorted(self.topics)
        return self._names

    def live_brokers(self) -> list[BrokerRegistration]:
        """The unfenced brokers, by id."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.is_fenced]

    def copy(self) -> "MetadataImage":
        """An independent copy. Topics are shared until one of the images changes them (copy-on-write)."""
        self._token = object()
        return replace(
            self,
            topics=self.topics.copy(),
            topics_by_id=self.topics_by_id.copy(),
            configs=self.configs.copy(),
            features=self.features.copy(),
            quotas=self.quotas.copy(),
            credentials=self.credentials.copy(),
            brokers=self.brokers.copy(),
            _names_by_metric=self._names_by_metric.copy(),
            _token=object(),
        )

    def frozen(self) -> "MetadataImage":
        """What a snapshot needs, unaffected by later changes; readable by any thread, but not for lookups."""
        self._token = object()
        return replace(
            self,
            topics=self.topics.copy(),
            topics_by_id={},
            configs=self.configs.copy(),
            features=self.features.copy(),
            quotas=self.quotas.copy(),
            credentials=self.credentials.copy(),
            brokers=self.brokers.copy(),
            _names_by_metric={},
            _token=object(),
        )

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record; BadMetadata if it is inconsistent with the image."""
        change = _REPLAYS.get(type(record))
        if change is None:
            raise BadMetadata(f"{type(record).__name__} is not supported by this release")
        change(self, record)

    def replay_batch(self, records: Iterable[MetadataRecord], version: int) -> None:
        """Apply one batch, which ends at `version`. The first record of a snapshot resets the image."""
        for record in records:
            if type(record) is SnapshotRecord:
                self.__init__()  # type: ignore[misc]
            else:
                self.replay(record)
        self.version = version

    def _topic_of(self, topic_id: bytes, record: MetadataRecord) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise BadMetadata(f"{type(record).__name__} refers to the unknown topic id {topic_id.hex()}")
        return topic

    def _own_topic(self, topic_id: bytes, record: MetadataRecord) -> Topic:
        """The topic, to be changed: a copy of its own unless this image owns it already."""
        topic = self._topic_of(topic_id, record)
        if topic.owner is not self._token:
            topic = Topic(topic.name, topic.id, topic.partitions.copy(), self._token)
            self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        return topic

    def _topic_created(self, record: TopicRecord) -> None:
        if record.name in self.topics or record.topic_id in self.topics_by_id:
            raise BadMetadata(f"the topic {record.name} is created twice")
        topic = Topic(record.name, bytes(record.topic_id), owner=self._token)
        self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        self._names = None
        if "." in topic.name or "_" in topic.name:
            form = _metric_form(topic.name)
            self._names_by_metric[form] = (*self._names_by_metric.get(form, ()), topic.name)

    def _topic_removed(self, record: RemoveTopicRecord) -> None:
        topic = self._topic_of(record.topic_id, record)
        del self.topics[topic.name], self.topics_by_id[topic.id]
        self.configs.pop(ConfigResource(ResourceType.TOPIC, topic.name), None)
        self.partition_count -= len(topic.partitions)
        self._names = None
        form = _metric_form(topic.name)
        names = tuple(name for name in self._names_by_metric.get(form, ()) if name != topic.name)
        _set_or_remove(self._names_by_metric, form, names)

    def _partition_created(self, record: PartitionRecord) -> None:
        partitions = self._own_topic(record.topic_id, record).partitions
        if record.partition_id != len(partitions):
            raise BadMetadata(f"partition {record.partition_id} is created, but {len(partitions)} is next")
        # Looked up before it is created, because most partitions have equal states.
        values = (
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.directories),
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
        )
        state = self._states.get(values)
        if state is None:
            state = self._states[values] = PartitionState(*values)
        partitions.append(state)
        self.partition_count += 1

    def _partition_changed(self, record: PartitionChangeRecord) -> None:
        topic = self._own_topic(record.topic_id, record)
        if not 0 <= record.partition_id < len(topic.partitions):
            raise BadMetadata(f"{topic.name}-{record.partition_id} is changed, but does not exist")
        old = topic.partitions[record.partition_id]
        changes: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
        for name, values in (
            ("isr", record.isr),
            ("replicas", record.replicas),
            ("adding", record.adding_replicas),
            ("removing", record.removing_replicas),
            ("directories", record.directories),
            ("eligible", record.eligible_leader_replicas),
            ("last_known_eligible", record.last_known_elr),
        ):
            if values is not None:
                changes[name] = tuple(values)
        if record.leader_recovery_state >= 0:
            changes["recovery"] = record.leader_recovery_state
        if record.leader != UNCHANGED:
            # Every leader in a change record starts a new epoch, even if it is the current one.
            changes.update(leader=record.leader, leader_epoch=old.leader_epoch + 1)
        state = replace(old, **changes)
        if len(self._states) > 2 * self.partition_count + STATES_MIN:
            # Most entries are stale by now. Clearing the cache only loses sharing.
            self._states.clear()
        topic.partitions[record.partition_id] = self._states.setdefault(_VALUES_OF(state), state)

    def _config_changed(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        configs = _changed(self.configs.get(resource), record.name, record.value)
        _set_or_remove(self.configs, resource, configs)

    def _feature_changed(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _quota_changed(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        value = None if record.remove else record.value
        _set_or_remove(self.quotas, entity, _changed(self.quotas.get(entity), record.key, value))

    def _credential_created(self, record: UserScramCredentialRecord) -> None:
        credential = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        self._credential_changed(record.name, record.mechanism, credential)

    def _credential_removed(self, record: RemoveUserScramCredentialRecord) -> None:
        self._credential_changed(record.name, record.mechanism, None)

    def _credential_changed(self, user: str, mechanism: int, credential: ScramCredential | None) -> None:
        _set_or_remove(self.credentials, user, _changed(self.credentials.get(user), mechanism, credential))

    def _producer_ids_allocated(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _broker_registered(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerRegistration(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=bytes(record.incarnation_id),
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features=tuple(
                (f.name, f.min_supported_version, f.max_supported_version) for f in record.features
            ),
            rack=record.rack,
            is_fenced=record.fenced,
            is_stopping=record.in_controlled_shutdown,
            directories=tuple(bytes(directory) for directory in record.log_dirs),
        )

    def _broker_changed(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None:
            raise BadMetadata(f"broker {record.broker_id} is changed, but is not registered")
        fenced = {1: True, -1: False}.get(record.fenced, broker.is_fenced)
        self.brokers[broker.id] = replace(
            broker,
            is_fenced=fenced,
            is_stopping=broker.is_stopping or record.in_controlled_shutdown == 1,
            directories=tuple(record.log_dirs) or broker.directories,
        )

    def _broker_unregistered(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _cluster_id_set(self, record: ClusterRecord) -> None:
        self.cluster_id = record.cluster_id

    def _nothing(self, record: NoOpRecord) -> None:
        """Only the offset advances."""


def _changed(values: dict[Key, Value] | None, key: Key, value: Value | None) -> dict[Key, Value]:
    """A changed copy: images that were copied from each other share the old one. None removes the key."""
    changed = dict(values or {})
    if value is None:
        changed.pop(key, None)
    else:
        changed[key] = value
    return changed


def _set_or_remove(target: dict[Key, Value], key: Key, value: Value) -> None:
    if value:
        target[key] = value
    else:
        target.pop(key, None)


def _metric_form(name: str) -> str:
    return name.replace(".", "_")


_REPLAYS: dict[type[MetadataRecord], Callable[[MetadataImage, Any], None]] = {
    TopicRecord: MetadataImage._topic_created,
    RemoveTopicRecord: MetadataImage._topic_removed,
    PartitionRecord: MetadataImage._partition_created,
    PartitionChangeRecord: MetadataImage._partition_changed,
    ConfigRecord: MetadataImage._config_changed,
    FeatureLevelRecord: MetadataImage._feature_changed,
    ClientQuotaRecord: MetadataImage._quota_changed,
    UserScramCredentialRecord: MetadataImage._credential_created,
    RemoveUserScramCredentialRecord: MetadataImage._credential_removed,
    ProducerIdsRecord: MetadataImage._producer_ids_allocated,
    RegisterBrokerRecord: MetadataImage._broker_registered,
    BrokerRegistrationChangeRecord: MetadataImage._broker_changed,
    UnregisterBrokerRecord: MetadataImage._broker_unregistered,
    ClusterRecord: MetadataImage._cluster_id_set,
    NoOpRecord: MetadataImage._nothing,
}
