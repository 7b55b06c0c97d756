"""Values of the quorum: replicas, addresses, timing, requests, replies and outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID, NO_LEADER, SnapshotId

UNKNOWN_OFFSET = -1
NO_SNAPSHOT = SnapshotId(-1, -1)


class ReplicaKey(NamedTuple):
    """A replica: its node, and the directory with its metadata log. Another directory is another replica."""

    id: int
    directory_id: bytes = NO_ID


class Endpoint(NamedTuple):
    """The address of a node under the name of a listener."""

    name: str
    host: str
    port: int


class Peer(NamedTuple):
    """A node to send requests to; a bootstrap server, whose node id is unknown, has a negative id."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumTiming:
    """Timeouts in milliseconds, and how much a fetch may return; the settings controller.quorum.*."""

    election_timeout_ms: int = 500
    fetch_timeout_ms: int = 1000
    retry_backoff_ms: int = 20
    election_backoff_max_ms: int = 500
    unreachable_election_ms: int = 100
    """The time between the voters' attempts to replace a leader whose process ended; 0 for none."""
    fetch_max_bytes: int = 1024 * 1024
    snapshot_max_bytes: int = 1024 * 1024

    @property
    def check_quorum_ms(self) -> int:
        """A leader from which no majority has fetched for this long resigns."""
        return self.fetch_timeout_ms * 3 // 2


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The durable state of a member: its epoch, the leader of that epoch, and its vote in that epoch."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None


class LogView(Protocol):
    """The local log, as far as elections and fetches depend on it."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The offset after the last record that is written."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot before the log; 0 if there is neither."""
        ...

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above this one, its end offset); the log's start if all epochs are above."""
        ...

    @property
    def snapshots(self) -> Sequence[SnapshotId]:
        """The snapshots that may be fetched, newest first."""
        ...


# -- requests, in the form in which the core sends and receives them


@dataclass(frozen=True, slots=True)
class Vote:
    """A candidate requests a vote in `epoch`; in a pre-vote, whether it would be granted."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey | None
    """The addressed voter; None if the sender does not know it."""
    last_epoch: int
    end_offset: int
    is_pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """The leader of a new epoch announces itself to a voter."""

    epoch: int
    leader_id: int
    voter: ReplicaKey | None
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """A leader resigns; the voters, the one with the most complete log first, may succeed it."""

    epoch: int
    leader_id: int
    candidates: tuple[ReplicaKey, ...]
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """A replica fetches from its end offset, which acknowledges everything below."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    high_watermark: int = UNKNOWN_OFFSET
    may_wait: bool = True
    """The leader may delay the reply until there is something new."""


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """A replica fetches the next page of a snapshot."""

    epoch: int
    replica: ReplicaKey
    snapshot: SnapshotId
    position: int


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    """A voter reports its present listeners and the levels of kraft.version that it supports."""

    epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_versions: tuple[int, int]


@dataclass(frozen=True, slots=True)
class AddVoter:
    """A controller that is not a voter requests to become one."""

    epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """A controller requests that its earlier incarnation, with a directory it no longer has, be removed."""

    epoch: int
    voter: ReplicaKey


Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot | UpdateVoter | AddVoter | RemoveVoter


# -- replies


@dataclass(slots=True)
class Reply:
    """What every reply reports: the epoch of its sender, and the leader of that epoch with its address."""

    error: ErrorCode
    epoch: int
    leader_id: int = NO_LEADER
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class VoteReply(Reply):
    """The vote."""

    is_granted: bool = False


@dataclass(slots=True)
class FetchReply(Reply):
    """Records from the fetched offset on; or where the logs diverge; or the snapshot to fetch instead."""

    high_watermark: int = UNKNOWN_OFFSET
    diverging: tuple[int, int] | None = None
    """(epoch, its end offset) in the leader's log."""
    snapshot: SnapshotId | None = None
    records: memoryview = field(default_factory=lambda: memoryview(b""))


@dataclass(slots=True)
class SnapshotReply(Reply):
    """A page of a snapshot."""

    snapshot: SnapshotId = NO_SNAPSHOT
    size_bytes: int = 0
    position: int = 0
    data: memoryview = field(default_factory=lambda: memoryview(b""))


# -- outputs, to be carried out in order


@dataclass(frozen=True, slots=True)
class StoreState:
    """Make this durable before any later output is carried out."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request, and report its reply or failure."""

    peer: Peer
    request: Request


@dataclass(frozen=True, slots=True)
class Lead:
    """Append the first batch of the epoch, which this node leads."""

    epoch: int
    granting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Follow:
    """The epoch or its leader has changed, and this node does not lead."""

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append these batches of the leader, none of a later epoch, and report it; then make them durable."""

    records: memoryview
    epoch: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to this offset, and report it."""

    offset: int


@dataclass(frozen=True, slots=True)
class WritePage:
    """Add a page to the snapshot that is being fetched; the last page completes it."""

    snapshot: SnapshotId
    position: int
    data: memoryview
    is_last: bool


@dataclass(frozen=True, slots=True)
class Advanced:
    """The high watermark has advanced."""

    high_watermark: int


Output = StoreState | Send | Lead | Follow | Append | Truncate | WritePage | Advanced
