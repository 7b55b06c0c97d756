"""Moments and durations as people write them."""

import re
from datetime import datetime

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ISO_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


CHARACTERS_MAX = 100
"""Of a duration: to find that a long number has no unit takes the square of its length."""


class InvalidMoment(ValueError):
    """The text is not a moment or a duration; the message has examples."""


def parse_duration_ms(text: str) -> int:
    """Parse 500ms, 30s, 15m, 2h, 7d, 1h30m, or ISO 8601 such as PT15M."""
    if len(text) > CHARACTERS_MAX:
        raise InvalidMoment(f"{text[:20]!r}… is not a duration; examples: 30s, 15m, 2h or 7d")
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))
    iso = _ISO_DURATION.fullmatch(text)
    if iso and any(iso.groups()):
        return round(
            sum(float(number) * _UNITS_MS[unit] for unit, number in iso.groupdict().items() if number)
        )
    raise InvalidMoment(f"{text!r} is not a duration; examples: 30s, 15m, 2h or 7d")


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Parse 2026-10-01T12:30 (local time unless it has an offset), @EPOCH_MS, or an age such as 15m."""
    if text.startswith("@") and text[1:].isdecimal() and len(text) <= CHARACTERS_MAX:
        return int(text[1:])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        pass
    try:
        return now_ms - parse_duration_ms(text.removeprefix("-"))
    except InvalidMoment:
        raise InvalidMoment(
            f"{text[:50]!r} is not a time; examples: 2026-10-01T12:30, @1790857800000 or 15m (ago)"
        ) from None
