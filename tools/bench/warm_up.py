"""When a broker is warm: a workload is repeated until its figure no longer changes.

A JVM that has just started compiles for most of a minute: with small requests, Apache Kafka serves 2,000 of
them a second at first and 40,000 when it is done. A comparison before that flatters the other side.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

WINDOWS = 3
TOLERANCE = 0.05

Result = TypeVar("Result")


def is_steady(figures: Sequence[float]) -> bool:
    """Do the last three windows agree within 5 % of the largest?"""
    last = figures[-WINDOWS:]
    return len(last) == WINDOWS and max(last) - min(last) <= TOLERANCE * max(last)


@dataclass(frozen=True, slots=True)
class WarmUpPlan:
    """How long a window is, and how long one workload is warmed at most."""

    window_s: float = 4.0
    limit_s: float = 40.0
    first_limit_s: float = 120.0
    """Of the first workload, which meets a broker that has just started."""


@dataclass(slots=True)
class WarmUp:
    """The windows of one workload on one broker."""

    figures: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_steady(self) -> bool:
        return is_steady(self.figures)

    def describe(self) -> str:
        outcome = "steady" if self.is_steady else "NOT steady"
        return f"{outcome} after {len(self.figures)} windows, {self.seconds:.0f} s"


def run_until_steady(
    window: Callable[[], Result],
    figure: Callable[[Result], float],
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Result, WarmUp]:
    """Repeat a window until three in a row agree, or the limit is over; the last result, and how it went."""
    warm_up, began = WarmUp(), clock()
    while True:
        result = window()
        warm_up.figures.append(figure(result))
        warm_up.seconds = clock() - began
        if warm_up.is_steady or warm_up.seconds >= limit_s:
            return result, warm_up
