"""The percentiles that the page shows."""

from collections.abc import Sequence

from runnel.server.bench.percentiles import percentile

SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def percentiles_us(values_ns: Sequence[int]) -> dict[str, float]:
    """p50, p99 and p99.9 in microseconds."""
    ordered = sorted(values_ns)
    return {name: percentile(ordered, share) / 1000 for name, share in SHARES.items()}
