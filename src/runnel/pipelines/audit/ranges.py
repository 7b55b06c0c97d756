"""Contiguous ranges of offsets."""

from collections.abc import Iterable


def runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets in any order as (first, last) of each contiguous range."""
    found: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] == offset - 1:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found
