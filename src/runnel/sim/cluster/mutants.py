"""Brokers with one wrong decision each, which the simulator must detect.

Each safety rule below has at least one mutant that breaks it. A mutant that no simulation detects shows that
a fault or an invariant is missing. Each is simulated with the faults under which its mistake matters.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from runnel.broker.runtime import leadership_proof
from runnel.broker.runtime.copied_log import CopiedLog
from runnel.broker.runtime.deduplication import Deduplication
from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.quorum_log import QuorumLog
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.shard_driver import ShardDriver
from runnel.broker.runtime.stored_log import StoredLog
from runnel.controller import alter_partition, image, internal_topics, registrations, snapshot_batches
from runnel.controller.broker_changes import leave_partitions
from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.controller.snapshot import records_of
from runnel.controller.values import PartitionState
from runnel.disk.snapshots import SnapshotFiles
from runnel.log.names import snapshot_name
from runnel.messages.alter_partition import BrokerState
from runnel.messages.create_topics import CreatableTopic
from runnel.model.ids import SnapshotId
from runnel.ports.disk import Slice, Staged
from runnel.raft.leader import Leader
from runnel.raft.polling import Polling
from runnel.raft.requests import Requests
from runnel.raft.roles import Unattached
from runnel.raft.values import Vote
from runnel.raft.voter_changes import VoterChanges
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import Follower, IsrProposal, LeaderReplica
from runnel.schemas.metadata import MetadataRecord, PartitionChangeRecord
from runnel.sim.cluster.node import NodeClock
from runnel.sim.cluster.simulation import SNAPSHOT_BYTES, Shape

SECONDS = 20.0
"""How long faults are injected: longer than usual, so that fewer simulations are needed."""

Patch = tuple[Any, str, Any]
"""Object, attribute, and what replaces it."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong decision, the rule that it breaks, and the simulations that detect it."""

    name: str
    rule: int
    patches: tuple[Patch, ...]
    kinds: tuple[str, ...]
    policy: str = "never"
    workload: str = "records"
    is_dynamic: bool = False
    """Are voters changed?"""
    snapshot_bytes: int = SNAPSHOT_BYTES

    def shape(self, drawn: Shape) -> Shape:
        """The faults under which the mistake matters."""
        return replace(
            drawn,
            kinds=self.kinds,
            policy=self.policy,
            seconds=SECONDS,
            is_dynamic=self.is_dynamic,
            snapshot_bytes=self.snapshot_bytes,
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Make the mistake."""
        with ExitStack() as stack:
            for target, name, replacement in self.patches:
                stack.callback(setattr, target, name, vars(target)[name])
                setattr(target, name, replacement)
            yield


# Rule 1: the high watermark is the minimum over the maximal ISR, and does not move below min ISR.


def commit_in_sync(self: LeaderReplica, *, is_checked: bool) -> bool:
    """LeaderReplica._commit without those that are about to join."""
    if is_checked and self.is_under_min_isr:
        return False
    ends = [follower.end_offset for node, follower in self.followers.items() if node in self.isr]
    committed = min([self.end_offset, *ends])
    if committed <= self.high_watermark:
        return False
    self.high_watermark = committed
    return True


def commit_pending_ignored(self: LeaderReplica) -> bool:
    """Proposed members of the ISR are not waited for."""
    return commit_in_sync(self, is_checked=True)


def commit_below_min_isr(self: LeaderReplica) -> bool:
    """min.insync.replicas is ignored."""
    return commit_in_sync(self, is_checked=False)


# Rule 2: nothing above the high watermark is read, and a new leader starts from the one it knows.

read = StoredLog.read
become_leader = ReplicatedLog.become_leader


def read_to_the_end(
    self: StoredLog, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool, may_block: bool
) -> Slice:
    """Consumers are given all records of the leader."""
    return read(
        self,
        offset,
        max_bytes,
        self.log.written_offset,
        at_least_one=at_least_one,
        may_block=may_block,
    )


def lead_from_the_end(self: ReplicatedLog, replica: Any) -> None:
    """A new leader considers all of its log committed."""
    if isinstance(replica, LeaderReplica):
        replica.high_watermark = max(replica.high_watermark, self.log.written_offset)
    become_leader(self, replica)


# Rule 3: the controller decides about the ISR; stale epochs are refused; fenced brokers are not in sync.

propose = LeaderReplica.propose


def propose_and_apply(self: LeaderReplica, now_ms: int) -> IsrProposal | None:
    """The leader does not wait for the controller."""
    proposal = propose(self, now_ms)
    if proposal is not None:
        self.isr = self.maximal_isr = proposal.nodes
    return proposal


def accept_any_epoch(*arguments: Any) -> None:
    """Stale leader and partition epochs are accepted."""


def may_always_join(self: LeaderReplica, node: int, follower: Follower) -> bool:
    """Also one that is fenced, and one that restarted after its last fetch."""
    return True


def accept_any_member(image: MetadataImage, state: Any, recovery: int, members: list[BrokerState]) -> None:
    """The controller does not compare the proposed ISR with the registrations."""


# Rule 4: followers truncate by epoch.

become_follower = ReplicatedLog.become_follower


def follow_from_high_watermark(self: ReplicatedLog, replica: Any) -> None:
    """A follower truncates its log to its high watermark when it follows another leader."""
    become_follower(self, replica)
    if isinstance(replica, FollowerReplica) and self.log.written_offset > self.high_watermark:
        self.log.truncate_to(self.high_watermark)


# Rule 5: what is acknowledged is durable.

store = QuorumLog._store


def acknowledge_unsynced(self: CopiedLog, stored: "Promise[None]", error: Any) -> None:
    """A follower fetches on before its records are durable."""
    self._is_copying = False
    self._do_deferred()
    if error is not None:
        stored.fail(error)
    else:
        stored.resolve(None)


def store_meanwhile(self: QuorumLog, state: Any) -> None:
    """Votes are answered while quorum-state is being written."""
    store(self, state)
    self._is_blocked = False


# Rule 6: a replica that may have lost records leaves ISR and ELR.


def leave_cleanly(image: MetadataImage, settings: Settings, broker_id: int, *, is_clean: bool) -> Any:
    """Each restart counts as one after a clean stop."""
    return leave_partitions(image, settings, broker_id, is_clean=True)


# Rule 7: coordinators and markers.


def hold_nothing(self: "ShardDriver[Any]", promise: "Promise[Any]", reply: Any, refuse: Any) -> None:
    """A coordinator answers before its records are committed."""
    promise.resolve(reply)


def await_nothing(self: "ShardDriver[Any]", token: Any) -> None:
    """Markers are written before the record that decides about the transaction is committed."""
    self._committed(token)


async def prove_nothing(partition: ReplicatedLog, timeout_ms: int) -> None:
    """A coordinator that was replaced unnoticed answers from what it knows."""


def check_nothing(self: ReplicatedLog) -> None:
    """min.insync.replicas is ignored by writes."""


# Rule 9: internal topics have all their replicas.

internal = internal_topics._internal


def settle_for_fewer(
    image: MetadataImage, settings: Settings, name: str, prefix: str, configs: dict[str, str]
) -> CreatableTopic:
    """Internal topics are created with as many replicas as there are brokers."""
    topic = internal(image, settings, name, prefix, configs)
    active = sum(not broker.is_fenced for broker in image.brokers.values())
    topic.replication_factor = min(topic.replication_factor, max(active, 1))
    return topic


# Rule 10: a member of the quorum votes once in an epoch, and for no log that lacks some of its own records;
# a leader commits records of earlier epochs only with one of its own.

grants = Requests._grants


def grant_again(self: Requests, vote: Vote) -> bool:
    """A vote for another candidate in this epoch is forgotten."""
    role, log = self._member.role, self._member.log
    if isinstance(role, Unattached) and role.voted is not None and not vote.is_pre_vote:
        return (vote.last_epoch, vote.end_offset) >= (log.last_epoch, log.end_offset)
    return grants(self, vote)


def grant_any_log(self: Requests, vote: Vote) -> bool:
    """The candidate's log is not compared with the own one."""
    return grants(self, replace(vote, last_epoch=vote.epoch))


def commit_earlier_epochs(self: Leader) -> bool:
    """Leader.commit without a record of the present epoch."""
    ends = sorted((self.end_offset, *(each.end_offset for each in self.replicas.values())), reverse=True)
    committed = ends[len(ends) // 2]
    if committed <= self.high_watermark:
        return False
    self.high_watermark = committed
    return True


# Rule 11: voters change one at a time.


def change_at_any_time(self: VoterChanges) -> None:
    """The last change need not be committed."""
    self._leader()


# Rule 12: a snapshot has all that is committed below its end, and is durable before the log is shortened.


def write_unsynced(self: SnapshotFiles, snapshot: SnapshotId, batches: Iterable[bytearray]) -> None:
    """A snapshot is in the page cache only."""
    path = f"{self._folder}/{snapshot_name(snapshot)}"
    self._files.write(path, b"".join(batches), sync=False)


def omit_last(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Snapshots lack a record."""
    yield from list(records_of(image))[:-1]


# Rule 13: a leader epoch of a partition has one leader.

values_after = image._values_after


def keep_leader_epoch(old: PartitionState, record: PartitionChangeRecord) -> tuple[Any, ...]:
    """An election does not begin an epoch."""
    replicas, isr, leader, _, *rest = values_after(old, record)
    return (replicas, isr, leader, old.leader_epoch, *rest)


# Rule 14: a leader knows the idempotency key of each record of its log, and of no other; a duplicate is
# acknowledged with the first record.

read_on, stage_with_key = Deduplication._read_on, Deduplication.stage


def read_committed_keys(self: Deduplication, reading: Any) -> None:
    """Deduplication._read_on up to the high watermark only."""
    reading.end_offset = min(reading.end_offset, self._stored.log.high_watermark)
    read_on(self, reading)


def acknowledge_early(self: Deduplication, *batch: Any) -> Staged:
    """Deduplication.stage with duplicates that wait for nothing."""
    staged = stage_with_key(self, *batch)
    return replace(staged, last_offset=-1) if staged.duplicate else staged


PARTITIONS = ("isolation", "one-way partition", "pause", "division")

MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "pending-isr-ignored",
            1,
            ((LeaderReplica, "_commit", commit_pending_ignored),),
            ("stop", "slow network"),
        ),
        Mutant("commit-below-min-isr", 1, ((LeaderReplica, "_commit", commit_below_min_isr),), PARTITIONS),
        Mutant("read-above-high-watermark", 2, ((StoredLog, "read", read_to_the_end),), PARTITIONS),
        Mutant("lead-from-the-end", 2, ((ReplicatedLog, "become_leader", lead_from_the_end),), PARTITIONS),
        Mutant("isr-before-commit", 3, ((LeaderReplica, "propose", propose_and_apply),), PARTITIONS),
        Mutant(
            "stale-partition-epoch", 3, ((alter_partition, "_check_epochs", accept_any_epoch),), PARTITIONS
        ),
        Mutant(
            "fenced-in-isr",
            3,
            (
                (LeaderReplica, "_is_eligible", may_always_join),
                (alter_partition, "_check_isr", accept_any_member),
            ),
            ("one-way partition", "bridge partition", "stop"),
        ),
        Mutant(
            "truncate-to-high-watermark",
            4,
            ((ReplicatedLog, "become_follower", follow_from_high_watermark),),
            (*PARTITIONS, "kill"),
        ),
        Mutant(
            "unsynced-follower",
            5,
            (
                (CopiedLog, "_copied", acknowledge_unsynced),
                (CopiedLog, "fetch_offset", property(lambda self: self.log.written_offset)),
            ),
            ("slow disk",),
            "commit",
        ),
        Mutant("unsynced-vote", 5, ((QuorumLog, "_store", store_meanwhile),), ("kill", "slow disk")),
        Mutant("unsynced-metadata", 5, ((Polling, "_is_durable", lambda self: True),), ("slow disk",)),
        Mutant(
            "lost-tail-stays-eligible",
            6,
            ((registrations, "leave_partitions", leave_cleanly),),
            ("power cut of one node", "isolation", "pause"),
        ),
        Mutant("uncommitted-answer", 7, ((ShardDriver, "_hold", hold_nothing),), PARTITIONS),
        Mutant(
            "marker-before-decision",
            7,
            ((ShardDriver, "_await", await_nothing),),
            PARTITIONS,
            workload="transactions",
        ),
        Mutant(
            "unproven-coordinator",
            7,
            ((leadership_proof, "prove_leadership", prove_nothing),),
            ("isolation", "bridge partition"),
            workload="transactions",
        ),
        Mutant(
            "coordinator-below-min-isr", 7, ((ReplicatedLog, "check_in_sync", check_nothing),), PARTITIONS
        ),
        Mutant("wall-clock", 8, ((NodeClock, "monotonic_ms", NodeClock.now_ms),), ("clock jump",)),
        Mutant("fewer-internal-replicas", 9, ((internal_topics, "_internal", settle_for_fewer),), ("pause",)),
        Mutant("second-vote", 10, ((Requests, "_grants", grant_again),), ("kill of all", "slow network")),
        Mutant("vote-for-incomplete-log", 10, ((Requests, "_grants", grant_any_log),), PARTITIONS),
        Mutant("commit-earlier-epochs", 10, ((Leader, "commit", commit_earlier_epochs),), PARTITIONS),
        Mutant(
            "overlapping-voter-changes",
            11,
            ((VoterChanges, "_check_ready", change_at_any_time),),
            ("slow disk", "isolation"),
            is_dynamic=True,
        ),
        Mutant(
            "unsynced-snapshot",
            12,
            ((SnapshotFiles, "write", write_unsynced),),
            ("kill",),
            snapshot_bytes=1000,
        ),
        Mutant(
            "incomplete-snapshot",
            12,
            ((snapshot_batches, "records_of", omit_last),),
            ("kill", "isolation"),
            snapshot_bytes=1000,
        ),
        Mutant("leader-epoch-kept", 13, ((image, "_values_after", keep_leader_epoch),), PARTITIONS),
        Mutant(
            "keys-of-committed-records",
            14,
            ((Deduplication, "_read_on", read_committed_keys),),
            (*PARTITIONS, "kill"),
            workload="keys",
        ),
        Mutant(
            "early-duplicate",
            14,
            ((Deduplication, "stage", acknowledge_early),),
            (*PARTITIONS, "kill"),
            workload="keys",
        ),
        Mutant(
            "key-of-truncated-record",
            14,
            ((Deduplication, "truncated", lambda self, end_offset: None),),
            ("full disk",),
            workload="keys",
        ),
    )
}
"""By name."""
