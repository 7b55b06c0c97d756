"""Work that may block, in the form in which the disk's threads run it."""

from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Job(Generic[T]):
    """A function for `Disk.run_blocking`, whose result or exception is passed to a future."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T | None = None

    def run(self) -> None:
        self._result = self._work()

    def finish(self) -> T:
        return cast("T", self._result)
