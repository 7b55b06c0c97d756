"""The leader's view: how far each replica has fetched, what is committed, and whether a majority follows.

    high watermark = the largest offset that a majority of the voters has stored, if above the epoch's start

A record of an earlier epoch is never committed by counting replicas (Raft, section 5.4.2), so the high
watermark is unknown until the first batch of the epoch is on a majority.
"""

from dataclasses import dataclass, field

from runnel.model.ids import NO_ID
from runnel.raft.values import UNKNOWN_OFFSET, ReplicaKey
from runnel.raft.voters import Voters

NEVER = -1
OBSERVER_SESSION_MS = 5 * 60 * 1000
"""An observer that has not fetched for this long is removed."""
OBSERVER_CHECK_INTERVAL_MS = 60 * 1000
"""How often expired observers are removed."""
OBSERVERS_MAX = 10_000
"""Further observers are not tracked, but served."""


@dataclass(slots=True)
class Progress:
    """The state of a replica according to its fetches. Times are monotonic."""

    key: ReplicaKey
    end_offset: int = UNKNOWN_OFFSET
    """The offset of its last fetch."""
    fetched_ms: int = NEVER
    caught_up_ms: int = NEVER
    """When it last had everything that the leader had."""
    fetched_to_end_offset: int = UNKNOWN_OFFSET
    """The leader's end offset at the last fetch."""

    def is_repeated(self, offset: int, leader_end_offset: int) -> bool:
        """Does the replica fetch again what it was sent? Then the response did not reach it."""
        return offset == self.end_offset and offset < leader_end_offset

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """The replica fetched from this offset."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif UNKNOWN_OFFSET < self.fetched_to_end_offset <= offset:
            # It has all records that the leader had at its last fetch.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.fetched_to_end_offset = leader_end_offset
        self.fetched_ms = now_ms


@dataclass(slots=True)
class Leader:
    """The leader of an epoch."""

    node: ReplicaKey
    epoch: int
    start_offset: int
    """Where the epoch begins."""
    voters: Voters
    check_quorum_ms: int
    deadline_ms: int
    """When it resigns unless a majority fetches."""
    leader_id: int = field(init=False)
    voted: ReplicaKey | None = None
    high_watermark: int = UNKNOWN_OFFSET
    """Unknown until a batch of this epoch is committed."""
    end_offset: int = 0
    """The durable end of the local log."""
    replicas: dict[int, Progress] = field(default_factory=dict)
    """The other voters by id."""
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)
    expiry_ms: int = 0
    """When expired observers are removed next."""
    duplicates: set[int] = field(default_factory=set)
    """Ids with which two nodes fetch, until they are reported."""
    _began_ms: int = field(init=False)
    _recent: set[int] = field(default_factory=set)
    """Voters that fetched since the deadline was set."""
    _reached_ms: dict[int, int] = field(default_factory=dict)
    """When each voter last fetched after it had received what it fetched before."""

    def __post_init__(self) -> None:
        self.leader_id = self.node.id
        self._began_ms = self.deadline_ms - self.check_quorum_ms
        self._track(self.voters)

    def voters_changed(self, voters: Voters, now_ms: int) -> None:
        """The voter set has changed; its majority has the whole timeout to fetch."""
        self._track(voters)
        self.deadline_ms = now_ms + self.check_quorum_ms

    def _track(self, voters: Voters) -> None:
        """Keep the progress of replicas that become voters or observers."""
        known = {progress.key: progress for progress in (*self.replicas.values(), *self.observers.values())}
        self.voters = voters
        self.replicas = {}
        for voter in voters.others(self.node):
            progress = next((known.pop(key) for key in list(known) if voter.matches(key)), None)
            self.replicas[voter.key.id] = progress or Progress(voter.key)
        self.observers = {key: progress for key, progress in known.items() if progress.fetched_ms != NEVER}
        self._recent &= self.replicas.keys()
        self._reached_ms = {
            voter: reached_ms for voter, reached_ms in self._reached_ms.items() if voter in self.replicas
        }

    # -- what is committed

    def stored(self, end_offset: int) -> bool:
        """The local log is durable up to here; True if the high watermark advanced."""
        self.end_offset = max(self.end_offset, end_offset)
        return self.commit()

    def commit(self) -> bool:
        """Advance the high watermark if possible."""
        ends = [progress.end_offset for progress in self.replicas.values()]
        if self.node in self.voters:
            ends.append(self.end_offset)
        if not ends:
            return False
        ends.sort(reverse=True)
        committed = ends[len(ends) // 2]
        if committed <= self.start_offset or committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    # -- fetches

    def fetched(self, key: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> bool:
        """A replica fetched from `offset`, so it has all below; True if the high watermark advanced."""
        self.update_check_quorum(key, now_ms)
        progress = self._progress(key)
        if progress is None or self._is_duplicate(key, now_ms):
            return False
        if not progress.is_repeated(offset, leader_end_offset):
            self._response_arrived(key, now_ms)
        # A configured voter is known by its id until its first fetch.
        progress.key = key
        progress.fetched(offset, leader_end_offset, now_ms)
        return key in self.voters and self.commit()

    def update_check_quorum(self, key: ReplicaKey, now_ms: int) -> None:
        """A replica fetched records or a page of a snapshot: a majority of such voters keeps the leader."""
        if self._is_duplicate(key, now_ms):
            self.duplicates.add(key.id)
            return
        if key not in self.voters or key.id not in self.replicas:
            return
        self._recent.add(key.id)
        own = 1 if self.node in self.voters else 0
        if len(self._recent) + own >= self.voters.majority:
            self._recent.clear()
            self.deadline_ms = now_ms + self.check_quorum_ms

    def _response_arrived(self, key: ReplicaKey, now_ms: int) -> None:
        if key in self.voters:
            self._reached_ms[key.id] = now_ms

    @property
    def majority_ms(self) -> int:
        """Since when the leader may have been replaced: a majority of the voters has fetched since then.

        A voter that no response reaches still fetches, and elects another leader.
        """
        times_ms = sorted(
            (self._reached_ms.get(voter, self._began_ms) for voter in self.replicas), reverse=True
        )
        needed = self.voters.majority - (self.node in self.voters)
        return times_ms[needed - 1] if 0 < needed <= len(times_ms) else self._began_ms

    def is_silent(self, voter_id: int, now_ms: int, silent_ms: int) -> bool:
        """Has this voter not fetched for this long?"""
        fetched_ms = self.replicas[voter_id].fetched_ms
        return fetched_ms == NEVER or now_ms - fetched_ms >= silent_ms

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the most complete log first."""
        ranked = sorted(self.replicas.values(), key=lambda each: (-each.end_offset, each.key.id))
        return tuple(each.key for each in ranked)

    def expire_observers(self, now_ms: int) -> None:
        """Remove observers that have not fetched for long."""
        self.expiry_ms = now_ms + OBSERVER_CHECK_INTERVAL_MS
        expired = [
            key for key, each in self.observers.items() if now_ms - each.fetched_ms >= OBSERVER_SESSION_MS
        ]
        for key in expired:
            del self.observers[key]

    def _is_duplicate(self, key: ReplicaKey, now_ms: int) -> bool:
        """Does another node have this id, which is that of the leader or of a voter that fetches?

        Configured voters are known by their ids. What the directory of another node has stored must not
        count for the voter. A voter whose directory was replaced counts again after the check-quorum timeout.
        """
        if key.id == self.node.id:
            return True
        known = self.replicas.get(key.id)
        return (
            known is not None
            and key in self.voters
            and NO_ID not in (known.key.directory_id, key.directory_id)
            and known.key.directory_id != key.directory_id
            and known.fetched_ms != NEVER
            and now_ms - known.fetched_ms < self.check_quorum_ms
        )

    def _progress(self, key: ReplicaKey) -> Progress | None:
        if key.id == self.node.id or key.id < 0:
            # A negative id is that of a consumer of the log.
            return None
        if key in self.voters:
            return self.replicas[key.id]
        if key not in self.observers:
            if len(self.observers) >= OBSERVERS_MAX:
                return None
            self.observers[key] = Progress(key)
        return self.observers[key]
