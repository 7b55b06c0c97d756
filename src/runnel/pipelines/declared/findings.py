"""Errors and warnings about a pipeline file, each with its position."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in the file; lines and columns count from 1."""

    line: int
    column: int


START = Position(1, 1)


class Severity(Enum):
    """Errors prevent a pipeline from running; warnings do not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a warning."""

    position: Position
    severity: Severity
    message: str

    def line(self, file: str) -> str:
        """The finding in the format of compilers, which editors recognise."""
        mark = "" if self.severity is Severity.ERROR else "warning: "
        return f"{file}:{self.position.line}:{self.position.column}: {mark}{self.message}"


@dataclass(slots=True)
class Findings:
    """The findings in one file."""

    _found: list[Finding] = field(default_factory=list)

    def error(self, position: Position, message: str) -> None:
        """Add an error."""
        self._add(Finding(position, Severity.ERROR, message))

    def warn(self, position: Position, message: str) -> None:
        """Add a warning."""
        self._add(Finding(position, Severity.WARNING, message))

    def _add(self, finding: Finding) -> None:
        # An anchor that is referenced twice is parsed twice.
        if finding not in self._found:
            self._found.append(finding)

    @property
    def has_errors(self) -> bool:
        """Does any finding prevent the pipeline from running?"""
        return any(finding.severity is Severity.ERROR for finding in self._found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(sorted(self._found, key=lambda finding: finding.position))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion to append to a message, or the empty string."""
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f": did you mean {by_lower[close[0]]!r}?" if close else ""


def listed(words: Iterable[str], last: str = "or") -> str:
    """Words joined as in a sentence: a, b or c."""
    *first, final = words
    return f"{', '.join(first)} {last} {final}" if first else final
