"""The comparison of a follower's log with the leader's, and where the follower truncates."""

from enum import Enum
from typing import NamedTuple

from runnel.model.ids import SnapshotId
from runnel.raft.values import LogView

BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)
"""The snapshot with the first voters; it is local, and never sent to others."""


class Validity(Enum):
    """The position of a fetch in the leader's log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class Position(NamedTuple):
    """The outcome of comparing a fetch with the leader's log."""

    validity: Validity
    diverging: tuple[int, int] | None = None
    snapshot: SnapshotId | None = None


VALID = Position(Validity.VALID)


def position_of(log: LogView, offset: int, epoch: int) -> Position:
    """Compare (offset, epoch of the record before it) with the leader's log."""
    snapshots = [each for each in log.snapshots if each != BOOTSTRAP_SNAPSHOT]
    if offset == 0 and snapshots:
        return Position(Validity.SNAPSHOT, snapshot=snapshots[0])
    if offset == 0 and epoch == 0 and log.start_offset == 0:
        return VALID
    if snapshots:
        oldest = snapshots[-1]
        is_before = offset < log.start_offset or epoch < oldest.epoch
        if is_before or (offset == log.start_offset and epoch != oldest.epoch):
            return Position(Validity.SNAPSHOT, snapshot=snapshots[0])
    end_epoch, end_offset = log.epoch_end(epoch)
    if end_epoch != epoch or end_offset < offset:
        return Position(Validity.DIVERGING, diverging=(end_epoch, end_offset))
    return VALID


def truncation_offset(log: LogView, diverging: tuple[int, int]) -> int:
    """Where a follower truncates its log after its leader reported (epoch, end offset of that epoch)."""
    epoch, end_offset = diverging
    own_epoch, own_end_offset = log.epoch_end(epoch)
    offset = min(own_end_offset, end_offset) if own_epoch == epoch else own_end_offset
    return max(offset, log.start_offset)
