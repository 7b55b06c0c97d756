"""Control records: transaction markers, and those of the metadata quorum."""

from __future__ import annotations

from enum import IntEnum

from runnel.wire import Data, Struct, field, int16, int32, int64, string, uint16, uuid


class ControlType(IntEnum):
    """The kinds of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    VOTERS = 6


class ControlRecordTypeSchema(Data, versions="0"):
    """The key of a control record: its type (`ControlType`)."""

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


class KRaftVersionRecord(Data, versions="0", flexible="0+"):
    """The feature level kraft.version: 0 for voters that are configured, 1 for those of a VotersRecord."""

    version: int16 = 0
    kraft_version: int16 = 0


class VoterEndpoint(Struct):
    """A listener of a voter."""

    name: string = ""
    host: string = ""
    port: uint16 = 0


class KRaftVersionFeature(Struct):
    """The levels of kraft.version that a voter supports."""

    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class DynamicVoter(Struct):
    """A voter of a quorum with kraft.version 1."""

    voter_id: int32 = 0
    voter_directory_id: uuid = field()
    endpoints: list[VoterEndpoint] = field()
    kraft_version_feature: KRaftVersionFeature = field()


class VotersRecord(Data, versions="0", flexible="0+"):
    """The voters of the quorum from this record on (KIP-853)."""

    version: int16 = 0
    voters: list[DynamicVoter] = field()
