"""Records that are sent together, and awaited as one."""

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from runnel.client.accumulator import Delivery


class Waiter(Protocol):
    """Who waits for the delivery of a record: a future, or a place among others."""

    def done(self) -> bool:
        """Is the outcome known, or not wanted any more?"""
        ...

    def set_result(self, delivery: "Delivery", /) -> None:
        """The record was written."""
        ...

    def set_exception(self, error: Exception, /) -> None:
        """The record will not be delivered, or that is unknown."""
        ...


class Deliveries:
    """The outcomes of several records, in their order."""

    def __init__(self, count: int) -> None:
        self.outcomes: list[Delivery | Exception | None] = [None] * count
        """None while it is not known."""
        self._missing = count
        self._complete = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Until all are known, or the time is over."""
        if not self._missing:
            return
        timer = asyncio.get_running_loop().call_later(timeout_s, self._complete.set)
        try:
            await self._complete.wait()
        finally:
            timer.cancel()
        if self._missing:
            self._complete.clear()

    def set(self, index: int, outcome: "Delivery | Exception") -> None:
        """The outcome of a record."""
        self.outcomes[index] = outcome
        self._missing -= 1
        if not self._missing:
            self._complete.set()


class Place:
    """The waiter of one of them."""

    __slots__ = ("_deliveries", "_index")

    def __init__(self, deliveries: Deliveries, index: int) -> None:
        self._deliveries = deliveries
        self._index = index

    def done(self) -> bool:
        """Is the outcome known?"""
        return self._deliveries.outcomes[self._index] is not None

    def set_result(self, delivery: "Delivery") -> None:
        """The record was written."""
        self._deliveries.set(self._index, delivery)

    def set_exception(self, error: Exception) -> None:
        """The record will not be delivered, or that is unknown."""
        self._deliveries.set(self._index, error)
