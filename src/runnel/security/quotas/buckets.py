"""The usage of clients with a quota, by the entity that shares it; for a limited number of them.

Client ids are chosen by clients, so that there may be any number. A bucket that was not used for as long as
it remembers is the same as a new one, and dropped first; then those that were looked up least recently.
"""

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

BUCKETS_MAX = 10_000
"""Buckets of one kind, about 1 KB each."""


class Forgettable(Protocol):
    """What was used, which is the same as nothing after some time."""

    def is_forgotten(self, now_ms: int) -> bool: ...


B = TypeVar("B", bound=Forgettable)


class Buckets(Generic[B]):
    """Buckets by key, in the order in which they were looked up last."""

    __slots__ = ("_by_key", "_count_max")

    def __init__(self, count_max: int = BUCKETS_MAX) -> None:
        self._by_key: dict[Hashable, B] = {}
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Hashable) -> B | None:
        """The bucket of a key, if there is one."""
        bucket = self._by_key.pop(key, None)
        if bucket is not None:
            self._by_key[key] = bucket
        return bucket

    def add(self, key: Hashable, bucket: B, now_ms: int) -> bool:
        """Keep a new bucket; returns whether others were dropped to make room for it."""
        is_full = len(self._by_key) >= self._count_max
        if is_full:
            self._make_room(now_ms)
        self._by_key[key] = bucket
        return is_full

    def _make_room(self, now_ms: int) -> None:
        kept = {key: bucket for key, bucket in self._by_key.items() if not bucket.is_forgotten(now_ms)}
        # At least a tenth: examining all of them must not be repeated for the next one.
        excess = len(kept) - self._count_max * 9 // 10
        for key in list(kept)[: max(excess, 0)]:
            del kept[key]
        self._by_key = kept
