"""Percentiles by nearest rank: always a value that was measured, never below the true one."""

import math
from collections.abc import Sequence
from typing import TypeVar

Value = TypeVar("Value", int, float)


def percentile(ordered: Sequence[Value], share: float) -> Value:
    """The smallest of the ascending values that at least this share of them does not exceed."""
    if not ordered:
        raise ValueError("no values to take a percentile of")
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
