"""Output for terminals and for scripts: styles only on a terminal."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

YEAR_10000_MS = 253_402_300_800_000
_NUMBER = re.compile(r"-|-?[\d,]+(\.\d+)?( [KMGT]?i?B)?")


class CommandError(Exception):
    """A command cannot be carried out; the message is shown to the user."""


def is_terminal() -> bool:
    """True if standard output is a terminal."""
    return sys.stdout.isatty()


def print_error(text: str) -> None:
    """Print an error message to standard error."""
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        print(f"\033[1;31merror:\033[0m {text}", file=sys.stderr)
    else:
        print(f"error: {text}", file=sys.stderr)


def print_info(text: str) -> None:
    """Print an informational message to standard error if it is a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def discard_output() -> None:
    """Redirect standard output to /dev/null, so that flushing it at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: Any) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2 if is_terminal() else None, ensure_ascii=False))


def print_fields(fields: Mapping[str, object]) -> None:
    """Names and values, one per line."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{_bold(name.ljust(width))}  {value}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "none") -> None:
    """Aligned columns with a header; numbers are right-aligned."""
    data = list(rows)
    if not data:
        print_info(empty)
        return
    texts = [[_text(cell) for cell in row] for row in data]
    is_number = [all(_NUMBER.fullmatch(row[index]) for row in texts) for index in range(len(columns))]
    widths = [max(len(name), *(len(row[index]) for row in texts)) for index, name in enumerate(columns)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, is_number, strict=True)
        )
        return "  ".join(padded).rstrip()

    print(_bold(line([name.upper() for name in columns])))
    for row in texts:
        print(line(row))


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if is_terminal() and "NO_COLOR" not in os.environ else text


def size_text(size_bytes: float) -> str:
    """A size in bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def time_text(timestamp_ms: int) -> str | None:
    """A record's timestamp in ISO 8601, UTC; None if it has none, or one outside years 1970 to 9999."""
    if not 0 <= timestamp_ms < YEAR_10000_MS:
        return None
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
