"""Counters of an audit."""

from dataclasses import dataclass, field, fields

BUCKETS_MAX = 1000
STEPS_MS = tuple(1000 * seconds for seconds in (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400))
"""Each is a multiple of the previous ones; beyond days, steps double."""

TIME_MAX_MS = 253_370_764_800_000
"""Timestamps in the year 9999 and later are not drawn."""


@dataclass(slots=True)
class Counts:
    """Counters of one partition, or of all of them."""

    batches: int = 0
    records: int = 0
    """All data records, including aborted ones."""
    committed: int = 0
    """Records visible to read_committed consumers."""
    aborted: int = 0
    open: int = 0
    control: int = 0
    size_bytes: int = 0
    lost: int = 0
    damaged: int = 0
    """Batches, not records: their record count is unknown."""
    duplicates: int = 0
    compacted: int = 0
    out_of_order: int = 0

    def __iadd__(self, other: "Counts") -> "Counts":
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


@dataclass(slots=True)
class OverTime:
    """Records and bytes by batch timestamp, in buckets that widen with the time range."""

    step_ms: int = STEPS_MS[0]
    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(records, bytes) by the first millisecond of the step"""

    def add(self, timestamp_ms: int, records: int, size_bytes: int) -> None:
        """Count a batch; one without a valid timestamp is ignored."""
        if not 0 <= timestamp_ms < TIME_MAX_MS:
            return
        start = timestamp_ms - timestamp_ms % self.step_ms
        before_records, before_bytes = self.buckets.get(start, (0, 0))
        self.buckets[start] = before_records + records, before_bytes + size_bytes
        while len(self.buckets) > BUCKETS_MAX:
            self.widen(next((step for step in STEPS_MS if step > self.step_ms), 2 * self.step_ms))

    def widen(self, step_ms: int) -> None:
        """Merge buckets into larger ones."""
        wider: dict[int, tuple[int, int]] = {}
        for start, (records, size_bytes) in self.buckets.items():
            bucket = start - start % step_ms
            before_records, before_bytes = wider.get(bucket, (0, 0))
            wider[bucket] = before_records + records, before_bytes + size_bytes
        self.step_ms, self.buckets = step_ms, wider

    def merge(self, other: "OverTime") -> None:
        """Add the counters of another partition."""
        step_ms = max(self.step_ms, other.step_ms)
        self.widen(step_ms)
        for start, (records, size_bytes) in other.buckets.items():
            self.add(start, records, size_bytes)
