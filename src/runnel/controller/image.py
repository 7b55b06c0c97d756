"""The metadata image: the state of the cluster after replaying its metadata records.

TopicRecord, PartitionRecord, PartitionChangeRecord, ClearElr…, RemoveTopic…  → topics, topics_by_id
RegisterBrokerRecord, BrokerRegistrationChange…, Unregister…                  → brokers
RegisterControllerRecord                                                      → controllers
ConfigRecord                                                                  → configs
FeatureLevelRecord                                                            → features
ClientQuotaRecord                                                             → quotas
UserScramCredentialRecord, RemoveUserScramCredentialRecord                    → credentials
AccessControlEntryRecord, RemoveAccessControlEntryRecord                      → acls
DelegationTokenRecord, RemoveDelegationTokenRecord                            → tokens
ProducerIdsRecord                                                             → next_producer_id
ClusterRecord                                                                 → cluster_id, in older logs
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from runnel.controller.features import ELIGIBLE_REPLICAS_VERSION, METADATA_LEVEL, METADATA_VERSION
from runnel.controller.image_nodes import NODE_REPLAYS, BadMetadata, set_or_remove
from runnel.controller.partition_index import PartitionIndex
from runnel.controller.values import (
    MIGRATING_DIRECTORY,
    BrokerRegistration,
    ConfigResource,
    ControllerRegistration,
    DelegationToken,
    PartitionState,
    QuotaEntity,
    ScramCredential,
    Topic,
)
from runnel.model.configs import ResourceType
from runnel.schemas.metadata import (
    ClearElrRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    SnapshotRecord,
    TopicRecord,
)
from runnel.security.acl import AccessControlEntry

__all__ = ["UNCHANGED", "BadMetadata", "MetadataImage", "state_after"]

STATES_MIN = 1000
"""The minimum size of the cache of shared partition states."""

UNCHANGED = -2
"""The leader of a PartitionChangeRecord that does not change the leader."""

INDEX_STEP = 2000
"""Partitions that are added to the index in one step: some milliseconds."""


@dataclass(slots=True)
class MetadataImage:
    """The state after the records up to `version`. Lookups take constant time."""

    version: int = 0
    """The offset after the last replayed record; images of one log with equal versions are equal."""
    idle_offsets: int = field(default=0, compare=False)
    """The number of offsets before `version` whose records changed nothing."""
    offset: int = 0
    """The offset of the record that is replayed."""
    cluster_id: str = ""
    """Only in logs of older releases: the id is in meta.properties."""
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[bytes, Topic] = field(default_factory=dict)
    partition_count: int = 0
    configs: dict[ConfigResource, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    credentials: dict[str, dict[int, ScramCredential]] = field(default_factory=dict)
    """By user, then by mechanism."""
    acls: dict[bytes, AccessControlEntry] = field(default_factory=dict)
    acl_ids: dict[AccessControlEntry, bytes] = field(default_factory=dict, compare=False)
    """`acls` by content: no two are equal."""
    tokens: dict[str, DelegationToken] = field(default_factory=dict)
    next_producer_id: int = 0
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    controllers: dict[int, ControllerRegistration] = field(default_factory=dict)
    _names_by_metric: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names with '.' or '_' by their metric name, in which the two are not distinguished."""
    _states: dict[tuple[object, ...], PartitionState] = field(default_factory=dict)
    """Interned partition states."""
    _names: list[str] | None = None
    _index: PartitionIndex | None = field(default=None, compare=False)
    _unindexed: dict[bytes, None] = field(default_factory=dict, compare=False)
    """Topics that are not in the index yet, in the order in which all nodes have them."""
    _token: object = field(default_factory=object, compare=False)
    """Marks the topics that this image owns."""

    @property
    def metadata_level(self) -> int:
        """The finalized level of metadata.version: what may be written."""
        return self.features.get(METADATA_VERSION, METADATA_LEVEL)

    @property
    def has_eligible_replicas(self) -> bool:
        """Is the ELR enabled (KIP-966)?"""
        return self.features.get(ELIGIBLE_REPLICAS_VERSION, 0) > 0

    @property
    def index(self) -> PartitionIndex:
        """Partitions by broker, built by the first use unless `build_index` did. Replaying updates it."""
        if self._index is None or self._unindexed:
            for _ in self.build_index():
                pass
        assert self._index is not None
        return self._index

    def build_index(self) -> Iterator[None]:
        """Build the index in steps; the image may change between them."""
        if self._index is None:
            self._index, self._unindexed = PartitionIndex(), dict.fromkeys(self.topics_by_id)
        count = 0
        for topic_id in list(self._unindexed):
            if topic_id not in self._unindexed:
                continue
            del self._unindexed[topic_id]
            topic = self.topics_by_id[topic_id]
            self._index.created(topic)
            count += len(topic.partitions)
            if count >= INDEX_STEP:
                count = 0
                yield

    @property
    def content_version(self) -> int:
        """Like `version`, but the same after records that only show that the controller is alive."""
        return self.version - self.idle_offsets

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

    def is_active(self, broker_id: int) -> bool:
        """Is this broker registered, and neither fenced nor stopping?"""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def copy(self) -> "MetadataImage":
        """An independent copy. Topics are shared until one of the images changes them (copy-on-write)."""
        return replace(
            self.frozen(),
            topics_by_id=self.topics_by_id.copy(),
            acl_ids=self.acl_ids.copy(),
            _names_by_metric=self._names_by_metric.copy(),
            _index=None if self._index is None else self._index.copy(),
            _unindexed=self._unindexed.copy(),
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
            acls=self.acls.copy(),
            acl_ids={},
            tokens=self.tokens.copy(),
            brokers=self.brokers.copy(),
            controllers=self.controllers.copy(),
            _names_by_metric={},
            _index=None,
            _unindexed={},
            _token=object(),
        )

    def become(self, other: "MetadataImage") -> None:
        """Take over the state of another image, which must not be used afterwards."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record; BadMetadata if it is inconsistent with the image."""
        change = _REPLAYS.get(type(record))
        if change is None:
            raise BadMetadata(f"{type(record).__name__} is not supported by this release")
        change(self, record)

    def replay_batch(self, records: Iterable[MetadataRecord], version: int) -> None:
        """Apply one batch, which ends at `version`.

        Records of a transaction must be held back until it ends (`OpenTransaction`). In logs of older
        releases, the first record of a snapshot resets the image.
        """
        records = records if isinstance(records, list) else list(records)
        self.offset = version - len(records)
        for record in records:
            if type(record) is SnapshotRecord:
                self.__init__()  # type: ignore[misc]
            else:
                self.replay(record)
            self.offset += 1
        is_idle = all(type(record) is NoOpRecord for record in records)
        self.idle_offsets = self.idle_offsets + version - self.version if is_idle else 0
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
        set_or_remove(self._names_by_metric, form, names)
        if topic.id in self._unindexed:
            del self._unindexed[topic.id]
        elif self._index is not None:
            self._index.removed(topic)

    def _partition_created(self, record: PartitionRecord) -> None:
        topic = self._own_topic(record.topic_id, record)
        if record.partition_id != len(topic.partitions):
            raise BadMetadata(
                f"partition {record.partition_id} is created, but {len(topic.partitions)} is next"
            )
        directories = tuple(record.directories) or (MIGRATING_DIRECTORY,) * len(record.replicas)
        # Looked up before it is created, because most partitions have equal states.
        state = self._interned(
            (
                tuple(record.replicas),
                tuple(record.isr),
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                directories,
                tuple(record.adding_replicas),
                tuple(record.removing_replicas),
                record.leader_recovery_state,
                tuple(record.eligible_leader_replicas or ()),
                tuple(record.last_known_elr or ()),
            )
        )
        topic.partitions.append(state)
        self.partition_count += 1
        if self._index is not None and topic.id not in self._unindexed:
            self._index.changed(topic.id, record.partition_id, None, state)

    def _partition_changed(self, record: PartitionChangeRecord) -> None:
        topic = self._own_topic(record.topic_id, record)
        if not 0 <= record.partition_id < len(topic.partitions):
            raise BadMetadata(f"{topic.name}-{record.partition_id} is changed, but does not exist")
        self._change(topic, record.partition_id, _values_after(topic.partitions[record.partition_id], record))

    def _change(self, topic: Topic, index: int, values: tuple[Any, ...]) -> None:
        """Give a partition of an owned topic a new state."""
        if len(self._states) > 2 * self.partition_count + STATES_MIN:
            # Most entries are stale by now. Clearing the cache only loses sharing.
            self._states.clear()
        old, new = topic.partitions[index], self._interned(values)
        topic.partitions[index] = new
        if self._index is not None and topic.id not in self._unindexed:
            self._index.changed(topic.id, index, old, new)

    def _interned(self, values: tuple[Any, ...]) -> PartitionState:
        state = self._states.get(values)
        if state is None:
            state = self._states[values] = PartitionState(*values)
        return state

    def _eligible_cleared(self, record: ClearElrRecord) -> None:
        names = [record.topic_name] if record.topic_name else list(self.topics)
        for name in names:
            topic = self.topics.get(name)
            if topic is None:
                raise BadMetadata(f"the ELR of the unknown topic {name} is cleared")
            for index, state in enumerate(topic.partitions):
                if state.eligible or state.last_known_eligible:
                    change = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                    self._change(self._own_topic(topic.id, record), index, _values_after(state, change))


