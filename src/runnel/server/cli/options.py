"""Options shared by commands, and parsers for their values."""

import re
from datetime import datetime
from typing import Annotated

import typer

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="RUNNEL_BOOTSTRAP",
        help="Bootstrap servers: HOST:PORT, separated by commas.",
        metavar="ADDRESS",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting by its Kafka name. Repeatable.", metavar="KEY=VALUE"),
]

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_RATE_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ISO_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def parse_duration_ms(text: str) -> int:
    """Parse 500ms, 30s, 15m, 2h, 7d, 1h30m, or ISO 8601 such as PT15M."""
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))
    iso = _ISO_DURATION.fullmatch(text)
    if iso and any(iso.groups()):
        return round(
            sum(float(number) * _UNITS_MS[unit] for unit, number in iso.groupdict().items() if number)
        )
    raise typer.BadParameter(f"{text!r} is not a duration; examples: 30s, 15m, 2h or 7d")


def parse_rate(text: str, option: str) -> int:
    """Bytes per second: 500K, 50M or 1G."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper().removesuffix("B"))
    if not found or not int(found[1]):
        raise typer.BadParameter(f"{text!r} is not a rate; examples: 500K, 50M or 1G", param_hint=option)
    return int(found[1]) * _RATE_UNITS[found[2]]


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Parse 2026-10-01T12:30 (local time unless it has an offset), @EPOCH_MS, or an age such as 15m."""
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        pass
    try:
        return now_ms - parse_duration_ms(text.removeprefix("-"))
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text!r} is not a time; examples: 2026-10-01T12:30, @1790857800000 or 15m (ago)"
        ) from None


def parse_settings(assignments: list[str] | None) -> dict[str, str]:
    """Parse key=value pairs."""
    settings = {}
    for assignment in assignments or ():
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{assignment!r} is not of the form key=value")
        settings[key.strip()] = value
    return settings


def parse_partitions(text: str) -> list[int]:
    """Parse partition numbers: 3, 0,2,5 or 0-3."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise typer.BadParameter(f"{text!r} is not a list of partitions; examples: 0,2 or 0-3")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
