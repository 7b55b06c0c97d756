"""Replicas that are assigned to a directory which this node no longer has: reassigned to the current one.

After its disk was replaced, a broker has another directory id. A replica in a directory that is not
registered cannot be elected (KIP-858), so it is assigned to the new one, in which it is fetched again. One
that could then be elected because of records it had before is damaged instead: these may be lost.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from runnel.broker.runtime.assignment_requests import (
    PARTITIONS_MAX,
    AssignmentRequests,
    Assignments,
    directory_of,
)
from runnel.controller.features import DIRECTORIES_LEVEL
from runnel.controller.values import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    PartitionState,
)
from runnel.model.ids import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

_NO_DIRECTORIES = (None, LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)


class DirectoryAssignments:
    """The replicas of this node that are to be assigned to its directory."""

    def __init__(self, broker: "Broker", on_lost: "Callable[[ReplicatedLog], None]") -> None:
        self._broker = broker
        self._on_lost = on_lost
        """Called with a replica whose records may be lost, and which could be elected."""
        self._pending: dict[TopicPartition, bool] = {}
        """Replicas to assign, and whether each has fetched all that is committed."""
        self._requests = AssignmentRequests(
            broker, self._wanted, "replicas could not be assigned to their directory"
        )

    @property
    def is_any(self) -> bool:
        return bool(self._pending)

    def updated(self, partition: "ReplicatedLog", state: PartitionState) -> None:
        """The metadata has this state of a partition of this node."""
        name = partition.name
        if not self._is_elsewhere(state):
            self._pending.pop(name, None)
        elif self._is_safe(name, state):
            self._pending.setdefault(name, False)
            self._requests.send_soon()
        else:
            self._pending.pop(name, None)
            self._on_lost(partition)

    def fetched(self, partition: "ReplicatedLog", high_watermark: int) -> None:
        """A follower has received the high watermark of its leader."""
        if partition.name in self._pending and partition.log.written_offset >= high_watermark:
            self._pending[partition.name] = True

    def forget(self, name: TopicPartition) -> None:
        """The partition was removed from this node."""
        self._pending.pop(name, None)

    def brokers_changed(self) -> None:
        """The registrations in the metadata have changed: that of this node may have its directory now."""
        if self._pending:
            self._requests.send_soon()

    async def close(self) -> None:
        """Stop; the next start continues."""
        await self._requests.close()

    def _is_elsewhere(self, state: PartitionState) -> bool:
        directory = directory_of(state, self._broker.node_id)
        if directory == self._broker.disk.directory_id() or directory in _NO_DIRECTORIES:
            return False
        return self._broker.metadata.image.metadata_level >= DIRECTORIES_LEVEL

    def _is_safe(self, name: TopicPartition, state: PartitionState) -> bool:
        """Would it be elected only for records that it has fetched again?

        A broker that registers leaves the ISRs of partitions that others lead. If it is in one again, the
        leader has verified that it has all records.
        """
        node = self._broker.node_id
        if self._pending.get(name):
            return True
        was_in_sync = node in state.isr and state.leader == NO_LEADER
        return not was_in_sync and node not in state.eligible and node not in state.last_known_eligible

    def _is_registered(self) -> bool:
        """Is the current directory registered? Otherwise the replica would leave its ISR."""
        broker = self._broker
        known = broker.metadata.image.brokers.get(broker.node_id)
        return (
            known is not None
            and known.epoch == broker.epoch
            and broker.disk.directory_id() in known.directories
        )

    def _wanted(self) -> Assignments:
        wanted: Assignments = {}
        if not self._is_registered():
            return wanted
        directory = self._broker.disk.directory_id()
        for name in self._pending:
            # The image may be ahead of what this node has applied.
            state = self._broker.metadata.image.partition(*name)
            if state is not None and self._is_elsewhere(state) and self._is_safe(name, state):
                wanted[name] = directory
            if len(wanted) == PARTITIONS_MAX:
                break
        return wanted
