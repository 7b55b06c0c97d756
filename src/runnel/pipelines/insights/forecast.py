"""When the disk will be full: each topic grows at its rate until its retention holds it back."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

HORIZON_MS = 5 * 365 * 86_400_000
"""What is further away is not forecast."""
_POINTS = 24


@dataclass(frozen=True, slots=True)
class Growth:
    """How a topic's files grow, on all brokers together."""

    topic: str
    size_bytes: float
    bytes_per_s: float
    limit_bytes: float | None
    """What retention lets it become; None if nothing limits it."""
    is_compacted: bool = False
    """It keeps one record of each key: only new keys let it grow."""

    def size_at(self, after_s: float) -> float:
        """How large it will be so many seconds from now."""
        grown = self.size_bytes + self.bytes_per_s * after_s
        # One that is larger than its limit will be cut: it does not grow, whatever is written.
        return grown if self.limit_bytes is None else min(grown, max(self.limit_bytes, self.size_bytes))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What becomes of the disks' space."""

    used_bytes: float
    total_bytes: float
    bytes_per_day: float
    """At which all topics together grow right now."""
    full_after_ms: int | None
    """None if it will not be full within the horizon."""
    points: list[tuple[int, float]]
    """(milliseconds from now, bytes used)"""


def limit_of(
    bytes_per_s: float, replicas: int, partitions: int, retention_ms: int, retention_bytes: int
) -> float | None:
    """The size that retention lets a topic reach: by time, by size, or none if both are unlimited."""
    limits = []
    if retention_ms >= 0:
        limits.append(bytes_per_s * retention_ms / 1000)
    if retention_bytes >= 0:
        limits.append(float(retention_bytes) * partitions * replicas)
    return min(limits) if limits else None


def forecast(topics: Iterable[Growth], used_bytes: float, total_bytes: float) -> Forecast:
    """Look ahead; `used_bytes` counts whatever else is on the disks."""
    growths = list(topics)
    now_bytes = sum(growth.size_at(0) for growth in growths)

    def used_at(after_s: float) -> float:
        return used_bytes + sum(growth.size_at(after_s) for growth in growths) - now_bytes

    full_after_s = _reaches(growths, used_at, total_bytes)
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


def _bends(growths: Sequence[Growth]) -> list[float]:
    """When topics reach their limits, in seconds from now, and the horizon."""
    times = [
        (growth.limit_bytes - growth.size_bytes) / growth.bytes_per_s
        for growth in growths
        if growth.limit_bytes is not None
        and growth.bytes_per_s > 0
        and growth.limit_bytes > growth.size_bytes
    ]
    horizon_s = HORIZON_MS / 1000
    return sorted({time for time in times if time < horizon_s} | {horizon_s})


def _reaches(
    growths: Sequence[Growth], used_at: Callable[[float], float], total_bytes: float
) -> float | None:
    """When the space is used up: between two bends it grows evenly."""
    start = 0.0
    if used_at(0) >= total_bytes:
        return 0.0
    for end in _bends(growths):
        before, after = used_at(start), used_at(end)
        if after >= total_bytes:
            return start + (end - start) * (total_bytes - before) / (after - before)
        start = end
    return None


def _shown_until_s(growths: Sequence[Growth], full_after_s: float | None) -> float:
    if full_after_s is not None:
        return max(full_after_s * 1.25, 3600.0)
    # Nothing fills: show until retention holds all topics, or a month.
    bends = [bend for bend in _bends(growths) if bend < HORIZON_MS / 1000]
    return min(max([30 * 86_400.0, *(bend * 1.2 for bend in bends)]), HORIZON_MS / 1000)
