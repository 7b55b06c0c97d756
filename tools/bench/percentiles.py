"""Percentiles by nearest rank: always a value that was measured, never below the true one."""

import math
from collections.abc import Sequence

SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def percentile(ordered: Sequence[int], share: float) -> int:
    """The smallest of the ascending values that at least this share of them does not exceed."""
    if not ordered:
        raise ValueError("no values to take a percentile of")
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def percentiles_us(values_ns: Sequence[int]) -> dict[str, float]:
    """p50, p99 and p99.9 in microseconds."""
    ordered = sorted(values_ns)
    return {name: percentile(ordered, share) / 1000 for name, share in SHARES.items()}
