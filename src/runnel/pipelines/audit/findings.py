"""The findings of an audit, and their severity.

fault       records are lost, damaged, duplicated or misplaced: the audit fails
notice      informational, not a fault
explained   missing records that compaction or retention removed
"""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    FAULT = "fault"
    NOTICE = "notice"
    EXPLAINED = "explained"


class Kind(StrEnum):
    """The type of a finding."""

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
    """A finding at offsets [first_offset, last_offset] of a partition; -1 if not applicable."""

    level: Level
    kind: Kind
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    text: str

    @property
    def where(self) -> str:
        """Topic, partition and offsets, for display."""
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
