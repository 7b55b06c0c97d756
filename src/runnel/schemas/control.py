"""Control records: transaction markers, and those of the metadata quorum."""

from __future__ import annotations

from runnel.wire import Data, Struct, field, int16, int32, int64, uuid


class ControlRecordTypeSchema(Data, versions="0"):
    """The key of a control record: 0 abort, 1 commit, 2 leader change, 3 and 4 snapshot header and footer."""

    type: int16 = 0


class EndTxnMarker(Data, versions="0"):
    """A transaction marker; the key is its type."""

    coordinator_epoch: int32 = 0  # fences markers of older coordinators


class Voter(Struct):
    """A voter of the quorum."""

    voter_id: int32 = 0
    voter_directory_id: uuid = field("1+")


class LeaderChangeMessage(Data, versions="0-1", flexible="0+"):
    """A new leader epoch."""

    version: int16 = 0
    leader_id: int32 = 0
    voters: list[Voter] = field()
    granting_voters: list[Voter] = field()


class SnapshotHeaderRecord(Data, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: int16 = 0
    last_contained_log_timestamp: int64 = 0


class SnapshotFooterRecord(Data, versions="0", flexible="0+"):
    """The last record of a snapshot; without it the snapshot is incomplete."""

    version: int16 = 0
