"""Options shared by commands, and parsers for their values."""

import re
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

_RATE_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}


def parse_duration_ms(text: str) -> int:
    """Parse 500ms, 30s, 15m, 2h, 7d, 1h30m, or ISO 8601 such as PT15M."""
    from runnel.client import moments

    try:
        return moments.parse_duration_ms(text)
    except moments.InvalidMoment as error:
        raise typer.BadParameter(str(error)) from None


def parse_rate(text: str, option: str) -> int:
    """Bytes per second: 500K, 50M or 1G."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper().removesuffix("B"))
    if not found or not int(found[1]):
        raise typer.BadParameter(f"{text!r} is not a rate; examples: 500K, 50M or 1G", param_hint=option)
    return int(found[1]) * _RATE_UNITS[found[2]]


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Parse 2026-10-01T12:30 (local time unless it has an offset), @EPOCH_MS, or an age such as 15m."""
    from runnel.client import moments

    try:
        return moments.parse_moment_ms(text, now_ms)
    except moments.InvalidMoment as error:
        raise typer.BadParameter(str(error)) from None


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
