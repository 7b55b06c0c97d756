"""The changes of partitions when the state of a broker changes.

    fenced, stops at once    it leaves ISRs, others lead            then: it is fenced
    controlled shutdown      first: it is stopping                  then: it leaves ISRs, others lead
    unfenced                 first: it is unfenced                  then: leaderless partitions get leaders
    registers again          it leaves ISRs; after an unclean stop ELRs too     then: its registration
    unregistered             it leaves ISRs and ELRs                then: its registration is removed
    directories fail         its replicas there leave ISRs          then: the remaining directories

A controller that fails in the middle leaves a state from which its successor does the same again: a broker
that is not fenced yet has a session that expires.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from runnel.controller.image import MetadataImage
from runnel.controller.image_nodes import FENCE, UNFENCE
from runnel.controller.partition_change import NO_BROKER, Election, PartitionChange, may_lead_in
from runnel.controller.partition_index import (
    BLOCK,
    PartitionIndex,
    PartitionSet,
    partitions_at,
    topic_of,
)
from runnel.controller.settings import Settings
from runnel.controller.steps import PARTITIONS_PER_STEP, Steps
from runnel.controller.topic_policies import TopicPolicies, TopicPolicy
from runnel.controller.values import PartitionState, Topic
from runnel.schemas.metadata import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)

EMPTY: PartitionSet = {}

Select = Callable[[PartitionIndex], PartitionSet]

Unfinished = Generator[list[MetadataRecord], MetadataImage, tuple[MetadataImage, list[MetadataRecord]]]
"""Steps that return the image and a last batch, which is not yielded yet."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why partitions change: which broker leaves, is unfenced, or may have lost records."""

    leaving: int = NO_BROKER
    unfenced: int = NO_BROKER
    lost: int = NO_BROKER
    directories: tuple[bytes, ...] | None = None
    """Only replicas of the leaving broker in these directories leave."""
    election: Election = Election.ONLINE

    @property
    def removed(self) -> int:
        """The broker that leaves all ISRs."""
        return self.leaving if self.lost == NO_BROKER else self.lost


class PartitionChanges:
    """The changes of single partitions for one reason. Partitions in equal states change equally."""

    __slots__ = ("_image", "_known", "_may_lead", "_policies", "_reason")

    def __init__(self, image: MetadataImage, settings: Settings, reason: Reason) -> None:
        self._image = image
        self._reason = reason
        self._policies = TopicPolicies(image, settings)
        self._may_lead = may_lead_in(image, without=reason.removed, with_=reason.unfenced)
        self._known: dict[tuple[int, TopicPolicy], tuple[PartitionState, PartitionChangeRecord | None]] = {}

    def policy_of(self, topic: Topic) -> TopicPolicy:
        """The policy of a topic, for `of`."""
        return self._policies.of(topic)

    def of(self, topic: Topic, index: int, policy: TopicPolicy) -> PartitionChangeRecord | None:
        """The change of one partition, or None."""
        state = topic.partitions[index]
        key = id(state), policy
        known = self._known.get(key)
        if known is None:
            # With the state, so that its id is not reused.
            known = self._known[key] = state, self._decide(state, policy)
        change = known[1]
        if change is None:
            return None
        return PartitionChangeRecord(
            index,
            topic.id,
            change.isr,
            change.leader,
            change.replicas,
            change.removing_replicas,
            change.adding_replicas,
            change.leader_recovery_state,
            change.directories,
            change.eligible_leader_replicas,
            change.last_known_elr,
        )

    def _decide(self, state: PartitionState, policy: TopicPolicy) -> PartitionChangeRecord | None:
        reason = self._reason
        if reason.directories is not None and not _is_in(state, reason.leaving, reason.directories):
            return None
        change = PartitionChange(self._image, state, policy.min_isr, self._may_lead)
        is_unclean = policy.is_unclean and reason.election is Election.ONLINE
        change.election = Election.UNCLEAN if is_unclean else reason.election
        change.isr = [broker for broker in state.isr if broker != reason.removed]
        change.lost = reason.lost
        return change.build()


def change_partitions(
    image: MetadataImage,
    settings: Settings,
    reason: Reason,
    selections: Sequence[Select],
    batch: list[MetadataRecord],
) -> Unfinished:
    """Change all selected partitions. Once the returned batch is replayed, none of them changes again."""
    walk = _Walk(image, settings, reason, batch)
    for select in selections:
        for key in list(select(walk.image.index)):
            yield from walk.change(select, key)
    if walk.has_yielded:
        # Other changes were made in between: examine all again, in one step with what the caller adds.
        yield from walk.end_step()
        for select in selections:
            for key in list(select(walk.image.index)):
                walk.change_all(key, walk.waiting(select, key))
    return walk.image, walk.batch


