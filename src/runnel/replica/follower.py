"""The state of a follower: its leader, its high watermark, and where it must truncate its log."""

from dataclasses import dataclass

from runnel.model.ids import NO_LEADER


@dataclass(slots=True)
class FollowerReplica:
    """A follower of one partition, or a replica of a partition without a leader."""

    node: int
    epoch: int
    leader: int = NO_LEADER
    high_watermark: int = 0

    def stored(self, end_offset: int) -> bool:
        """A follower commits nothing itself: its next fetch reports its end offset to the leader."""
        return False

    def committed(self, leader_high_watermark: int, end_offset: int) -> bool:
        """The leader reported its high watermark; True if the local one advanced. It never decreases.

        Not to be called with that of a response with a diverging epoch (KAFKA-14704).
        """
        known = min(leader_high_watermark, end_offset)
        if known <= self.high_watermark:
            return False
        self.high_watermark = known
        return True

    def truncated(self, end_offset: int) -> None:
        """The local log ends here now: because the disk lost records, or the leader does not have them."""
        self.high_watermark = min(self.high_watermark, end_offset)


def truncation_offset(diverging: tuple[int, int], own: tuple[int, int], end_offset: int) -> int:
    """Where to truncate a log that ends at `end_offset`, given where the leader's log diverges.

    `diverging` is the largest epoch of the leader's log that is not above the one of the follower's last
    record, with its end offset; `own` is what the same question yields for that epoch in the follower's log.
    If the follower does not have that epoch, the logs may diverge even before: the next fetch shows it.
    """
    leader_epoch, leader_end_offset = diverging
    own_epoch, own_end_offset = own
    if own_epoch < 0:
        # No epoch is known of any record.
        return min(leader_end_offset, end_offset)
    if own_epoch != leader_epoch:
        return min(own_end_offset, end_offset)
    return min(leader_end_offset, own_end_offset, end_offset)


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Remove all records and continue at this offset."""

    offset: int


def after_out_of_range(
    start_offset: int, end_offset: int, leader_start: int, leader_end: int
) -> Truncate | Restart | None:
    """What a follower does if its fetch offset, the end of its log, is not in the leader's log.

    The offsets of the leader were requested later: None if the fetch may succeed by now. A log that starts
    behind the end of the leader's has nothing of it: to truncate it would leave out all committed records.
    """
    if leader_end < start_offset:
        return Restart(leader_start)
    if leader_end < end_offset:
        return Truncate(leader_end)
    if leader_start > end_offset:
        return Restart(leader_start)
    return None
