"""Control batches of the quorum: leader changes, kraft.version and voters, in the log and in snapshots."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from runnel.batch.build import build_batch
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import Buffer, crc_is_valid, read_header, walk_headers
from runnel.batch.records import Record, iterate_records
from runnel.raft.voters import DYNAMIC_KRAFT_VERSION, VoterHistory, Voters
from runnel.schemas import control
from runnel.schemas.control import ControlType
from runnel.wire import Data, decode, encoded

_KEY = Struct(">hh")


def control_batch(
    records: Iterable[tuple[ControlType, Data]],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    epoch: int = -1,
) -> bytearray:
    """A batch of control records."""
    return build_batch(
        [Record(0, timestamp_ms, _KEY.pack(0, kind), encoded(record, 0)) for kind, record in records],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def leader_change(
    leader_id: int, voter_ids: Iterable[int], granting: Iterable[int]
) -> control.LeaderChangeMessage:
    """The first record of an epoch."""
    return control.LeaderChangeMessage(
        0,
        leader_id,
        [control.Voter(voter_id) for voter_id in voter_ids],
        [control.Voter(voter_id) for voter_id in granting],
    )


def voter_records(kraft_version: int, voters: Voters | None) -> list[tuple[ControlType, Data]]:
    """The records that describe a dynamic quorum; none if voters are configured."""
    if voters is None or kraft_version == 0:
        return []
    version = control.KRaftVersionRecord(0, kraft_version)
    return [(ControlType.KRAFT_VERSION, version), (ControlType.VOTERS, voters.to_record())]


def snapshot_header(timestamp_ms: int, epoch: int, kraft_version: int, voters: Voters | None) -> bytearray:
    """The first batch of a snapshot."""
    header = control.SnapshotHeaderRecord(0, timestamp_ms)
    records: list[tuple[ControlType, Data]] = [(ControlType.SNAPSHOT_HEADER, header)]
    return control_batch(records + voter_records(kraft_version, voters), timestamp_ms, epoch=epoch)


def snapshot_footer(timestamp_ms: int, epoch: int, base_offset: int) -> bytearray:
    """The last batch of a snapshot."""
    footer: list[tuple[ControlType, Data]] = [(ControlType.SNAPSHOT_FOOTER, control.SnapshotFooterRecord())]
    return control_batch(footer, timestamp_ms, epoch=epoch, base_offset=base_offset)


@dataclass(frozen=True, slots=True)
class VoterChange:
    """A record that changes the voters, or kraft.version, at an offset."""

    offset: int
    kraft_version: int | None = None
    voters: Voters | None = None

    def apply(self, history: VoterHistory) -> None:
        """Extend the history by this record."""
        if self.kraft_version is not None:
            history.version_appended(self.offset, self.kraft_version)
        if self.voters is not None:
            history.voters_appended(self.offset, self.voters)


def voter_changes(batches: Buffer) -> Iterator[VoterChange]:
    """The changes of voters in these batches of the log. Raises CorruptBatch and MalformedMessage."""
    view = memoryview(batches)
    for position, header in walk_headers(view):
        if header.is_control:
            yield from _changes_in(view[position : position + header.size_bytes])


def _changes_in(batch: memoryview) -> Iterator[VoterChange]:
    for kind, record in control_records(batch):
        value = record.value or b""
        if kind == ControlType.KRAFT_VERSION:
            version = decode(control.KRaftVersionRecord, 0, value)
            yield VoterChange(record.offset, kraft_version=version.kraft_version)
        elif kind == ControlType.VOTERS:
            yield VoterChange(record.offset, voters=Voters.of_record(decode(control.VotersRecord, 0, value)))


def control_records(batch: Buffer) -> Iterator[tuple[int, Record]]:
    """(type, record) of each record of a control batch."""
    for record in iterate_records(batch):
        if record.key is None or len(record.key) < _KEY.size:
            raise CorruptBatch("a control record has no type")
        yield _KEY.unpack_from(record.key)[1], record


def read_snapshot_voters(batches: Iterable[memoryview]) -> tuple[int, Voters | None]:
    """(kraft.version, voters) of a snapshot. Raises CorruptBatch unless it is complete and undamaged."""
    kraft_version, voters = 0, None
    expected = ControlType.SNAPSHOT_HEADER
    is_complete = False
    for batch in batches:
        header = read_header(batch)
        if is_complete or not crc_is_valid(batch, 0, header):
            raise CorruptBatch(f"the snapshot's batch at offset {header.base_offset} is corrupt")
        if not header.is_control:
            continue
        kinds = [kind for kind, _ in control_records(batch)]
        if expected not in kinds:
            raise CorruptBatch("the snapshot does not begin with a header and end with a footer")
        expected = ControlType.SNAPSHOT_FOOTER
        is_complete = expected in kinds
        for change in _changes_in(batch):
            kraft_version = change.kraft_version if change.kraft_version is not None else kraft_version
            voters = change.voters or voters
    if not is_complete:
        raise CorruptBatch("the snapshot has no footer: it is incomplete")
    return kraft_version, voters


def bootstrap_snapshot(voters: Voters, timestamp_ms: int) -> list[bytearray]:
    """The snapshot 0-0 of a new dynamic quorum, with its first voters."""
    return [
        snapshot_header(timestamp_ms, 0, DYNAMIC_KRAFT_VERSION, voters),
        # After the header, kraft.version and the voters.
        snapshot_footer(timestamp_ms, 0, 3),
    ]
