"""What an audit can find, and how bad it is.

fault       records are lost, damaged, doubled, or not where they should be: the audit fails
notice      worth knowing, and no proof of harm
explained   looks like a loss and is none: compaction, retention
"""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    FAULT = "fault"
    NOTICE = "notice"
    EXPLAINED = "explained"


class Kind(StrEnum):
    """What a finding is about."""

    LOST = "lost range"
    DAMAGED = "damaged batch"
    UNREADABLE = "unreadable"
    MISPLACED = "wrong offset"
    OVERLAP = "offsets twice"
    DUPLICATE = "duplicate"
    TORN = "torn end"
    SHORT = "records missing in batch"
    SEQUENCE_GAP = "sequence gap"
    OLDER_EPOCH = "older epoch"
    TIME = "time goes back"
    OPEN_TRANSACTION = "open transaction"
    COMPACTED = "compacted"
    RETENTION = "removed by retention"
    COUNT = "count differs"
    GROUP = "group position"
    ARCHIVE_FILE = "archive file missing or damaged"
    ARCHIVE_MISSING = "missing in archive"
    ARCHIVE_EXTRA = "only in archive"
    ARCHIVE_DOUBLED = "twice in archive"
    ARCHIVE_DIFFERS = "differs in archive"
    ARCHIVE_BEHIND = "not archived yet"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, at the offsets [first_offset, last_offset] of a partition; -1 where none apply."""

    level: Level
    kind: Kind
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    text: str

    @property
    def where(self) -> str:
        """The place as a person says it."""
        if self.partition < 0:
            return self.topic
        if self.first_offset < 0:
            return f"{self.topic}-{self.partition}"
        if self.first_offset == self.last_offset:
            return f"{self.topic}-{self.partition} offset {self.first_offset}"
        return f"{self.topic}-{self.partition} offsets {self.first_offset}–{self.last_offset}"


def count_text(number: int, noun: str) -> str:
    """A number with its noun: 1 record, 2 records, 1 batch, 2 batches."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number:,} {noun}{ending}"
