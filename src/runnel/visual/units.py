"""Formatting of quantities, and axis ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

_DECIMAL = (1, 2, 5)
_SEXAGESIMAL = (1, 2, 5, 10, 15, 30)
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_DAY_MS = 86_400_000
_TIME_STEPS_MS = (
    *(factor * power for power in (1, 10, 100) for factor in _DECIMAL),
    *(1000 * step for step in _SEXAGESIMAL),
    *(_MINUTE_MS * step for step in _SEXAGESIMAL),
    *(_HOUR_MS * step for step in (1, 2, 3, 6, 12)),
    *(_DAY_MS * step for step in (1, 2, 7, 14, 30, 90, 365)),
)


class Unit(Enum):
    """A unit with its prefixes as (suffix, factor), smallest first."""

    COUNT = (("", 1), (" k", 1e3), (" M", 1e6), (" G", 1e9), (" T", 1e12))
    BYTES = ((" B", 1), (" KiB", 2**10), (" MiB", 2**20), (" GiB", 2**30), (" TiB", 2**40), (" PiB", 2**50))
    DURATION_MS = (
        (" ms", 1),
        (" s", 1000),
        (" min", _MINUTE_MS),
        (" h", _HOUR_MS),
        (" d", _DAY_MS),
    )
    PERCENT = ((" %", 1),)
    RECORDS_PER_S = (("/s", 1), (" k/s", 1e3), (" M/s", 1e6), (" G/s", 1e9))
    BYTES_PER_S = ((" B/s", 1), (" KiB/s", 2**10), (" MiB/s", 2**20), (" GiB/s", 2**30))

    def scale(self, largest: float) -> tuple[str, float]:
        """The suffix and factor for numbers up to `largest`."""
        names: tuple[tuple[str, float], ...] = self.value
        # Counts up to 9,999 are written in full.
        least = 10 if self is Unit.COUNT else 1
        fitting = [entry for entry in names if entry[1] * (least if entry[1] > 1 else 1) <= abs(largest)]
        return fitting[-1] if fitting else names[0]

    def text(self, number: float) -> str:
        """Format a number."""
        name, size = self.scale(number)
        return _digits(number / size, is_whole=size == 1 and float(number).is_integer()) + name


def _digits(number: float, *, is_whole: bool) -> str:
    if is_whole:
        return f"{number:,.0f}"
    magnitude = abs(number)
    decimals = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class Tick:
    """A position on an axis and its label."""

    at: float
    text: str


def ticks(low: float, high: float, unit: Unit, count: int = 5) -> list[Tick]:
    """About `count` round values that cover [low, high]."""
    if high <= low:
        high = low + 1
    name, size = unit.scale(max(abs(low), abs(high)))
    step = _round_step((high - low) / size / count)
    # Counts are integers.
    if unit is Unit.COUNT and size == 1:
        step = max(1.0, step)
    first, last = math.floor(low / size / step + 1e-9), math.ceil(high / size / step - 1e-9)
    last = max(last, first + 1)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    values = [index * step for index in range(first, last + 1)]
    return [Tick(value * size, "0" if value == 0 else f"{value:,.{decimals}f}{name}") for value in values]


def _round_step(rough: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next((factor * power for factor in _DECIMAL if factor * power >= rough * (1 - 1e-9)), 10 * power)


def time_ticks(low_ms: float, high_ms: float, count: int = 6) -> list[Tick]:
    """Round times within a range, in UTC."""
    step_ms = time_step_ms(high_ms - low_ms, count)
    first = math.ceil(low_ms / step_ms)
    last = math.floor(high_ms / step_ms)
    return [Tick(index * step_ms, moment_tick(index * step_ms, step_ms)) for index in range(first, last + 1)]


def time_step_ms(span_ms: float, count: int) -> int:
    """The shortest round step of which at most `count` are in a span."""
    span_ms = max(1.0, span_ms)
    step_ms = next((step for step in _TIME_STEPS_MS if span_ms / step <= count), _TIME_STEPS_MS[-1])
    while span_ms / step_ms > count:
        step_ms *= 2
    return step_ms


def moment_tick(at_ms: float, step_ms: float) -> str:
    """The label of a time on an axis with these steps."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    if step_ms >= 365 * _DAY_MS:
        return f"{moment:%Y}"
    if step_ms >= _DAY_MS or (at_ms % _DAY_MS == 0 and step_ms >= _HOUR_MS):
        return f"{moment.day} {moment:%b}"
    if step_ms >= _MINUTE_MS:
        return f"{moment:%H:%M}"
    if step_ms >= 1000:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%S}.{moment.microsecond // 1000:03d}"


def moment_text(at_ms: float) -> str:
    """A timestamp to the second, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def whole(number: float) -> str:
    """An integer with thousands separators."""
    return f"{round(number):,}".replace(",", "\u202f")


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Downsample to about `most` points, keeping the minimum and maximum of each window."""
    if len(points) <= most:
        return list(points)
    width = math.ceil(len(points) / (most // 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), width):
        window = points[start : start + width]
        ends = {min(window, key=lambda point: point[1]), max(window, key=lambda point: point[1])}
        kept.extend(sorted(ends))
    return kept
