"""Do the offsets of a log follow each other? Stretches are seen in order, holes and overlaps come out.

A stretch that does not begin where the one before it ended is judged when its successor is seen: if that
stands where it would with an ordinary stretch between, then only the offset in its header is wrong.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets from `first` up to, not including, `end` are missing."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """Offsets that are stored a second time."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A stretch at these offsets whose header has another base offset."""

    first: int
    end: int
    said: int


@dataclass(frozen=True, slots=True)
class Spoilt:
    """Offsets of which nothing can be said: their batch is damaged."""

    first: int
    end: int


Event = Hole | Overlap | Misplaced | Spoilt


class Placement:
    """The offsets of one partition as they are seen."""

    def __init__(self, start_offset: int) -> None:
        self._expected = start_offset
        self._is_first = True
        self._odd: tuple[int, int] | None = None
        """[first, end) of a stretch that did not begin at `_expected`."""
        self._spoilt_from: int | None = None
        """Where a damaged batch began; its end is where the next one begins."""

    @property
    def is_spoilt(self) -> bool:
        """Is the end of a damaged batch not known yet?"""
        return self._spoilt_from is not None

    def saw(self, first: int, end: int) -> list[Event]:
        """A sound stretch of offsets."""
        events = self._settle(first)
        if self._is_first and first < self._expected:
            # Whole batches are kept, the one in which the log begins and perhaps some before it.
            self._is_first = end <= self._expected
            self._expected = max(self._expected, end)
            return events
        if first == self._expected:
            self._expected = end
        else:
            self._odd = first, end
        self._is_first = False
        return events

    def spoilt(self, first: int) -> list[Event]:
        """A damaged batch that says that it begins here."""
        events = self._settle(first)
        if first > self._expected:
            events.append(Hole(self._expected, first))
        self._spoilt_from = first
        self._expected = max(self._expected, first)
        self._is_first = False
        return events

    def gone(self, end: int) -> list[Event]:
        """Everything below `end` was removed."""
        events = self._settle(None)
        self._expected = max(self._expected, end)
        return events

    def ended(self, end_offset: int) -> list[Event]:
        """Nothing follows, and the log is said to end here."""
        events = self._settle(end_offset if self._spoilt_from is not None else None)
        if self._expected < end_offset:
            events.append(Hole(self._expected, end_offset))
            self._expected = end_offset
        return events

    def _settle(self, next_first: int | None) -> list[Event]:
        """What was undecided is decided by where the log continues."""
        if self._spoilt_from is not None:
            first, self._spoilt_from = self._spoilt_from, None
            # Nothing but what follows tells how far it went. Garbage between two batches takes no offset.
            self._expected = max(first, first + 1 if next_first is None else next_first)
            return [Spoilt(first, max(first + 1, self._expected))]
        if self._odd is None:
            return []
        (first, end), self._odd = self._odd, None
        expected = self._expected
        if next_first == expected + end - first:
            self._expected = next_first
            return [Misplaced(expected, next_first, first)]
        self._expected = max(expected, end)
        return [Hole(expected, first)] if first > expected else [Overlap(first, min(end, expected))]
