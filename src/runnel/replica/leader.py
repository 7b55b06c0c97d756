"""The state of a leader replica: its epoch, the in-sync replicas, and the high watermark.

    high watermark = the smallest end offset among the leader and the maximal ISR

The maximal ISR is the union of the ISR and one that is proposed to the controller and pending: the controller
may choose either, so a record is committed only when the replicas of both have it.
"""

from dataclasses import dataclass, field

from runnel.model.errors import ApiError, ErrorCode


@dataclass(slots=True)
class LeaderReplica:
    """The leader of one partition: its in-sync set and high watermark."""

    node: int
    epoch: int
    replicas: frozenset[int]
    isr: frozenset[int]
    end_offset: int = 0
    """The local end offset up to which records are stored according to the flush policy."""
    high_watermark: int = 0
    proposed_isr: frozenset[int] | None = None
    followers: dict[int, int] = field(default_factory=dict)
    """The end offset of each follower, from its last fetch in this epoch."""

    @classmethod
    def sole(cls, node: int, epoch: int) -> "LeaderReplica":
        """The leader of a partition without followers."""
        alone = frozenset({node})
        return cls(node, epoch, alone, alone)

    def stored(self, end_offset: int) -> bool:
        """The local log has all records below `end_offset`; True if the high watermark advanced."""
        if end_offset > self.end_offset:
            self.end_offset = end_offset
        if len(self.isr) > 1 or self.proposed_isr is not None:
            return self._commit()
        # Alone in sync: what the leader stored is committed.
        if self.end_offset <= self.high_watermark:
            return False
        self.high_watermark = self.end_offset
        return True

    def fetched(self, node: int, offset: int) -> bool:
        """A follower fetched from `offset`, so it has all below; True if the high watermark advanced."""
        if node not in self.replicas:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{node} is not a replica")
        self.followers[node] = offset
        return self._commit()

    def isr_changed(self, isr: frozenset[int], proposed: frozenset[int] | None = None) -> bool:
        """The ISR, or the proposed one, has changed; True if the high watermark advanced."""
        self.isr, self.proposed_isr = isr, proposed
        return self._commit()

    def truncated(self, end_offset: int) -> None:
        """The local disk lost records, possibly committed ones that no other replica has."""
        self.end_offset = min(self.end_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)

    def check_in_sync(self, replicas_min: int) -> None:
        """Reject a write below min.insync.replicas, which is capped at the number of replicas (KIP-966)."""
        if len(self.isr) < min(replicas_min, len(self.replicas)):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{len(self.isr)} replicas are in sync, {replicas_min} must be"
            )

    def _commit(self) -> bool:
        members = self.isr | (self.proposed_isr or self.isr)
        # A member that has not fetched in this epoch may have only what was committed before.
        others = (self.followers.get(node, self.high_watermark) for node in members if node != self.node)
        committed = min((self.end_offset, *others))
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True
