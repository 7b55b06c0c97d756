"""Replicas of this node that are damaged or may have lost committed records: never elected, fetched again.

    found: rejects writes, does not fetch
      │   the replica is assigned to the lost directory: it leaves ISR and ELR, another replica leads
      ▼
    another broker leads ──► recreated: fetches all records ──► has all that is committed: assigned back
      │
      └─ no other replica can lead: the partition is offline, and the log is kept for the operator's choice

A replica in the lost directory (KIP-858) cannot be elected by any controller, and the leader's proposals from
before that change are refused. Controllers without directories get a new registration of this broker as after
an unclean stop instead, by which it leaves all ISRs and ELRs.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.broker.runtime.assignment_requests import (
    PARTITIONS_MAX,
    RETRY_DELAY_MS,
    AssignmentRequests,
    Assignments,
    directory_of,
)
from runnel.controller.features import DIRECTORIES_LEVEL
from runnel.controller.values import LOST_DIRECTORY, PartitionState
from runnel.model.errors import ApiError
from runnel.model.ids import NO_BROKER_EPOCH, NO_LEADER, TopicPartition
from runnel.model.log_config import LogConfig

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

log = logging.getLogger("runnel.broker")

RECREATED_PER_STEP = 50
STEP_DELAY_MS = 1
REPORT_TIMEOUT_MS = 10_000
"""How long a start waits until the controller knows the damaged replicas."""
_DAMAGED = "a damaged replica could be elected"


@dataclass(slots=True)
class DamagedReplica:
    """A damaged replica, and how far its replacement is."""

    topic_id: bytes
    broker_epoch: int
    """The epoch of the registration in which it may have fetched or led; -1 if it did not since the start."""
    is_recreated: bool = False
    is_whole: bool = False
    """Has it fetched all that is committed?"""
    is_offered: bool = False
    """May the operator elect it as it is?"""
    config: LogConfig | None = None
    """The settings of its log while that is removed and not yet created again."""


class DamagedReplicas:
    """The damaged replicas of this node."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._found: dict[TopicPartition, DamagedReplica] = {}
        self._requests = AssignmentRequests(
            broker, self._next_assignments, "damaged replicas could not be reported", self._register_again
        )
        self._registered_epoch = NO_BROKER_EPOCH
        """The epoch of the registration that is being replaced."""

    def __contains__(self, name: TopicPartition) -> bool:
        """May this replica neither lead nor fetch?"""
        found = self._found.get(name)
        return found is not None and not found.is_recreated

    @property
    def is_any(self) -> bool:
        return bool(self._found)

    def add(self, partition: "ReplicatedLog", reason: str, *, is_used: bool = True) -> None:
        """This replica is damaged; `is_used` if it has led or fetched since the start."""
        name = partition.name
        log.error("%s is damaged, and is fetched again from another replica: %s", name, reason)
        epoch = self._broker.epoch if is_used else NO_BROKER_EPOCH
        self._found[name] = DamagedReplica(partition.topic_id, epoch)
        # Of the others, which may be thousands, `_next_assignments` notes the state.
        if self._is_unreported(name):
            self._broker.disk.unclean.add(_DAMAGED)
        self._requests.send_soon()

    async def reported(self) -> None:
        """At start: return when no damaged replica can be elected, or after a while.

        Without directories there is nothing to wait for: no request reports one replica to the controller.
        """
        metadata = self._broker.metadata
        try:
            async with asyncio.timeout(REPORT_TIMEOUT_MS / 1000):
                while metadata.image.metadata_level >= DIRECTORIES_LEVEL and self._has_candidates():
                    await metadata.changed()
        except TimeoutError:
            log.warning("the controller does not know all damaged replicas yet: one of them may be elected")

    def updated(self, partition: "ReplicatedLog", state: PartitionState) -> None:
        """The metadata has this state of a partition of this node."""
        found = self._found.get(partition.name)
        if found is None or found.topic_id != partition.topic_id:
            if directory_of(state, self._broker.node_id) != LOST_DIRECTORY:
                return
            # An earlier run found it, and may or may not have recreated it.
            self.add(partition, "its records were lost before", is_used=False)
        elif found.is_offered and state.leader == self._broker.node_id:
            log.warning("%s was elected although it is damaged", partition.name)
            del self._found[partition.name]
        elif found.is_whole and directory_of(state, self._broker.node_id) != LOST_DIRECTORY:
            del self._found[partition.name]
        else:
            self._requests.send_soon()

    def fetched(self, partition: "ReplicatedLog", high_watermark: int) -> None:
        """A recreated replica has received the high watermark of its leader."""
        found = self._found.get(partition.name)
        if found is None or found.is_whole or partition.log.written_offset < high_watermark:
            return
        log.warning("%s has all committed records again", partition.name)
        found.is_whole = True
        state = self._broker.metadata.image.partition(*partition.name)
        if state is not None and directory_of(state, self._broker.node_id) != LOST_DIRECTORY:
            del self._found[partition.name]
        else:
            self._requests.send_soon()

    def forget(self, name: TopicPartition) -> None:
        """The partition was removed from this node."""
        if self._found.pop(name, None) is not None:
            self._requests.send_soon()

    async def close(self) -> None:
        """Stop; the next start continues from the directories in the metadata."""
        await self._requests.close()

    def _note_unreported(self) -> None:
        """A stop is not a clean one while the metadata has a damaged replica among the candidates.

        The next start may not see the damage, and a clean one keeps its place in the ELRs.
        """
        reasons = self._broker.disk.unclean
        reasons.discard(_DAMAGED)
        if self._has_candidates():
            reasons.add(_DAMAGED)

    def _has_candidates(self) -> bool:
        """Is a damaged replica elected, or could it be?"""
        return any(map(self._is_unreported, self._found))

    def _is_unreported(self, name: TopicPartition) -> bool:
        found, state = self._found[name], self._broker.metadata.image.partition(*name)
        return state is not None and not found.is_recreated and self._is_candidate(found, state)

    def _is_candidate(self, found: DamagedReplica, state: PartitionState) -> bool:
        """Is it the leader, or can it be elected? A controller may keep the last member of an ISR there."""
        node = self._broker.node_id
        if node != state.leader and directory_of(state, node) == LOST_DIRECTORY:
            return False
        return not self._has_left(found, state)

    def _next_assignments(self) -> Assignments:
        self._recreate_some()
        self._note_unreported()
        return self._wanted()

    # -- the directory of the replica

    def _wanted(self) -> Assignments:
        """The directories to which replicas have to be assigned."""
        wanted: Assignments = {}
        for name, found in self._found.items():
            state = self._broker.metadata.image.partition(*name)
            if state is not None and len(wanted) < PARTITIONS_MAX:
                directory = self._wanted_directory(found, state)
                if directory is not None:
                    wanted[name] = directory
        return wanted

    def _wanted_directory(self, found: DamagedReplica, state: PartitionState) -> bytes | None:
        is_lost = directory_of(state, self._broker.node_id) == LOST_DIRECTORY
        if is_lost:
            found.is_offered = not found.is_recreated and self._may_be_chosen(found, state)
            is_back = found.is_whole or found.is_offered
            return self._broker.disk.directory_id() if is_back else None
        return None if found.is_recreated or self._has_left(found, state) else LOST_DIRECTORY

    def _may_be_chosen(self, found: DamagedReplica, state: PartitionState) -> bool:
        """Without a leader, after a restart: the operator may elect it uncleanly, no controller does so."""
        node = self._broker.node_id
        is_used = found.broker_epoch == self._broker.epoch
        sets = (*state.isr, *state.eligible, *state.last_known_eligible)
        return state.leader == NO_LEADER and not is_used and node not in sets

    def _register_again(self) -> None:
        epoch = self._broker.epoch
        for name, found in self._found.items():
            if found.broker_epoch == epoch != self._registered_epoch and not found.is_recreated:
                self._registered_epoch = epoch
                self._broker.lost_records(name)
                return

    # -- the log

    def _has_left(self, found: DamagedReplica, state: PartitionState) -> bool:
        """Is it in no set from which a leader is elected, and can no fetch of before bring it back?"""
        node = self._broker.node_id
        if node == state.leader or node in state.isr:
            return False
        if directory_of(state, node) == LOST_DIRECTORY:
            return True
        is_eligible = node in state.eligible or node in state.last_known_eligible
        return not is_eligible and found.broker_epoch != self._broker.epoch

    def _recreate_some(self) -> None:
        """Recreate logs, which are files, in steps between which clients are served."""
        recreated = 0
        for name, found in list(self._found.items()):
            state = self._broker.metadata.image.partition(*name)
            if found.is_recreated or state is None or state.leader == NO_LEADER:
                continue
            if self._has_left(found, state):
                if recreated == RECREATED_PER_STEP:
                    self._broker.timers.call_later(STEP_DELAY_MS, self._requests.send_soon)
                    return
                recreated += 1
                try:
                    self._recreate(name, found, state)
                except (ApiError, OSError) as error:
                    log.warning("%s could not be recreated, will retry: %s", name, error)
                    self._broker.timers.call_later(RETRY_DELAY_MS, self._requests.send_soon)

    def _recreate(self, name: TopicPartition, found: DamagedReplica, state: PartitionState) -> None:
        broker = self._broker
        partition = broker.partitions.get(name)
        if partition is not None:
            if partition.is_changing:
                self._broker.timers.call_later(RETRY_DELAY_MS, self._requests.send_soon)
                return
            found.config = partition.log.config
            broker.disk.remove_log(name)
            broker.close_partition(name)
            self._found[name] = found
        assert found.config is not None
        found.is_recreated = True
        try:
            broker.open_partition(name, found.topic_id, broker.replication.role(state), found.config)
        except BaseException:
            found.is_recreated = False
            raise
        log.warning("%s was removed, and is fetched from node %d", name, state.leader)