def state_after(state: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """The state of a partition after a change."""
    return PartitionState(*_values_after(state, record))


def _values_after(old: PartitionState, record: PartitionChangeRecord) -> tuple[Any, ...]:
    """The values of a partition's state after a change; `None` fields of the record are unchanged."""
    replicas = old.replicas if record.replicas is None else tuple(record.replicas)
    if record.directories is not None:
        directories = tuple(record.directories)
    elif replicas is old.replicas:
        directories = old.directories
    else:
        known = dict(zip(old.replicas, old.directories, strict=True))
        directories = tuple(known.get(broker, MIGRATING_DIRECTORY) for broker in replicas)
    # Every leader in a change record starts a new epoch, even if it is the current one.
    is_election = record.leader != UNCHANGED
    eligible, last_known = record.eligible_leader_replicas, record.last_known_elr
    return (
        replicas,
        old.isr if record.isr is None else tuple(record.isr),
        record.leader if is_election else old.leader,
        old.leader_epoch + is_election,
        old.partition_epoch + 1,
        directories,
        old.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        old.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        old.recovery if record.leader_recovery_state < 0 else record.leader_recovery_state,
        old.eligible if eligible is None else tuple(eligible),
        old.last_known_eligible if last_known is None else tuple(last_known),
    )


def _metric_form(name: str) -> str:
    return name.replace(".", "_")


_REPLAYS: dict[type[MetadataRecord], Callable[[MetadataImage, Any], None]] = {
    TopicRecord: MetadataImage._topic_created,
    RemoveTopicRecord: MetadataImage._topic_removed,
    PartitionRecord: MetadataImage._partition_created,
    PartitionChangeRecord: MetadataImage._partition_changed,
    ClearElrRecord: MetadataImage._eligible_cleared,
    **NODE_REPLAYS,
}
