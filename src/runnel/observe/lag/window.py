"""The last commits of a group in one partition, each with the end offset at that time."""

from array import array
from typing import NamedTuple

COMMITS_MAX = 10
"""As many as Burrow examines."""
_FIELDS = 3


class Commit(NamedTuple):
    """A commit as it was observed."""

    at_ms: int
    """Of a monotonic clock."""
    offset: int
    end: int

    @property
    def lag(self) -> int:
        return max(self.end - self.offset, 0)


class Window:
    """A ring of the last commits."""

    __slots__ = ("_count", "_values")

    def __init__(self) -> None:
        self._values = array("q")
        self._count = 0
        """The number of commits that were added."""

    def __len__(self) -> int:
        return min(self._count, COMMITS_MAX)

    def add(self, commit: Commit) -> None:
        """Add a commit; the oldest one is dropped."""
        if self._count < COMMITS_MAX:
            self._values.extend(commit)
        else:
            at = self._count % COMMITS_MAX * _FIELDS
            self._values[at : at + _FIELDS] = array("q", commit)
        self._count += 1

    def commits(self) -> list[Commit]:
        """The commits, oldest first."""
        values = self._values.tolist()
        commits = [Commit(*values[at : at + _FIELDS]) for at in range(0, len(values), _FIELDS)]
        first = self._count % COMMITS_MAX if self._count > COMMITS_MAX else 0
        return commits[first:] + commits[:first]
