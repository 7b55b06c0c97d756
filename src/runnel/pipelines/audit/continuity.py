"""Checks that the offsets of a log are contiguous: takes offset ranges in order, returns gaps and overlaps.

A range that does not start at the end of the previous one is classified with the next range: if that is where
it would be after a contiguous range of the same size, only the base offset in the header is wrong.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [first, end) are missing."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """Offsets that are stored a second time."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class WrongOffset:
    """A batch at these offsets whose header has a different base offset."""

    first: int
    end: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Offsets of a damaged batch."""

    first: int
    end: int


Event = Gap | Overlap | WrongOffset | DamagedRange


class OffsetContinuity:
    """Tracks the offsets of one partition."""

    def __init__(self, start_offset: int) -> None:
        self._expected = start_offset
        self._is_first = True
        self._discontinuous: tuple[int, int] | None = None
        """[first, end) of a range that did not start at `_expected`."""
        self._damaged_from: int | None = None
        """Start of a damaged batch; it ends at the next batch."""

    @property
    def is_in_damage(self) -> bool:
        """Is the end of a damaged batch not known yet?"""
        return self._damaged_from is not None

    def add(self, first: int, end: int) -> list[Event]:
        """Add the offsets [first, end) of a valid batch."""
        events = self._settle(first)
        if self._is_first and first < self._expected:
            # The log start offset may be inside a batch, and earlier batches may still be stored.
            self._is_first = end <= self._expected
            self._expected = max(self._expected, end)
            return events
        if first == self._expected:
            self._expected = end
        else:
            self._discontinuous = first, end
        self._is_first = False
        return events

    def add_damaged(self, first: int) -> list[Event]:
        """Add a damaged batch with this base offset."""
        events = self._settle(first)
        if first > self._expected:
            events.append(Gap(self._expected, first))
        self._damaged_from = first
        self._expected = max(self._expected, first)
        self._is_first = False
        return events

    def skip_removed(self, end: int) -> list[Event]:
        """Skip the offsets below `end`, which were removed."""
        events = self._settle(None)
        self._expected = max(self._expected, end)
        return events

    def finish(self, end_offset: int) -> list[Event]:
        """Finish at the end offset of the log."""
        events = self._settle(end_offset if self._damaged_from is not None else None)
        if self._expected < end_offset:
            events.append(Gap(self._expected, end_offset))
            self._expected = end_offset
        return events

    def _settle(self, next_first: int | None) -> list[Event]:
        """Classify the pending range by where the log continues."""
        if self._damaged_from is not None:
            first, self._damaged_from = self._damaged_from, None
            # Its end follows from the next batch only. Garbage between two batches takes no offsets.
            self._expected = max(first, first + 1 if next_first is None else next_first)
            return [DamagedRange(first, max(first + 1, self._expected))]
        if self._discontinuous is None:
            return []
        (first, end), self._discontinuous = self._discontinuous, None
        expected = self._expected
        if next_first == expected + end - first:
            self._expected = next_first
            return [WrongOffset(expected, next_first, first)]
        self._expected = max(expected, end)
        return [Gap(expected, first)] if first > expected else [Overlap(first, min(end, expected))]
