"""The state of a leader: the progress of each follower, the ISR, and the high watermark.

    high watermark = the smallest end offset among the leader, the maximal ISR, and replicas about to join it

The maximal ISR is the union of the ISR and one that is proposed to the controller and pending: the controller
may choose either, so a record is committed only when the replicas of both have it. While fewer replicas than
min.insync.replicas are in sync, nothing is committed (KIP-966).

    fetched ──► at the high watermark, and in this epoch ──► propose: a larger ISR  ┐ pending until the
    silent, or not caught up for replica.lag.time.max.ms ──► propose: a smaller one ┘ controller decides
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_BROKER_EPOCH

NEVER_MS = -(2**62)
"""Before all other times."""

UNKNOWN_OFFSET = -1

RECONNECT_SHARE = 6
"""A follower without a session is silent after this part of the time allowed: it may be connecting again."""

RETRY_AFTER_MS = 100
"""A refused proposal is not repeated sooner: the refusal is based on metadata that arrives here soon."""


@dataclass(slots=True)
class FetchTime:
    """When a follower last fetched from this node; shared by all partitions of its fetch session.

    A request does not mention a partition at whose end the follower still is.
    """

    ms: int = NEVER_MS
    is_open: bool = False
    """Does the session exist? Then it changes with every fetch."""


@dataclass(slots=True)
class Follower:
    """The state of a follower according to its fetches in this epoch."""

    fetch_time: FetchTime
    caught_up_ms: int
    """When it last had all records that the leader had at that time."""
    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = NO_BROKER_EPOCH
    fetched_ms: int = NEVER_MS
    """When it last fetched this partition, and where the leader's log ended then."""
    end_when_fetched: int = UNKNOWN_OFFSET
    served_offset: int = UNKNOWN_OFFSET
    """The offset from which it was last sent records."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR to propose to the controller, with the broker epochs of its members."""

    isr: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int

    @property
    def nodes(self) -> frozenset[int]:
        return frozenset(node for node, _ in self.isr)


