"""Percentiles, of values and of buckets."""

from collections.abc import Callable, Mapping, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))
    return ordered[place]


def bucket_percentile(buckets: Mapping[int, int], share: float, low: Callable[[int], float]) -> float:
    """About the same for counts by bucket: the middle of the bucket of that value."""
    total = sum(buckets.values())
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= share * total:
            return (low(bucket) + low(bucket + 1)) / 2
    return 0.0
