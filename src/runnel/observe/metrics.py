"""Metric families: what a collector returns when metrics are read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric. The samples may be computed one by one while they are rendered."""

    name: str
    kind: str
    """counter, gauge or histogram"""
    help: str
    samples: Iterable[Sample]


Collector = Callable[[], Iterable[Family | None]]
"""Reads metrics. It may yield None wherever its work can be interrupted for a moment."""
