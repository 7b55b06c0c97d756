"""Pages of a list."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Pager:
    """Which part of a list is shown."""

    def __init__(self, total: int, size: int, page: int) -> None:
        self.total = total
        self.size = size
        self.last = max(1, -(-total // size))
        self.page = min(max(1, page), self.last)

    @property
    def first_shown(self) -> int:
        return (self.page - 1) * self.size + 1 if self.total else 0

    @property
    def last_shown(self) -> int:
        return min(self.page * self.size, self.total)

    def slice(self, rows: Sequence[T]) -> list[T]:
        """The rows of the page."""
        return list(rows[(self.page - 1) * self.size : self.page * self.size])
