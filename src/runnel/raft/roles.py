"""The roles of a member of the quorum, each with its state. `member` has the transitions."""

from dataclasses import dataclass, field

from runnel.model.ids import NO_LEADER, SnapshotId
from runnel.raft.leader import Leader
from runnel.raft.values import UNKNOWN_OFFSET, Endpoint, ReplicaKey


@dataclass(slots=True)
class Ballot:
    """The votes of one round."""

    voters: frozenset[int]
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    """Voters to which the last request failed."""

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.majority

    @property
    def is_hopeless(self) -> bool:
        """It cannot be won unless an unreachable voter returns."""
        return len(self.voters) - len(self.rejected | (self.unreachable & self.missing)) < self.majority

    @property
    def missing(self) -> frozenset[int]:
        """The voters that have not replied."""
        return self.voters - self.granted - self.rejected

    def record(self, voter: int, is_granted: bool) -> None:
        """Record the first reply of a voter."""
        self.unreachable.discard(voter)
        if voter in self.missing:
            (self.granted if is_granted else self.rejected).add(voter)


@dataclass(slots=True)
class Unattached:
    """Knows an epoch, but no leader that it can follow."""

    epoch: int
    deadline_ms: int
    leader_id: int = NO_LEADER
    """The leader of the epoch, if it is known without an address."""
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Prospective:
    """Requests pre-votes: whether it would be elected in a new epoch (KIP-996)."""

    epoch: int
    deadline_ms: int
    ballot: Ballot
    leader_id: int = NO_LEADER
    endpoints: tuple[Endpoint, ...] = ()
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Candidate:
    """Requests votes in an epoch in which it has voted for itself."""

    epoch: int
    deadline_ms: int
    ballot: Ballot
    voted: ReplicaKey | None = None
    leader_id: int = NO_LEADER


@dataclass(slots=True)
class Resigned:
    """Has led this epoch and must not again. Notifies the voters until one is elected in a later epoch."""

    epoch: int
    deadline_ms: int
    leader_id: int
    candidates: tuple[ReplicaKey, ...] = ()
    """Possible successors, the most complete log first."""
    unacknowledged: set[int] = field(default_factory=set)
    """Voters that have not acknowledged the resignation."""
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Follower:
    """Copies the log of the leader of its epoch."""

    epoch: int
    deadline_ms: int
    leader_id: int
    endpoints: tuple[Endpoint, ...]
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    """A fetch succeeded in this epoch: the leader is alive."""
    is_leader_lost: bool = False
    """The connection to the leader broke, or it resigned."""
    is_appending: bool = False
    """The reply to the last fetch is being appended."""
    leader_high_watermark: int = UNKNOWN_OFFSET
    snapshot: SnapshotId | None = None
    """The snapshot that is being fetched."""
    snapshot_position: int = 0
    report_ms: int = 0
    """When to send the next voter request (UpdateVoter, AddVoter or RemoveVoter)."""
    has_reported: bool = False
    """The leader has acknowledged this node's directory and listeners."""


Role = Unattached | Prospective | Candidate | Leader | Resigned | Follower
