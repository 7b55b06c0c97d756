"""Values that are fetched once for all callers: all tabs of all users with the same rights."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

COST_FACTOR = 5.0
"""A value stays fresh at least this many times as long as fetching it took, so that fetching it does not
become all that a large cluster does."""


class Shared(Generic[T]):
    """A value with a time to live; concurrent callers wait for one fetch."""

    def __init__(self, fetch: Callable[[], Awaitable[T]], ttl_s: float, stale_s: float = 0.0) -> None:
        """For `stale_s` more, the value is returned as it is while it is fetched again."""
        self._fetch = fetch
        self._ttl_s = ttl_s
        self._stale_s = stale_s
        self._value: T | None = None
        self._fresh_until_s = float("-inf")
        self._task: asyncio.Task[T] | None = None
        self.fetched_s = float("-inf")
        """When the value was fetched, on the clock of the event loop."""

    async def get(self) -> T:
        """The value, fetched if it is not fresh."""
        now_s = asyncio.get_running_loop().time()
        if self._value is not None and now_s < self._fresh_until_s:
            return self._value
        if self._task is None:
            self._task = asyncio.create_task(self._refresh())
            # Without waiters, an error concerns no caller.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._value is not None and now_s < self._fresh_until_s + self._stale_s:
            return self._value
        return await asyncio.shield(self._task)

    @property
    def is_cold(self) -> bool:
        """Nothing was fetched yet."""
        return self._value is None

    def invalidate(self) -> None:
        """Fetch again for the next caller: something was changed."""
        self._fresh_until_s = float("-inf")
        self._task = None

    async def _refresh(self) -> T:
        loop = asyncio.get_running_loop()
        began_s, mine = loop.time(), asyncio.current_task()
        try:
            value = await self._fetch()
        finally:
            is_current = self._task is mine
            if is_current:
                self._task = None
        if is_current:
            self._value = value
            self.fetched_s = loop.time()
            self._fresh_until_s = self.fetched_s + max(self._ttl_s, COST_FACTOR * (self.fetched_s - began_s))
        return value


class SharedByKey(Generic[K, T]):
    """Shared values by key; the least recently used ones are dropped above `count_max`."""

    def __init__(self, fetch: Callable[[K], Awaitable[T]], ttl_s: float, count_max: int) -> None:
        self._fetch = fetch
        self._ttl_s = ttl_s
        self._count_max = count_max
        self._values: dict[K, Shared[T]] = {}

    async def get(self, key: K) -> T:
        """The value of a key, fetched if it is not fresh."""
        value = self._values.pop(key, None)
        if value is None:
            value = Shared(lambda: self._fetch(key), self._ttl_s)
            while len(self._values) >= self._count_max:
                del self._values[next(iter(self._values))]
        self._values[key] = value
        return await value.get()

    def invalidate(self) -> None:
        """Fetch all again: something was changed."""
        for value in self._values.values():
            value.invalidate()
