"""A change of one partition, by the rules of Kafka's controller.

    proposed ISR and assignment → completed reassignment → ELR → election → leader epoch → record

The leader must be in the ISR, or in the ELR if the ISR is empty; be active; and have its directory online.
The current leader stays if it can, else the first in the order of the replicas leads. A leader from the ELR,
and any leader of an unclean election, is alone in the ISR at first.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from runnel.controller.features import DIRECTORIES_LEVEL, KEPT_EPOCH_LEVEL
from runnel.controller.image import UNCHANGED, MetadataImage
from runnel.controller.values import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    PartitionState,
)
from runnel.model.ids import NO_LEADER
from runnel.schemas.metadata import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1
"""Whether a leader has recovered from its unclean election."""

NO_BROKER = -1

MayLead = Callable[[int, bytes], bool]
"""Whether a broker, with the replica in this directory, may be leader."""


class Election(Enum):
    """What an election may do."""

    ONLINE = 0
    """Keep the partition online by a leader from the ISR."""
    PREFERRED = 1
    """The same, and return leadership to the first replica."""
    UNCLEAN = 2
    """Keep it online by any replica, which may lose records."""


class PartitionChange:
    """A change of a partition: set the wanted fields, then call `build`."""

    __slots__ = (
        "_brokers",
        "_bumps_on_shrink",
        "_has_directories",
        "_has_eligible",
        "_may_lead",
        "_min_isr",
        "adding",
        "damaged",
        "directories",
        "election",
        "eligible",
        "isr",
        "lost",
        "recovery",
        "removing",
        "replicas",
        "state",
    )

    def __init__(
        self, image: MetadataImage, state: PartitionState, min_isr: int, may_lead: MayLead | None = None
    ) -> None:
        level = image.metadata_level
        self._brokers = image.brokers
        self._has_eligible = image.has_eligible_replicas
        self._has_directories = level >= DIRECTORIES_LEVEL
        self._bumps_on_shrink = level < KEPT_EPOCH_LEVEL
        self._min_isr = min_isr
        self._may_lead = may_lead or may_lead_in(image)
        self.state = state
        self.election = Election.ONLINE
        self.isr: Sequence[int] = state.isr
        self.replicas: Sequence[int] = state.replicas
        self.adding: Sequence[int] = state.adding
        self.removing: Sequence[int] = state.removing
        self.recovery = state.recovery
        self.eligible: Sequence[int] = state.eligible
        self.lost = NO_BROKER
        """A broker that stopped uncleanly: it is not eligible."""
        self.damaged = NO_BROKER
        """A broker whose replica is damaged: it is not even the last known leader."""
        self.directories = dict(zip(state.replicas, state.directories, strict=True))

    def build(self, topic_id: bytes = b"", index: int = -1) -> PartitionChangeRecord | None:
        """The record of the change; None if nothing changes."""
        record = PartitionChangeRecord(index, topic_id)
        self._complete_reassignment()
        self._keep_eligible()
        self._elect(record)
        is_unclean = record.isr is not None
        self._bump_for_removed_replicas(record)
        self._record_eligible(record, is_unclean)
        if not is_unclean and (self.isr or self._has_eligible) and tuple(self.isr) != self.state.isr:
            record.isr = list(self.isr)
        self._bump_for_smaller_isr(record)
        self._record_last_known_leader(record)
        self._record_assignment(record)
        if self.recovery != self.state.recovery:
            record.leader_recovery_state = self.recovery
        return None if _is_empty(record) else record

    def _complete_reassignment(self) -> None:
        """End a reassignment whose target replicas are all in sync."""
        if not self.adding and not self.removing:
            return
        isr = [broker for broker in self.isr if broker not in self.removing]
        replicas = [broker for broker in self.replicas if broker not in self.removing]
        if isr and replicas and set(isr).issuperset(replicas):
            self.isr, self.replicas = isr, replicas
            self.adding, self.removing = (), ()

    def _keep_eligible(self) -> None:
        """While the ISR is below its minimum, replicas that leave it stay eligible."""
        if not self._has_eligible:
            return
        if len(self.isr) >= self._min_isr:
            self.eligible = ()
            return
        left = {*self.eligible, *self.state.isr}.intersection(self.replicas)
        self.eligible = sorted(left - {*self.isr, self.lost})

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, is_unclean = self._leader()
        if leader == self.state.leader:
            return
        if leader in self.eligible:
            self.isr = [leader]
            self.eligible = [broker for broker in self.eligible if broker != leader]
        record.leader = leader
        if is_unclean:
            record.isr = [leader]
            if self.state.recovery != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _leader(self) -> tuple[int, bool]:
        """The leader, and whether it is elected uncleanly."""
        if self.election is Election.PREFERRED and self.replicas and self._is_valid(self.replicas[0]):
            return self.replicas[0], False
        for broker in (self.state.leader, *self.replicas):
            if self._is_valid(broker):
                return broker, False
        if self._may_return_to_last_leader():
            return self.last_known[0], True
        if self.election is Election.UNCLEAN:
            for broker in self.replicas:
                if self._accepts(broker):
                    return broker, True
        return NO_LEADER, False

    def _may_return_to_last_leader(self) -> bool:
        """With ISR and ELR empty: the last leader had all that was committed, unless it lost it."""
        if not self._has_eligible or self.isr or self.eligible:
            return False
        return len(self.last_known) == 1 and self._accepts(self.last_known[0])

    @property
    def last_known(self) -> tuple[int, ...]:
        """The last leader of a partition without one."""
        return self.state.last_known_eligible

    def _is_valid(self, broker: int) -> bool:
        return broker in (self.isr or self.eligible) and self._accepts(broker)

    def _accepts(self, broker: int) -> bool:
        return self._may_lead(broker, self._directory(broker))

    def _directory(self, broker: int) -> bytes:
        known = self.directories.get(broker)
        return default_directory(self._brokers.get(broker)) if known is None else known

    def _bump_for_removed_replicas(self, record: PartitionChangeRecord) -> None:
        """A replica that was removed must not count as a follower of the current epoch."""
        if record.leader == UNCHANGED and not set(self.replicas).issuperset(self.state.replicas):
            record.leader = self.state.leader

    def _bump_for_smaller_isr(self, record: PartitionChangeRecord) -> None:
        if (
            self._bumps_on_shrink
            and record.leader == UNCHANGED
            and record.isr is not None
            and not set(record.isr).issuperset(self.state.isr)
        ):
            record.leader = self.state.leader

    def _record_eligible(self, record: PartitionChangeRecord, is_unclean: bool) -> None:
        if is_unclean or not self._has_eligible:
            self.eligible = ()
        if set(self.eligible) != set(self.state.eligible):
            record.eligible_leader_replicas = list(self.eligible)

    def _record_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if not self._has_eligible:
            return
        state = self.state
        loses_all = record.isr is not None and not record.isr
        if self.damaged != NO_BROKER and self.damaged in (*self.last_known, state.leader):
            if self.last_known:
                record.last_known_elr = []
        elif loses_all and state.leader != NO_LEADER and self.last_known != (state.leader,):
            record.last_known_elr = [state.leader]
        elif not loses_all and self.last_known:
            leader = state.leader if record.leader == UNCHANGED else record.leader
            if leader != NO_LEADER:
                record.last_known_elr = []

    def _record_assignment(self, record: PartitionChangeRecord) -> None:
        state = self.state
        if self._has_directories:
            directories = tuple(map(self._directory, self.replicas))
            if directories != state.directories:
                record.directories = list(directories)
        if tuple(self.replicas) != state.replicas:
            record.replicas = list(self.replicas)
        if tuple(self.removing) != state.removing:
            record.removing_replicas = list(self.removing)
        if tuple(self.adding) != state.adding:
            record.adding_replicas = list(self.adding)


def may_lead_in(image: MetadataImage, without: int = NO_BROKER, with_: int = NO_BROKER) -> MayLead:
    """Active brokers may lead, one more that is about to be active, and not one that is about to leave."""
    brokers = image.brokers

    def may_lead(broker_id: int, directory: bytes) -> bool:
        broker = brokers.get(broker_id)
        if broker is None or broker_id == without or broker.is_stopping:
            return False
        if broker.is_fenced and broker_id != with_:
            return False
        return broker.has_online(directory)

    return may_lead


def default_directory(broker: BrokerRegistration | None) -> bytes:
    """The directory of a new replica; a broker with several directories chooses one itself."""
    if broker is None or len(broker.directories) > 1:
        return UNASSIGNED_DIRECTORY
    return broker.directories[0] if broker.directories else MIGRATING_DIRECTORY


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == UNCHANGED
        and record.leader_recovery_state < 0
        and record.isr is None
        and record.replicas is None
        and record.adding_replicas is None
        and record.removing_replicas is None
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
