"""The state of a follower replica: its leader and its high watermark."""

from dataclasses import dataclass

from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER


@dataclass(slots=True)
class FollowerReplica:
    """A follower of one partition, or a replica of a partition without a leader."""

    node: int
    epoch: int
    leader: int = NO_LEADER
    high_watermark: int = 0

    def stored(self, end_offset: int) -> bool:
        """A follower commits nothing itself: the leader learns its end offset from its next fetch."""
        return False

    def committed(self, leader_high_watermark: int, end_offset: int) -> bool:
        """The leader reported its high watermark; True if the local one advanced. It never decreases."""
        known = min(leader_high_watermark, end_offset)
        if known <= self.high_watermark:
            return False
        self.high_watermark = known
        return True

    def truncated(self, end_offset: int) -> None:
        """The local disk lost records, which the leader still has."""
        self.high_watermark = min(self.high_watermark, end_offset)

    def check_truncation(self, offset: int) -> None:
        """Reject truncation below the high watermark: the leader's log diverges from the committed one."""
        if offset < self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"truncation to {offset} would remove committed records below {self.high_watermark}",
            )