class _Walk:
    """An iteration over the selected partitions, a bounded number of them in each step."""

    __slots__ = (
        "_changes",
        "_reason",
        "_room",
        "_settings",
        "_unchanging",
        "batch",
        "has_yielded",
        "image",
    )

    def __init__(
        self, image: MetadataImage, settings: Settings, reason: Reason, batch: list[MetadataRecord]
    ) -> None:
        self.image = image
        self.batch = batch
        self.has_yielded = False
        self._settings = settings
        self._reason = reason
        self._room = PARTITIONS_PER_STEP
        self._changes = PartitionChanges(image, settings, reason)
        self._unchanging: PartitionSet = {}
        """Partitions that do not change."""

    def change(self, select: Select, key: bytes) -> Generator[list[MetadataRecord], MetadataImage, None]:
        """Change the partitions of one entry of the index."""
        seen = 0
        while True:
            # Read in each step: the partitions may have changed, and the topic may have been deleted.
            waiting = self.waiting(select, key) & ~seen
            if waiting:
                seen |= self._change_some(key, waiting)
            self._room -= 1
            if self._room > 0:
                return
            yield from self.end_step()

    def change_all(self, key: bytes, waiting: int) -> None:
        """Change the partitions of one entry in this step."""
        self._room = waiting.bit_count() + 1
        if waiting:
            self._change_some(key, waiting)

    def waiting(self, select: Select, key: bytes) -> int:
        """The partitions of an entry that may change."""
        index, unchanging = self.image.index, self._unchanging.get(key, 0)
        if self._reason.removed != NO_BROKER and self._reason.directories is None:
            # The last member of an ISR stays in it; if it becomes leader again, the partition changes.
            unchanging &= index.leaderless.get(key, 0)
        return select(index).get(key, 0) & ~unchanging

    def end_step(self) -> Generator[list[MetadataRecord], MetadataImage, None]:
        """Yield the batch, and continue with the image in which it is replayed."""
        self.image = yield self.batch
        self.batch, self.has_yielded, self._room = [], True, PARTITIONS_PER_STEP
        # Once unfenced, the broker may lead as long as it is active in the image.
        self._reason = replace(self._reason, unfenced=NO_BROKER)
        self._changes = PartitionChanges(self.image, self._settings, self._reason)

    def _change_some(self, key: bytes, waiting: int) -> int:
        """Change partitions until the step ends; returns those that were examined, as bits."""
        topic = self.image.topics_by_id[topic_of(key)]
        policy = self._changes.policy_of(topic)
        examined = unchanging = 0
        for index in partitions_at(key, waiting):
            bit = 1 << index % BLOCK
            examined |= bit
            record = self._changes.of(topic, index, policy)
            if record is None:
                unchanging |= bit
            else:
                self.batch.append(record)
            self._room -= 1
            if self._room <= 0:
                break
        if unchanging:
            self._unchanging[key] = self._unchanging.get(key, 0) | unchanging
        return examined


def fence_broker(image: MetadataImage, settings: Settings, broker_id: int) -> Steps[None]:
    """It leaves all ISRs and leads nothing; then it is fenced."""
    epoch = image.brokers[broker_id].epoch
    image, batch = yield from change_partitions(
        image, settings, Reason(leaving=broker_id), [_in_sync(broker_id)], []
    )
    broker = image.brokers.get(broker_id)
    if broker is not None and broker.epoch == epoch and not broker.is_fenced:
        batch.append(BrokerRegistrationChangeRecord(broker_id, epoch, fenced=FENCE))
    if batch:
        yield batch


def unfence_broker(image: MetadataImage, settings: Settings, broker_id: int) -> Steps[None]:
    """It is unfenced, and partitions without a leader elect one."""
    unfenced = BrokerRegistrationChangeRecord(broker_id, image.brokers[broker_id].epoch, fenced=UNFENCE)
    _, batch = yield from change_partitions(
        image, settings, Reason(unfenced=broker_id), [lambda index: index.leaderless], [unfenced]
    )
    if batch:
        yield batch


def stop_broker(image: MetadataImage, settings: Settings, broker_id: int) -> Steps[None]:
    """It enters its controlled shutdown: it leaves all ISRs, and others lead."""
    broker = image.brokers[broker_id]
    stopping = BrokerRegistrationChangeRecord(broker_id, broker.epoch, in_controlled_shutdown=1)
    first: list[MetadataRecord] = [] if broker.is_stopping else [stopping]
    _, batch = yield from change_partitions(
        image, settings, Reason(leaving=broker_id), [_in_sync(broker_id)], first
    )
    if batch:
        yield batch


def leave_partitions(
    image: MetadataImage, settings: Settings, broker_id: int, *, is_clean: bool
) -> Unfinished:
    """A broker that stopped leaves all ISRs, and ELRs unless it stopped cleanly."""
    if is_clean or not image.has_eligible_replicas:
        return change_partitions(image, settings, Reason(leaving=broker_id), [_in_sync(broker_id)], [])
    selections = [_in_sync(broker_id), lambda index: index.eligible.get(broker_id, EMPTY)]
    return change_partitions(image, settings, Reason(lost=broker_id), selections, [])


def unregister_broker(image: MetadataImage, settings: Settings, broker_id: int) -> Steps[None]:
    """It leaves all ISRs and ELRs; then its registration is removed."""
    image, batch = yield from leave_partitions(image, settings, broker_id, is_clean=False)
    broker = image.brokers.get(broker_id)
    if broker is not None:
        batch.append(UnregisterBrokerRecord(broker_id, broker.epoch))
    if batch:
        yield batch


def fail_directories(
    image: MetadataImage, settings: Settings, broker_id: int, failed: tuple[bytes, ...]
) -> Steps[None]:
    """Replicas in these directories of a broker leave their ISRs; then it has only the remaining ones."""
    epoch = image.brokers[broker_id].epoch
    reason = Reason(leaving=broker_id, directories=failed)
    image, batch = yield from change_partitions(image, settings, reason, [_in_sync(broker_id)], [])
    broker = image.brokers.get(broker_id)
    if broker is not None and broker.epoch == epoch:
        online = [directory for directory in broker.directories if directory not in failed]
        batch.append(BrokerRegistrationChangeRecord(broker_id, epoch, log_dirs=online))
    if batch:
        yield batch


def _in_sync(broker_id: int) -> Select:
    return lambda index: index.in_sync.get(broker_id, EMPTY)


def _is_in(state: PartitionState, broker_id: int, directories: tuple[bytes, ...]) -> bool:
    return any(
        replica == broker_id and directory in directories
        for replica, directory in zip(state.replicas, state.directories, strict=True)
    )
