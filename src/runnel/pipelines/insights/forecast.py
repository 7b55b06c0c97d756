"""Forecast of disk usage: each topic grows at its current rate until retention limits it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

HORIZON_MS = 5 * 365 * 86_400_000
"""The forecast ends here."""
_POINTS = 24


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of a topic, summed over all brokers."""

    topic: str
    size_bytes: float
    bytes_per_s: float
    limit_bytes: float | None
    """The maximum size under retention; None if unlimited."""
    is_compacted: bool = False
    """A compacted topic keeps one record per key: it grows with new keys only."""

    def size_at(self, after_s: float) -> float:
        """The size after this many seconds."""
        grown = self.size_bytes + self.bytes_per_s * after_s
        # Above its limit, a topic does not grow.
        return grown if self.limit_bytes is None else min(grown, max(self.limit_bytes, self.size_bytes))


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of disk usage."""

    used_bytes: float
    total_bytes: float
    bytes_per_day: float
    """The current growth of all topics."""
    full_after_ms: int | None
    """None if the disks do not fill up within the horizon."""
    points: list[tuple[int, float]]
    """(milliseconds from now, bytes used)"""


def limit_of(
    bytes_per_s: float, replicas: int, partitions: int, retention_ms: int, retention_bytes: int
) -> float | None:
    """The maximum size under retention.ms and retention.bytes; None if both are unlimited."""
    limits = []
    if retention_ms >= 0:
        limits.append(bytes_per_s * retention_ms / 1000)
    if retention_bytes >= 0:
        limits.append(float(retention_bytes) * partitions * replicas)
    return min(limits) if limits else None


def forecast(topics: Iterable[Growth], used_bytes: float, total_bytes: float) -> Forecast:
    """Compute a forecast; `used_bytes` includes other data on the disks."""
    growths = list(topics)
    now_bytes = sum(growth.size_at(0) for growth in growths)

    def used_at(after_s: float) -> float:
        return used_bytes + sum(growth.size_at(after_s) for growth in growths) - now_bytes

    full_after_s = _full_after_s(growths, used_at, total_bytes)
    end_s = _shown_until_s(growths, full_after_s)
    points = [
        (round(end_s * 1000 * step / _POINTS), used_at(end_s * step / _POINTS)) for step in range(_POINTS + 1)
    ]
    rate = sum(growth.bytes_per_s for growth in growths if growth.size_at(1) > growth.size_bytes)
    return Forecast(
        used_bytes,
        total_bytes,
        rate * 86_400,
        None if full_after_s is None else round(full_after_s * 1000),
        points,
    )


def _limit_times(growths: Sequence[Growth]) -> list[float]:
    """When topics reach their limits, in seconds from now, followed by the horizon."""
    times = [
        (growth.limit_bytes - growth.size_bytes) / growth.bytes_per_s
        for growth in growths
        if growth.limit_bytes is not None
        and growth.bytes_per_s > 0
        and growth.limit_bytes > growth.size_bytes
    ]
    horizon_s = HORIZON_MS / 1000
    return sorted({time for time in times if time < horizon_s} | {horizon_s})


def _full_after_s(
    growths: Sequence[Growth], used_at: Callable[[float], float], total_bytes: float
) -> float | None:
    """When the disks are full: growth is linear between two limits."""
    start = 0.0
    if used_at(0) >= total_bytes:
        return 0.0
    for end in _limit_times(growths):
        before, after = used_at(start), used_at(end)
        if after >= total_bytes:
            return start + (end - start) * (total_bytes - before) / (after - before)
        start = end
    return None


def _shown_until_s(growths: Sequence[Growth], full_after_s: float | None) -> float:
    if full_after_s is not None:
        return max(full_after_s * 1.25, 3600.0)
    # Not full within the horizon: show until all topics reach their limit, at least a month.
    times = [time for time in _limit_times(growths) if time < HORIZON_MS / 1000]
    return min(max([30 * 86_400.0, *(time * 1.2 for time in times)]), HORIZON_MS / 1000)
