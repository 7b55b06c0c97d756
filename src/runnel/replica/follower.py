"""One partition as a follower sees it: whom it follows, and how far the leader has committed records."""

from dataclasses import dataclass

from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER


@dataclass(slots=True)
class FollowerReplica:
    """A follower of one partition, or a replica whose partition has no leader at the moment."""

    node: int
    epoch: int
    leader: int = NO_LEADER
    high_watermark: int = 0

    def stored(self, end_offset: int) -> bool:
        """A follower commits nothing by itself: what it stored, the leader learns by its next fetch."""
        return False

    def committed(self, leader_high_watermark: int, end_offset: int) -> bool:
        """The leader reported its high watermark; True if that moved the own one, which never goes back."""
        known = min(leader_high_watermark, end_offset)
        if known <= self.high_watermark:
            return False
        self.high_watermark = known
        return True

    def truncated(self, end_offset: int) -> None:
        """The own disk lost records, which the leader still has."""
        self.high_watermark = min(self.high_watermark, end_offset)

    def check_truncation(self, offset: int) -> None:
        """Reject to remove what is committed: then the leader's history is not the one that was agreed on."""
        if offset < self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"truncation to {offset} would remove committed records below {self.high_watermark}",
            )
