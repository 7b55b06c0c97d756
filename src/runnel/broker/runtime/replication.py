"""Replication of the partitions of this node: which it leads, for whom, and from where it fetches the others.

metadata ──► lead, follow, forget          fetch of a follower ──► propose ──► controller
                │
                ├─ fetchers, up to a few per leader
                └─ follower checks: acknowledgements that time out, followers that are no longer in sync
"""

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING

from runnel.broker.runtime.damaged_replicas import DamagedReplicas
from runnel.broker.runtime.directory_assignments import DirectoryAssignments
from runnel.broker.runtime.follower_checks import FollowerChecks
from runnel.broker.runtime.isr_changes import IsrChanges
from runnel.broker.runtime.remedies import only_copy_remedy
from runnel.broker.runtime.replica_fetcher import ReplicaFetcher
from runnel.broker.runtime.replication_throttles import ReplicationThrottle
from runnel.controller.values import PartitionState
from runnel.model.ids import NO_LEADER, TopicPartition
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import LeaderReplica

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

log = logging.getLogger("runnel.broker")

FETCHERS_PER_LEADER_MAX = 4
"""Without num.replica.fetchers. A partition that is added while a fetch waits for records would wait, too: a
new fetcher takes it over. With this many, the one with the fewest partitions begins a new session."""


