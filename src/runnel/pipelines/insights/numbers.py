"""Percentiles, of values and of buckets."""

from collections.abc import Callable, Mapping, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    index = max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))
    return ordered[index]


def bucket_percentile(buckets: Mapping[int, int], share: float, low: Callable[[int], float]) -> float:
    """The percentile of bucketed counts: the middle of its bucket."""
    total = sum(buckets.values())
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= share * total:
            return (low(bucket) + low(bucket + 1)) / 2
    return 0.0
