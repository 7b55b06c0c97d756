"""Tests as transcripts: commands, each followed by its output in `=` lines.

    # A comment describes the case.
    append 10
    = hw 4

`pytest --rewrite` regenerates the `=` lines; review the diff.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

Play = Callable[[str], list[str]]
"""Executes one command and returns its output lines."""


@dataclass(frozen=True)
class Script:
    """One transcript file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    def check(self, play: Play, *, rewrite: bool) -> None:
        """Execute all commands and compare their output with the transcript."""
        written = self.path.read_text("utf-8")
        played = "".join(f"{line}\n" for line in _replayed(written.splitlines(), play))
        if rewrite:
            self.path.write_text(played, "utf-8")
        else:
            assert played.splitlines() == written.splitlines(), f"the output of {self.path.name} changed"


def scripts(directory: Path) -> list[Script]:
    """All transcripts of a directory, sorted by name."""
    found = [Script(path) for path in sorted(directory.glob("*.txt"))]
    assert found, f"no transcripts in {directory}"
    return found


def _replayed(lines: list[str], play: Play) -> Iterator[str]:
    for line in lines:
        if line.startswith("="):
            continue
        yield line
        command = line.strip()
        if command and not command.startswith("#"):
            yield from (f"= {out}" for out in play(command))
