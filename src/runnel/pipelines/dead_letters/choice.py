"""Which dead letters are meant."""

from dataclasses import dataclass

from runnel.pipelines.dead_letters.letter import Letter, kind_of
from runnel.pipelines.errors import BadOption


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Letters of one partition of the dead-letter topic, both ends included."""

    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a letter must be like; what is not said does not matter."""

    reason: str | None = None
    """A part of the reason, in upper or lower case."""
    source_topic: str | None = None
    pipeline: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    """By when it became a letter; `until_ms` itself is not meant."""
    offsets: tuple[OffsetRange, ...] = ()
    attempts_max: int | None = None
    """Leave those alone that have been sent back so often."""

    def has(self, letter: Letter) -> bool:
        """Is this letter meant?"""
        return (
            self._has_words(letter)
            and (self.since_ms is None or letter.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or letter.timestamp_ms < self.until_ms)
            and (not self.offsets or any(_is_in(letter, each) for each in self.offsets))
            and (self.attempts_max is None or letter.attempts < self.attempts_max)
        )

    def _has_words(self, letter: Letter) -> bool:
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
        raise BadOption(f"{text!r} is not a range of offsets: write 0:17 or 0:100-199")
    return OffsetRange(int(partition), int(first), int(last if dash else first))
