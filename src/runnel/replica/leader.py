"""One partition as its leader sees it: its epoch, the in-sync replicas, and the high watermark.

    high watermark = the smallest end offset among the leader and the maximal ISR

The maximal ISR is the ISR together with one that was proposed to the controller and is not decided yet: the
controller may settle on either, so a record counts as committed only when both would hold it.
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
    """Own log end that counts as stored according to the topic's flush policy."""
    high_watermark: int = 0
    proposed_isr: frozenset[int] | None = None
    followers: dict[int, int] = field(default_factory=dict)
    """The end offset of each follower, as its last fetch in this epoch proved it."""

    @classmethod
    def sole(cls, node: int, epoch: int) -> "LeaderReplica":
        """The leader of a partition without followers."""
        alone = frozenset({node})
        return cls(node, epoch, alone, alone)

    def stored(self, end_offset: int) -> bool:
        """The own log holds everything below `end_offset`; True if that moved the high watermark."""
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
        """A follower asked for `offset`, so it holds all below; True if that moved the high watermark."""
        if node not in self.replicas:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{node} is not a replica")
        self.followers[node] = offset
        return self._commit()

    def isr_changed(self, isr: frozenset[int], proposed: frozenset[int] | None = None) -> bool:
        """The in-sync set is another one, or another is proposed; True if that moved the high watermark."""
        self.isr, self.proposed_isr = isr, proposed
        return self._commit()

    def truncated(self, end_offset: int) -> None:
        """The own disk lost records, perhaps committed ones that no other replica has: the log ends here."""
        self.end_offset = min(self.end_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)

    def check_in_sync(self, replicas_min: int) -> None:
        """Reject a write that too few replicas would hold; no topic needs more than it has (KIP-966)."""
        if len(self.isr) < min(replicas_min, len(self.replicas)):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{len(self.isr)} replicas are in sync, {replicas_min} must be"
            )

    def _commit(self) -> bool:
        members = self.isr | (self.proposed_isr or self.isr)
        # A member that has not fetched in this epoch may hold no more than was committed before.
        others = (self.followers.get(node, self.high_watermark) for node in members if node != self.node)
        committed = min((self.end_offset, *others))
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True
