"""Offsets as the stretches they make up."""

from collections.abc import Iterable


def runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets in any order as (first, last) of each stretch without a hole."""
    found: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] == offset - 1:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found
