"""One partition as its leader sees it: the epoch it leads in, and how far records are committed."""

from dataclasses import dataclass

from runnel.model.errors import ApiError, ErrorCode


@dataclass(slots=True)
class LeaderReplica:
    """The leader of one partition: its in-sync set and high watermark."""

    node: int
    epoch: int
    replicas: frozenset[int]
    isr: frozenset[int]
    end_offset: int = 0
    """Own log end that counts as stored, by whatever the topic's flush policy calls stored."""
    high_watermark: int = 0

    def stored(self, end_offset: int) -> bool:
        """The own log holds everything below `end_offset`; True if that moved the high watermark."""
        if end_offset > self.end_offset:
            self.end_offset = end_offset
        return self._commit()

    def lost(self, end_offset: int) -> None:
        """The own disk lost committed records, and nobody else has them: what follows begins here."""
        self.end_offset = self.high_watermark = end_offset

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client whose idea of the leader's epoch is older or newer than ours; -1 is no idea."""
        if epoch in (-1, self.epoch):
            return
        is_older = epoch < self.epoch
        error = ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(error, f"the request speaks of epoch {epoch}, the leader is at {self.epoch}")

    def check_in_sync(self, replicas_min: int) -> None:
        """Refuse a write that too few replicas would hold; no topic needs more than it has (KIP-966)."""
        if len(self.isr) < min(replicas_min, len(self.replicas)):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{len(self.isr)} replicas are in sync, {replicas_min} must be"
            )

    def _commit(self) -> bool:
        # The only member of the in-sync set is the leader itself, so what it stored is committed.
        committed = self.end_offset
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True
