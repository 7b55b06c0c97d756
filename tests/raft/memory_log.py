"""A log in memory that loses what was not synced, for tests of the quorum core."""

from dataclasses import dataclass, field
from struct import Struct

from runnel.model.ids import SnapshotId
from runnel.raft.voters import VoterHistory, Voters

_NUMBER = Struct(">q")


@dataclass(frozen=True, slots=True)
class Entry:
    """A record: its epoch, a number that no other record has, and perhaps the voters from here on."""

    epoch: int
    number: int
    voters: Voters | None = None


@dataclass(slots=True)
class Entries:
    """All records that were ever created, so that their numbers can stand for them in messages."""

    all: list[Entry] = field(default_factory=list)

    def create(self, epoch: int, voters: Voters | None = None) -> Entry:
        entry = Entry(epoch, len(self.all), voters)
        self.all.append(entry)
        return entry

    def encode(self, entries: list[Entry]) -> memoryview:
        return memoryview(b"".join(_NUMBER.pack(entry.number) for entry in entries))

    def decode(self, data: memoryview) -> list[Entry]:
        return [self.all[number] for (number,) in _NUMBER.iter_unpack(data)]


class MemoryLog:
    """The log of one member, with its snapshots: implements LogView."""

    def __init__(self, start_offset: int = 0, entries: list[Entry] | None = None) -> None:
        self.start_offset = start_offset
        self.entries = list(entries or [])
        self.durable_offset = self.end_offset
        self.images: dict[SnapshotId, list[Entry]] = {}
        """The records below the end of each snapshot."""

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return self.snapshots[0].epoch if self.images else 0

    @property
    def snapshots(self) -> list[SnapshotId]:
        return sorted(self.images, reverse=True)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        found, end_offset = -1, self.start_offset
        if self.images and self.snapshots[-1].epoch <= epoch:
            found = self.snapshots[-1].epoch
        for offset, entry in enumerate(self.entries, self.start_offset):
            if entry.epoch > epoch:
                break
            found, end_offset = entry.epoch, offset + 1
        return (found if found >= 0 else epoch), end_offset

    def read(self, offset: int, count: int) -> list[Entry]:
        return self.entries[offset - self.start_offset :][:count]

    def all_below(self, offset: int) -> list[Entry]:
        """Every record below this offset, also those that only a snapshot has."""
        before = self.images[self.snapshots[-1]] if self.start_offset else []
        return (before[: self.start_offset] + self.entries)[:offset]

    def append(self, entries: list[Entry]) -> None:
        self.entries += entries

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset - self.start_offset :]
        self.durable_offset = min(self.durable_offset, offset)

    def take_snapshot(self, end_offset: int) -> None:
        """Replace everything below by a snapshot."""
        below = self.all_below(end_offset)
        snapshot = SnapshotId(end_offset, below[-1].epoch)
        self.images = {snapshot: below}
        self.entries = self.entries[end_offset - self.start_offset :]
        self.start_offset = end_offset

    def install(self, snapshot: SnapshotId, below: list[Entry]) -> None:
        """Replace the whole log by a snapshot of the leader."""
        self.images = {snapshot: below}
        self.start_offset = self.durable_offset = snapshot.end_offset
        self.entries = []

    def crashed(self, lost: int) -> "MemoryLog":
        """The log after a power failure that lost some of what was not synced."""
        kept = max(self.durable_offset, self.end_offset - lost)
        log = MemoryLog(self.start_offset, self.entries[: kept - self.start_offset])
        log.images = dict(self.images)
        return log

    def replay_voters(self, history: VoterHistory) -> None:
        """Read the voters from the log."""
        for offset, entry in enumerate(self.all_below(self.end_offset)):
            if entry.voters is not None:
                history.voters_appended(offset, entry.voters)
