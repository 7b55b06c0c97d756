"""What is counted while a log is read."""

from dataclasses import dataclass, field, fields

BUCKETS_MAX = 1000
STEPS_MS = tuple(1000 * seconds for seconds in (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400))
"""Each holds a whole number of those before it; beyond days, steps double."""

TIME_MAX_MS = 253_370_764_800_000
"""Clocks that are so wrong, in the year 9999 and later, cannot be drawn beside others."""


@dataclass(slots=True)
class Counts:
    """How much of what a partition, or all of them, holds."""

    batches: int = 0
    records: int = 0
    """All records of producers, aborted ones too."""
    committed: int = 0
    """Those that a reader of committed records sees."""
    aborted: int = 0
    open: int = 0
    control: int = 0
    size_bytes: int = 0
    lost: int = 0
    damaged: int = 0
    """Batches, not records: how many they held cannot be known."""
    duplicates: int = 0
    compacted: int = 0
    out_of_order: int = 0

    def __iadd__(self, other: "Counts") -> "Counts":
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


@dataclass(slots=True)
class OverTime:
    """Records and bytes by the time of their batch, in steps that widen as the time does."""

    step_ms: int = STEPS_MS[0]
    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(records, bytes) by the first millisecond of the step"""

    def add(self, timestamp_ms: int, records: int, size_bytes: int) -> None:
        """Count a batch in; one without a time, or with an impossible one, is left out."""
        if not 0 <= timestamp_ms < TIME_MAX_MS:
            return
        start = timestamp_ms - timestamp_ms % self.step_ms
        before_records, before_bytes = self.buckets.get(start, (0, 0))
        self.buckets[start] = before_records + records, before_bytes + size_bytes
        while len(self.buckets) > BUCKETS_MAX:
            self.widen(next((step for step in STEPS_MS if step > self.step_ms), 2 * self.step_ms))

    def widen(self, step_ms: int) -> None:
        """Count in larger steps."""
        wider: dict[int, tuple[int, int]] = {}
        for start, (records, size_bytes) in self.buckets.items():
            place = start - start % step_ms
            before_records, before_bytes = wider.get(place, (0, 0))
            wider[place] = before_records + records, before_bytes + size_bytes
        self.step_ms, self.buckets = step_ms, wider

    def merge(self, other: "OverTime") -> None:
        """Count another partition's in."""
        step_ms = max(self.step_ms, other.step_ms)
        self.widen(step_ms)
        for start, (records, size_bytes) in other.buckets.items():
            self.add(start, records, size_bytes)
