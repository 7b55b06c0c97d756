"""Formats of numbers, times and bytes."""

import time
from datetime import UTC, datetime

YEAR_10000_MS = 253_402_300_800_000
NARROW_SPACE = "\u202f"
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float | None) -> str:
    """An integer with thousands separators."""
    return "–" if value is None else f"{round(value):,}".replace(",", NARROW_SPACE)


def rate(value: float | None) -> str:
    """A number per second: small ones with a decimal."""
    if value is None:
        return "–"
    return f"{value:.1f}" if 0 < value < 10 else number(value)


def size(value: float | None) -> str:
    """A size in bytes with a binary unit."""
    if value is None:
        return "–"
    unit = 0
    while abs(value) >= 1024 and unit < len(_BYTES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_BYTES[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_BYTES[unit]}"


def duration(seconds: float | None) -> str:
    """A duration with one or two units."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return "0 s" if seconds <= 0 else f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    for unit, name, below, below_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {name}" + (f" {rest} {below_name}" if rest else "")
    rest = whole % 60
    return f"{whole // 60} min" + (f" {rest} s" if rest else "")


def moment(timestamp_ms: int | None) -> str:
    """A timestamp in UTC; a dash if there is none, or one outside years 1970 to 9999."""
    if timestamp_ms is None or not 0 <= timestamp_ms < YEAR_10000_MS:
        return "–"
    shown = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return shown.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def ago(timestamp_ms: int | None, now_ms: int | None = None) -> str:
    """How long ago a moment was."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "–"
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    seconds = (now_ms - timestamp_ms) / 1000
    return "in the future" if seconds < -1 else "just now" if seconds < 1 else f"{duration(seconds)} ago"


def plural(count: int, singular: str, more: str = "") -> str:
    """A count and its noun."""
    return f"{number(count)} {singular if count == 1 else more or singular + 's'}"


def shown_bytes(value: bytes | None, count_max: int | None = None) -> str:
    """Bytes as text: UTF-8, or hexadecimal if they are not; shortened to `count_max` characters."""
    if value is None:
        return ""
    head = value if count_max is None else value[: 4 * count_max]
    try:
        text = head.decode("utf-8") if len(head) == len(value) else head.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        text = "0x" + head[:count_max].hex()
    if count_max is not None and len(text) > count_max:
        return text[:count_max] + "…"
    return text


def hex_dump(value: bytes, rows_max: int = 4096) -> str:
    """Offset, sixteen bytes and their printable characters on each line."""
    lines = []
    for start in range(0, min(len(value), 16 * rows_max), 16):
        row = value[start : start + 16]
        digits = f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"
        printable = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        lines.append(f"{start:08x}  {digits}  {printable}")
    if len(value) > 16 * rows_max:
        lines.append(f"… {len(value) - 16 * rows_max} more bytes")
    return "\n".join(lines)


def partitions_text(numbers: list[int]) -> str:
    """Numbers with ranges: 0–3, 7."""
    parts: list[str] = []
    ordered = sorted(numbers)
    while ordered:
        length = 1
        while length < len(ordered) and ordered[length] == ordered[0] + length:
            length += 1
        first, last = ordered[0], ordered[length - 1]
        parts.append(str(first) if length == 1 else f"{first}–{last}")
        ordered = ordered[length:]
    return ", ".join(parts)
