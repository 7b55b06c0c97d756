"""Selection of dead letters."""

from dataclasses import dataclass

from runnel.pipelines.dead_letters.letter import Letter, kind_of
from runnel.pipelines.errors import BadOption


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [first, last] of one partition of a dead-letter topic."""

    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Conditions on dead letters; None matches all."""

    reason: str | None = None
    """A substring of the reason, case-insensitive."""
    source_topic: str | None = None
    pipeline: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """Timestamp of the dead letter; `until_ms` is exclusive."""
    offsets: tuple[OffsetRange, ...] = ()
    attempts_max: int | None = None
    """Exclude letters with at least this many redrives."""

    def matches(self, letter: Letter) -> bool:
        """Does this letter match?"""
        return (
            self._matches_text(letter)
            and (self.since_ms is None or letter.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or letter.timestamp_ms < self.until_ms)
            and (not self.offsets or any(_is_in(letter, each) for each in self.offsets))
            and (self.attempts_max is None or letter.attempts < self.attempts_max)
        )

    def _matches_text(self, letter: Letter) -> bool:
        wanted = (self.reason or "").casefold()
        reasons = (letter.reason.casefold(), kind_of(letter.reason).casefold())
        return (
            any(wanted in reason for reason in reasons)
            and self.source_topic in (None, letter.source_topic)
            and self.pipeline in (None, letter.pipeline)
        )


def _is_in(letter: Letter, wanted: OffsetRange) -> bool:
    return letter.partition == wanted.partition and wanted.first <= letter.offset <= wanted.last


def parse_offsets(text: str) -> OffsetRange:
    """Read PARTITION:OFFSET or PARTITION:FIRST-LAST."""
    partition, colon, span = text.partition(":")
    first, dash, last = span.partition("-")
    if not colon or not all(part.isdecimal() for part in (partition, first, last if dash else first)):
        raise BadOption(f"{text!r} is not a range of offsets: use 0:17 or 0:100-199")
    return OffsetRange(int(partition), int(first), int(last if dash else first))
