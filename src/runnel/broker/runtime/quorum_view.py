"""The metadata log on disk, as the LogView of the quorum's core."""

from collections.abc import Sequence

from runnel.model.ids import SnapshotId
from runnel.ports.disk import PartitionLog


class QuorumLogView:
    """Offsets and epochs of the local log and its snapshots: implements `raft.values.LogView`."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._snapshots: tuple[SnapshotId, ...] = ()

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.written_offset

    @property
    def last_epoch(self) -> int:
        end_offset = self._log.written_offset
        if end_offset > self._log.log_start_offset:
            return max(self._log.epoch_of(end_offset - 1), 0)
        return next((each.epoch for each in self._snapshots if each.end_offset == end_offset), 0)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above this one, its end offset)."""
        last_epoch = self.last_epoch
        if epoch >= last_epoch:
            return last_epoch, self.end_offset
        found, end_offset = self._log.epoch_end(epoch)
        if found < 0:
            # No record is left of so early an epoch.
            return epoch, self.start_offset
        return found, end_offset

    @property
    def snapshots(self) -> Sequence[SnapshotId]:
        return self._snapshots

    def set_snapshots(self, snapshots: Sequence[SnapshotId]) -> None:
        """These are stored now, newest first."""
        self._snapshots = tuple(snapshots)
