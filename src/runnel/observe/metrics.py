"""Metric families: what a collector returns when metrics are read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


@dataclass(slots=True)
class Family:
    """All samples of one metric."""

    name: str
    kind: str
    """counter, gauge or histogram"""
    help: str
    samples: Iterable[Sample]


Collector = Callable[[], Iterable[Family]]
