"""A histogram of pauses of the event loop: how long a request may wait before it is received.

It contains samples: `server/loop_probe.py` describes which pauses they show, and which they may miss.
"""

import json
from collections.abc import Sequence

FIRST_BOUND_US = 50
BUCKETS = 20
"""Up to 50 µs, then each twice as wide as the one before; the last has no end and begins at 13 s."""

SHOWN_AS = "runnel.event.loop.pauses"
"""DescribeConfigs of a broker shows its histogram by this name, to clients that ask for it."""


class LoopPauses:
    """A histogram of pauses. Cheap to add to, and to take the difference of two states of."""

    __slots__ = ("counts", "longest_us", "seconds")

    def __init__(self, counts: Sequence[int] = (0,) * BUCKETS, longest_us: int = 0) -> None:
        self.counts = list(counts)
        self.longest_us = longest_us
        self.seconds = 0.0
        """The sum of all samples that were added."""

    def add(self, seconds: float) -> None:
        """One pause was seen."""
        self.seconds += seconds
        pause_us = int(seconds * 1_000_000)
        self.counts[min((pause_us // FIRST_BOUND_US).bit_length(), BUCKETS - 1)] += 1
        if pause_us > self.longest_us:
            self.longest_us = pause_us

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile_us(self, share: float) -> int:
        """The pause that this share of all does not exceed: the bound of its bucket, or the longest pause."""
        rank = share * self.total
        seen = 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if count and seen >= rank:
                return min(FIRST_BOUND_US << bucket, self.longest_us)
        return 0

    def since(self, before: "LoopPauses") -> "LoopPauses":
        """What was added after the state `before`; the longest is exact if it is a new record."""
        counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        last = max((bucket for bucket, count in enumerate(counts) if count), default=None)
        if self.longest_us > before.longest_us:
            longest_us = self.longest_us
        else:
            longest_us = 0 if last is None else min(FIRST_BOUND_US << last, self.longest_us)
        return LoopPauses(counts, longest_us)

    def to_text(self) -> str:
        """As DescribeConfigs shows it."""
        return json.dumps({"counts": self.counts, "longest_us": self.longest_us})

    @classmethod
    def from_text(cls, text: str) -> "LoopPauses":
        read = json.loads(text)
        return cls(read["counts"], read["longest_us"])
