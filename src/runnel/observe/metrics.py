"""Metric families, and the counters from which they are computed when they are read.

Counters are plain integers of objects that exist anyway; a request costs a few additions. Names, labels and
text exist only while metrics are read.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

BUCKETS = 24
"""Buckets of latencies that are shown: up to 1 µs, then each twice as wide as the one before; the last but
one ends at 4.2 s, the last has no end."""

_COUNTERS = 64
"""More than any duration needs, so that none has to be compared with a limit."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The value of a histogram: counts by bucket, each with its upper bound, and the sum of all values."""

    bounds: Sequence[float]
    counts: Sequence[int]
    """One more than bounds: the last bucket has no upper bound. Not cumulative."""
    sum: float


Value: TypeAlias = int | float | Distribution
Sample: TypeAlias = tuple[Labels, Value]


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric. The samples may be computed one by one while they are rendered."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]


Collector: TypeAlias = Callable[[], Iterable[Family | None]]
"""Reads metrics. It may yield None wherever its work can be interrupted for a moment."""


class LatencyCounts:
    """A histogram of durations by the bit length of their microseconds."""

    __slots__ = ("counts", "longest", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * _COUNTERS
        self.seconds = 0.0
        """The sum of all durations."""
        self.longest = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count `count` events, each of which took this long."""
        self.counts[int(seconds * 1_000_000).bit_length()] += count
        self.seconds += seconds * count
        if seconds > self.longest:
            self.longest = seconds

    @property
    def total(self) -> int:
        """The number of events."""
        return sum(self.counts)

    def distribution(self) -> Distribution:
        """As a histogram shows it."""
        return latency_distribution(self.counts, self.seconds)


LATENCY_BOUNDS = tuple((1 << bits) / 1_000_000 for bits in range(BUCKETS - 1))


def latency_distribution(counts: Sequence[int], seconds: float) -> Distribution:
    """The histogram of durations that were counted by the bit length of their microseconds."""
    shown = [*counts[: BUCKETS - 1], sum(counts[BUCKETS - 1 :])]
    return Distribution(LATENCY_BOUNDS, shown, seconds)


def one(name: str, kind: Kind, help_text: str, value: Value, labels: Labels = ()) -> Family:
    """A family with one sample."""
    return Family(name, kind, help_text, ((labels, value),))
