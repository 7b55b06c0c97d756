"""The programs and the result tables of docs/DELIVERY.md."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "DELIVERY.md"
_PROGRAM = re.compile(r"^```python (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^\| failure \|.*\n(?:\|.*\n)+", re.MULTILINE)


def programs() -> dict[str, str]:
    """The source of each program by name."""
    return dict(_PROGRAM.findall(PAGE.read_text()))


def claims() -> dict[tuple[str, str], list[str]]:
    """The documented result for each program or mode and each failure."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in _TABLE.findall(PAGE.read_text()):
        head, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        for failure, *outcomes in rows:
            for name, outcome in zip(head[1:], outcomes, strict=True):
                found[name, failure] = outcome.split()
    return found