class Replication:
    """The partitions that this node replicates, as leader and as follower."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.active: dict[int, int] = {}
        """The epochs of brokers that are neither fenced nor shutting down: those that may join an ISR."""
        self.leader_throttle = ReplicationThrottle(broker, "leader")
        self.follower_throttle = ReplicationThrottle(broker, "follower")
        self._isr_changes = IsrChanges(broker)
        self._fetchers: dict[int, list[ReplicaFetcher]] = {}
        """By leader."""
        self._fetcher_of: dict[TopicPartition, ReplicaFetcher] = {}
        self._damaged = DamagedReplicas(broker)
        self._assignments = DirectoryAssignments(broker, self._directory_lost)
        self._checks = FollowerChecks(broker, self._check, self._ticked)
        self._closing: dict[asyncio.Task[None], ReplicaFetcher] = {}
        self.isolated: dict[TopicPartition, None] = {}
        """The partitions that this node leads as far as it knows, while another broker may."""

    # -- roles

    def role(self, state: PartitionState) -> LeaderReplica | FollowerReplica:
        """The role of this node in a partition with this state."""
        node, settings = self._broker.node_id, self._broker.settings
        if state.leader != node:
            return FollowerReplica(node, state.leader_epoch, state.leader)
        return LeaderReplica(
            node,
            state.leader_epoch,
            frozenset(state.replicas),
            frozenset(state.isr),
            partition_epoch=state.partition_epoch,
            lag_max_ms=settings["replica.lag.time.max.ms"],
            silence_max_ms=settings["broker.session.timeout.ms"],
            active=self.active,
            now_ms=self._broker.clock.monotonic_ms(),
        )

    def update(self, partition: "ReplicatedLog", state: PartitionState) -> None:
        """The metadata has this state of a partition of this node: lead, follow, or adapt to another ISR."""
        self._damaged.updated(partition, state)
        self._assignments.updated(partition, state)
        if partition.name in self._damaged:
            self._stop_fetching(partition.name)
        before = partition.replica
        if partition.epoch == state.leader_epoch:
            if partition.has_followers or partition.is_leader:
                if isinstance(before, LeaderReplica) and state.partition_epoch > before.partition_epoch:
                    self._broker.events.isr_changed(before.isr, frozenset(state.isr))
                partition.changed(frozenset(state.replicas), frozenset(state.isr), state.partition_epoch)
                self.opened(partition)
            return
        if partition.epoch > state.leader_epoch:
            return
        role = self.role(state)
        if isinstance(role, LeaderReplica):
            self._stop_fetching(partition.name)
            partition.become_leader(role)
            if isinstance(before, LeaderReplica):
                self._broker.events.isr_changed(before.isr, role.isr)
        else:
            partition.become_follower(role)
        self.opened(partition)

    def compare(self, partition: "ReplicatedLog") -> None:
        """Adapt to the metadata that is known by now."""
        state = self._broker.metadata.image.partition(*partition.name)
        if state is not None and self._broker.partitions.get(partition.name) is partition:
            self.update(partition, state)

    def check(self, partition: "ReplicatedLog") -> None:
        """A log was opened: is it damaged, or was that found by an earlier run?"""
        state = self._broker.metadata.image.partition(*partition.name)
        if state is None:
            return
        self._assignments.updated(partition, state)
        if len(state.replicas) < 2:
            if partition.log.is_damaged:
                log.error(
                    "%s is damaged, and has no other replica. %s",
                    partition.name,
                    only_copy_remedy(partition.name),
                )
            return
        if partition.log.is_damaged:
            self._damaged.add(partition, str(partition.log.failure), is_used=False)
        else:
            self._damaged.updated(partition, state)

    def opened(self, partition: "ReplicatedLog") -> None:
        """Replicate a partition in the role that it has."""
        name, replica = partition.name, partition.replica
        self._checks.remove(name)
        if not partition.is_isolated:
            self.isolated.pop(name, None)
        if name in self._damaged:
            if partition.is_leader:
                partition.suspend()
            self.isolated.pop(name, None)
            return
        if isinstance(replica, LeaderReplica):
            if replica.followers:
                self._checks.add(partition)
        elif isinstance(replica, FollowerReplica) and replica.leader not in (NO_LEADER, replica.node):
            self._fetch(partition, replica.leader)
        else:
            self._stop_fetching(name)

    def forget(self, name: TopicPartition) -> None:
        """The partition was removed from this node."""
        self._damaged.forget(name)
        self._isr_changes.forget(name)
        self._assignments.forget(name)
        self._checks.remove(name)
        self.isolated.pop(name, None)
        self._stop_fetching(name)

    def topic_changed(self, name: str) -> None:
        """The settings of a topic have changed, or it was deleted."""
        self.leader_throttle.topic_changed(name)
        self.follower_throttle.topic_changed(name)

    def brokers_changed(self) -> None:
        """The registrations in the metadata have changed."""
        active = {
            broker.id: broker.epoch
            for broker in self._broker.metadata.image.brokers.values()
            if not broker.is_fenced and not broker.is_stopping
        }
        for node_id in self.active.keys() - active.keys():
            self._broker.suspects.fenced(node_id)
        if active != self.active:
            # The cores of all partitions share this dictionary.
            self.active.clear()
            self.active.update(active)
            self._checks.watch_all()
        self._assignments.brokers_changed()

    async def close(self) -> None:
        """Stop fetching and proposing."""
        self._checks.close()
        fetchers = [fetcher for found in self._fetchers.values() for fetcher in found]
        self._fetchers.clear()
        self._fetcher_of.clear()
        await self._damaged.close()
        await self._assignments.close()
        await self._isr_changes.close()
        if fetchers or self._closing:
            await asyncio.gather(*(fetcher.close() for fetcher in fetchers), *self._closing)

    async def damage_reported(self) -> None:
        """At start: return when no replica that was found damaged can be elected, or after a while."""
        await self._damaged.reported()

    def damaged(self, partition: "ReplicatedLog", reason: str) -> None:
        """A replica that other nodes have, too, is damaged, or may have lost committed records.

        It rejects writes, and is replaced as soon as this node is in no set from which a leader is elected.
        """
        if partition.name in self._damaged:
            return
        self._stop_fetching(partition.name)
        if partition.is_leader:
            partition.suspend()
        self._damaged.add(partition, reason)

    def fetched(self, partition: "ReplicatedLog", high_watermark: int) -> None:
        """A follower has appended what it fetched, and received the high watermark of its leader."""
        if self._damaged.is_any:
            self._damaged.fetched(partition, high_watermark)
        if self._assignments.is_any:
            self._assignments.fetched(partition, high_watermark)

    def _directory_lost(self, partition: "ReplicatedLog") -> None:
        if partition.name not in self._damaged:
            self._damaged.add(partition, "its directory was replaced", is_used=False)

    # -- as a follower

    def _fetch(self, partition: "ReplicatedLog", leader: int) -> None:
        self._stop_fetching(partition.name)
        fetchers = self._fetchers.setdefault(leader, [])
        wanted: int = self._broker.settings["num.replica.fetchers"]
        fetcher = next((fetcher for fetcher in fetchers if not fetcher.is_waiting), None)
        if len(fetchers) < wanted or (fetcher is None and len(fetchers) < FETCHERS_PER_LEADER_MAX):
            # A number of its own: two fetchers on one connection would wait for each other's long polls, and
            # one that is being closed would close it.
            used = {other.number for other in (*fetchers, *self._closing.values()) if other.leader == leader}
            number = next(number for number in count() if number not in used)
            fetcher = ReplicaFetcher(self._broker, leader, number)
            fetchers.append(fetcher)
        elif fetcher is None or wanted > 1:
            fetcher = min(fetchers, key=len)
        self._fetcher_of[partition.name] = fetcher
        fetcher.add(partition)

    def _stop_fetching(self, name: TopicPartition) -> None:
        fetcher = self._fetcher_of.pop(name, None)
        if fetcher is None:
            return
        fetcher.remove(name)
        if not len(fetcher):
            self._fetchers[fetcher.leader].remove(fetcher)
            task = asyncio.get_running_loop().create_task(fetcher.close())
            self._closing[task] = fetcher
            task.add_done_callback(self._closing.pop)

    # -- as the leader

    def propose(self, partition: "ReplicatedLog") -> None:
        """Propose another ISR to the controller, if it should be another one."""
        proposal = partition.leader.propose(self._broker.clock.monotonic_ms())
        if proposal is not None:
            self._isr_changes.submit(partition, proposal)

    def watch(self, partition: "ReplicatedLog") -> None:
        """Examine the followers of this partition as time passes: they may join the ISR, or leave it."""
        self._checks.watch(partition)

    def _ticked(self, now_ms: int) -> None:
        for leader, fetchers in self._fetchers.items():
            if any(fetcher.is_overdue(now_ms) for fetcher in fetchers):
                self._broker.suspects.overdue(leader)

    def _check(self, partition: "ReplicatedLog", now_ms: int) -> bool:
        """Time has passed; False if nothing is to be expected without a fetch or other metadata."""
        partition.expire_acks(now_ms)
        self._isolate(partition, self._broker.may_be_fenced and partition.leader.is_cut_off(now_ms))
        if partition.leader.ticked(now_ms):
            partition.advance()
        self.propose(partition)
        return partition.has_waiters or partition.is_isolated or not partition.leader.is_quiet

    def _isolate(self, partition: "ReplicatedLog", is_isolated: bool) -> None:
        """Take no writes while neither the controller nor followers are in contact with this node.

        As long as all followers fetch, no other broker leads, whatever became of the controller.
        """
        if is_isolated == partition.is_isolated:
            return
        partition.isolate(is_isolated)
        if is_isolated:
            self.isolated[partition.name] = None
            log.warning(
                "%s may be led by another broker: neither the controller nor its followers respond",
                partition.name,
            )
        else:
            self.isolated.pop(partition.name, None)
        self._broker.topic_metadata.listings.clear()