@dataclass(slots=True)
class LeaderReplica:
    """The leader of one partition."""

    node: int
    epoch: int
    replicas: frozenset[int]
    isr: frozenset[int]
    """The ISR that the controller has committed."""
    partition_epoch: int = 0
    isr_min: int = 1
    """min.insync.replicas."""
    epoch_start: int = 0
    """The end of the log when this epoch began."""
    lag_max_ms: int = 30_000
    """A follower that has not caught up for this long is not in sync."""
    silence_max_ms: int = 30_000
    """Nor is one that has not fetched for this long, as it may have failed."""
    active: Mapping[int, int] = field(default_factory=dict)
    """The epochs of all brokers that are neither fenced nor shutting down; changes with the metadata."""
    now_ms: int = 0
    """The time of the last event that has one."""
    end_offset: int = 0
    """The local end offset up to which records are stored according to the flush policy."""
    high_watermark: int = 0
    proposed: IsrProposal | None = None
    """The proposal that the controller has not decided yet."""
    followers: dict[int, Follower] = field(init=False)
    maximal_isr: frozenset[int] = field(init=False)
    _began_ms: int = field(init=False)
    _settled_ms: int = NEVER_MS
    """When the ISR last changed: a fetch from before that does not let a follower join again."""
    _retry_ms: int = NEVER_MS

    def __post_init__(self) -> None:
        # Members of the ISR get a full lag time to fetch from the new leader.
        self.followers = {
            node: Follower(FetchTime(), self.now_ms if node in self.isr else NEVER_MS)
            for node in sorted(self.replicas)
            if node != self.node
        }
        self.maximal_isr = self.isr
        self._began_ms = self.now_ms

    @classmethod
    def sole(cls, node: int, epoch: int) -> "LeaderReplica":
        """The leader of a partition without followers."""
        alone = frozenset({node})
        return cls(node, epoch, alone, alone)

    # -- what is committed

    @property
    def is_under_min_isr(self) -> bool:
        """Are fewer replicas in sync than min.insync.replicas, which the number of replicas limits?"""
        return len(self.isr) < min(self.isr_min, len(self.replicas))

    @property
    def has_committed_in_epoch(self) -> bool:
        """Is everything committed that previous leaders may have committed?"""
        return self.high_watermark >= self.epoch_start

    def stored(self, end_offset: int) -> bool:
        """The local log has all records below `end_offset`; True if the high watermark advanced."""
        followers = self.followers
        if end_offset > self.end_offset:
            for follower in followers.values():
                if follower.end_offset >= self.end_offset:
                    # From now on it is behind.
                    follower.caught_up_ms = max(follower.caught_up_ms, follower.fetch_time.ms)
            self.end_offset = end_offset
        if followers:
            return self._commit()
        # The only replica: what it stored is committed.
        if self.end_offset <= self.high_watermark:
            return False
        self.high_watermark = self.end_offset
        return True

    def fetched(
        self,
        node: int,
        offset: int,
        now_ms: int,
        *,
        log_start_offset: int = UNKNOWN_OFFSET,
        broker_epoch: int = NO_BROKER_EPOCH,
        fetch_time: FetchTime | None = None,
    ) -> bool:
        """A follower fetched from `offset`, so it has all below; True if the high watermark advanced."""
        follower = self.follower(node)
        self.now_ms = now_ms
        if offset >= self.end_offset:
            follower.caught_up_ms = now_ms
        elif offset >= follower.end_when_fetched:
            # It has what the leader had at its last fetch.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.fetched_ms, follower.end_when_fetched = now_ms, self.end_offset
        follower.fetch_time = fetch_time or FetchTime(now_ms)
        return self._commit()

    def follower(self, node: int) -> Follower:
        """The state of a follower. UNKNOWN_LEADER_EPOCH if it is not a replica: its metadata differs."""
        follower = self.followers.get(node)
        if follower is None:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{node} is not a follower of this partition")
        return follower

    def served(self, node: int, offset: int) -> None:
        """The follower is sent records from `offset` on."""
        self.follower(node).served_offset = offset

    def is_repeated(self, node: int, offset: int) -> bool:
        """Was this offset served before? Then the records did not arrive, or could not be used."""
        follower = self.follower(node)
        if follower.served_offset != offset:
            return False
        follower.served_offset = UNKNOWN_OFFSET
        return True

    def session_ended(self, node: int, fetch_time: FetchTime) -> bool:
        """The partition was removed from a session of the follower, whose fetches no longer acknowledge it.

        The follower may fetch the partition in another session already: that one counts. True if none does.
        """
        follower = self.followers.get(node)
        if follower is None or follower.fetch_time is not fetch_time:
            return False
        follower.fetch_time = FetchTime(fetch_time.ms)
        return True

    def ticked(self, now_ms: int) -> bool:
        """Time has passed; True if the high watermark advanced: a replica is no longer waited for."""
        self.now_ms = now_ms
        return self._commit() if self.followers else False

    @property
    def is_quiet(self) -> bool:
        """Does no follower join the ISR or leave it by time alone, if open sessions fetch and none lags?"""
        for node, follower in self.followers.items():
            if follower.fetch_time.is_open:
                if node not in self.isr:
                    return False
            elif node in self.maximal_isr or self._is_in_sync(follower):
                return False
        return self.proposed is None

    def truncated(self, end_offset: int) -> None:
        """The local disk lost records, possibly committed ones that no other replica has."""
        self.end_offset = min(self.end_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)

    def check_in_sync(self) -> None:
        """Reject a write with acks=all below min.insync.replicas."""
        if self.is_under_min_isr:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{len(self.isr)} replicas are in sync, {self.isr_min} must be"
            )

    def lag_of(self, node: int, now_ms: int) -> tuple[int | None, int]:
        """(records, milliseconds) by which a follower is behind.

        The records are not known before its first fetch in this epoch; the time is at least as given.
        """
        follower = self.followers[node]
        if follower.end_offset >= self.end_offset:
            return 0, 0
        since_ms = max(follower.caught_up_ms, self._began_ms)
        is_known = follower.end_offset != UNKNOWN_OFFSET
        return self.end_offset - follower.end_offset if is_known else None, max(0, now_ms - since_ms)

    def is_cut_off(self, now_ms: int) -> bool:
        """Are followers silent without which nothing is committed: all of them, or one for long?

        One alone may have failed, and leaves the ISR as soon as the controller can be reached.
        """
        members = [self.followers[node] for node in self.maximal_isr if node in self.followers]
        silences_ms = [
            now_ms - max(follower.fetched_ms, follower.fetch_time.ms, self._began_ms) for follower in members
        ]
        is_any_silent = any(silence_ms > 2 * self.silence_max_ms for silence_ms in silences_ms)
        are_all_silent = bool(members) and all(
            silence_ms > self.silence_max_ms // (2 if follower.fetch_time.is_open else RECONNECT_SHARE)
            for follower, silence_ms in zip(members, silences_ms, strict=True)
        )
        return are_all_silent or is_any_silent

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start among this log and those of all active followers; -1 if one is unknown."""
        active = (follower for node, follower in self.followers.items() if node in self.active)
        return min([log_start_offset, *(follower.log_start_offset for follower in active)])

    # -- the ISR

    def propose(self, now_ms: int) -> IsrProposal | None:
        """The ISR to propose to the controller, if it should be another one and none is pending."""
        self.now_ms = now_ms
        if self.proposed is not None or now_ms < self._retry_ms:
            return None
        members = {self.node}
        for node, follower in self.followers.items():
            if self._is_in_sync(follower) if node in self.isr else self._may_join(node, follower):
                members.add(node)
        if members == self.isr:
            return None
        epochs = {node: follower.broker_epoch for node, follower in self.followers.items()}
        epochs[self.node] = self.active.get(self.node, NO_BROKER_EPOCH)
        isr = tuple((node, epochs[node]) for node in sorted(members))
        self.proposed = IsrProposal(isr, self.epoch, self.partition_epoch)
        self.maximal_isr = self.isr | members
        return self.proposed

    def accepted(self, proposal: IsrProposal, isr: frozenset[int], partition_epoch: int) -> bool:
        """The controller has answered a proposal with this state; True if the high watermark advanced.

        Metadata may have reported it, or a later one, before, and another proposal may be pending since.
        """
        is_newer = partition_epoch > self.partition_epoch
        if is_newer or (self.proposed is proposal and partition_epoch == self.partition_epoch):
            return self._settle(isr, partition_epoch)
        return False

    def refused(self, proposal: IsrProposal, now_ms: int) -> bool:
        """The controller has certainly not applied this proposal; True if the high watermark advanced."""
        if self.proposed is not proposal:
            return False
        self._retry_ms = now_ms + RETRY_AFTER_MS
        return self._settle(self.isr, self.partition_epoch)

    def changed(self, replicas: frozenset[int], isr: frozenset[int], partition_epoch: int) -> bool:
        """The metadata has another state of the partition in this epoch; True if the high watermark advanced.

        A pending proposal was based on an older state: it was applied, or will be refused.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.replicas = replicas
        for node in sorted(replicas - self.followers.keys() - {self.node}):
            self.followers[node] = Follower(FetchTime(), NEVER_MS)
        for node in self.followers.keys() - replicas:
            del self.followers[node]
        return self._settle(isr, partition_epoch)

    def _settle(self, isr: frozenset[int], partition_epoch: int) -> bool:
        for node in isr - self.isr:
            if node in self.followers:
                follower = self.followers[node]
                follower.caught_up_ms = max(follower.caught_up_ms, self.now_ms)
        self.isr, self.partition_epoch = isr, partition_epoch
        self._settled_ms = self.now_ms
        self.proposed, self.maximal_isr = None, isr
        return self._commit()

    def _commit(self) -> bool:
        if self.is_under_min_isr:
            return False
        committed = self.end_offset
        for node, follower in self.followers.items():
            if follower.end_offset < committed and (
                node in self.maximal_isr or self._is_joining(node, follower)
            ):
                # Also one that has not fetched in this epoch: it may have only what was committed before.
                committed = follower.end_offset
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def _is_in_sync(self, follower: Follower) -> bool:
        """Has it fetched lately, and caught up within the allowed lag?"""
        fetched_ms = max(follower.fetched_ms, follower.fetch_time.ms)
        caught_up_ms = follower.caught_up_ms
        if follower.end_offset >= self.end_offset:
            caught_up_ms = max(caught_up_ms, fetched_ms)
        return (
            self.now_ms - caught_up_ms <= self.lag_max_ms
            and self.now_ms - max(fetched_ms, self._began_ms) <= self.silence_max_ms
        )

    def _is_eligible(self, node: int, follower: Follower) -> bool:
        """May it be in the ISR? Not while it is fenced, nor by a fetch of its previous incarnation."""
        epoch = self.active.get(node)
        return epoch is not None and follower.broker_epoch in (NO_BROKER_EPOCH, epoch)

    def _is_joining(self, node: int, follower: Follower) -> bool:
        """Is it close to the end? Without waiting for it, it would never reach the high watermark."""
        return self._is_in_sync(follower) and self._is_eligible(node, follower)

    def _may_join(self, node: int, follower: Follower) -> bool:
        fetched_ms = max(follower.fetched_ms, follower.fetch_time.ms)
        needed = max(self.high_watermark, self.epoch_start)
        return (
            fetched_ms > self._settled_ms
            and follower.end_offset >= needed
            and self._is_joining(node, follower)
        )
