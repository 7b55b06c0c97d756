"""Mistakes in a file, each with its place and the way out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where in the file; lines and columns count from 1, as editors do."""

    line: int
    column: int


START = Place(1, 1)


class Severity(Enum):
    """Does it keep the pipeline from running?"""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend, or to think about."""

    place: Place
    severity: Severity
    message: str

    def line(self, file: str) -> str:
        """As compilers say it, so that editors and terminals can jump there."""
        mark = "" if self.severity is Severity.ERROR else "warning: "
        return f"{file}:{self.place.line}:{self.place.column}: {mark}{self.message}"


@dataclass(slots=True)
class Findings:
    """All that was found in one file."""

    _found: list[Finding] = field(default_factory=list)

    def error(self, place: Place, message: str) -> None:
        """It cannot run like this."""
        self._add(Finding(place, Severity.ERROR, message))

    def warn(self, place: Place, message: str) -> None:
        """It can run, but is hardly meant."""
        self._add(Finding(place, Severity.WARNING, message))

    def _add(self, finding: Finding) -> None:
        # An anchor that is used twice is read twice.
        if finding not in self._found:
            self._found.append(finding)

    @property
    def has_errors(self) -> bool:
        """Is there anything that keeps it from running?"""
        return any(finding.severity is Severity.ERROR for finding in self._found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(sorted(self._found, key=lambda finding: finding.place))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to end a message with, if anything known looks like the word."""
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f": did you mean {by_lower[close[0]]!r}?" if close else ""


def listed(words: Iterable[str], last: str = "or") -> str:
    """Words as in a sentence: a, b or c."""
    *first, final = words
    return f"{', '.join(first)} {last} {final}" if first else final
