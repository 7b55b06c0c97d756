"""Parsers of option values."""

import pytest
import typer

from runnel.server.cli.options import parse_duration_ms, parse_moment_ms, parse_partitions, parse_settings


@pytest.mark.parametrize(
    "text, expected",
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("PT15M", 900_000),
        ("P1DT2H", 93_600_000),
        ("pt0.5s", 500),
    ],
)
def test_durations(text, expected):
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5y", "P", "PT", "-5m", "9" * 200, "9" * 400 + "d"])
def test_invalid_durations(text):
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2026-10-01T12:30:00Z", 1_790_857_800_000),
        ("2026-10-01T14:30:00+02:00", 1_790_857_800_000),
        ("@1790857800000", 1_790_857_800_000),
        ("15m", 10_000_000 - 900_000),
        ("-15m", 10_000_000 - 900_000),
    ],
)
def test_times(text, expected):
    assert parse_moment_ms(text, now_ms=10_000_000) == expected


@pytest.mark.parametrize("text", ["yesterday", "@", "@x", "12:30", "@" + "9" * 5000, "9" * 5000])
def test_invalid_times(text):
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parse_moment_ms(text, now_ms=0)


def test_partitions():
    assert parse_partitions("3") == [3]
    assert parse_partitions("0,2-4") == [0, 2, 3, 4]
    with pytest.raises(typer.BadParameter):
        parse_partitions("a")


def test_settings():
    assert parse_settings(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(typer.BadParameter, match="'a' is not of the form key=value"):
        parse_settings(["a"])
