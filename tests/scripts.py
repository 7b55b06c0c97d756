"""Tests as transcripts: commands, each followed by `=` lines that say what came out.

    # A comment says what is shown.
    append 10
    = hw 4

`pytest --rewrite` writes the `=` lines anew; the difference is then read by a person.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

Play = Callable[[str], list[str]]
"""Carries out one command and says what came out, line by line."""


@dataclass(frozen=True)
class Script:
    """One transcript file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    def check(self, play: Play, *, rewrite: bool) -> None:
        """Play all commands and compare what comes out with what is written."""
        written = self.path.read_text("utf-8")
        played = "".join(f"{line}\n" for line in _replayed(written.splitlines(), play))
        if rewrite:
            self.path.write_text(played, "utf-8")
        else:
            assert played.splitlines() == written.splitlines(), f"{self.path.name} tells another story"


def scripts(folder: Path) -> list[Script]:
    """All transcripts of a folder, by name."""
    found = [Script(path) for path in sorted(folder.glob("*.txt"))]
    assert found, f"there are no transcripts in {folder}"
    return found


def _replayed(lines: list[str], play: Play) -> Iterator[str]:
    for line in lines:
        if line.startswith("="):
            continue
        yield line
        command = line.strip()
        if command and not command.startswith("#"):
            yield from (f"= {out}" for out in play(command))
