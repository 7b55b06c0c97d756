"""The longest times without an acknowledged send, by kind of fault."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tools.crash.ledger import Partition


class GapMeter:
    """Measures for each partition the longest time between two acknowledged sends."""

    def __init__(self, partitions: Iterable[Partition], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._latest = dict.fromkeys(partitions, clock())
        self._longest = dict.fromkeys(self._latest, 0.0)

    def acknowledged(self, partition: Partition) -> None:
        """A send to the partition was acknowledged now."""
        with self._lock:
            now = self._clock()
            self._longest[partition] = max(self._longest[partition], now - self._latest[partition])
            self._latest[partition] = now

    def begin(self) -> None:
        """Forget the gaps so far. One that is open now counts from its beginning."""
        with self._lock:
            self._longest = dict.fromkeys(self._longest, 0.0)

    def longest_s(self) -> float:
        """The longest gap of any partition since `begin`, one that is still open included."""
        with self._lock:
            now = self._clock()
            return max(max(self._longest[name], now - latest) for name, latest in self._latest.items())

    def waiting_since(self, moment: float) -> list[Partition]:
        """Partitions without an acknowledgement after this moment of the clock."""
        with self._lock:
            return [name for name, latest in self._latest.items() if latest <= moment]


def percentile(values: list[float], share: float) -> float:
    """The smallest value that is not exceeded by `share` of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


@dataclass(slots=True)
class Gaps:
    """The longest gap of each round, by kind of fault and target."""

    by_kind: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, target: str, longest_s: float) -> None:
        self.by_kind[kind, target].append(longest_s)

    def update(self, other: "Gaps") -> None:
        """Add the rounds of another cluster."""
        for (kind, target), gaps in other.by_kind.items():
            self.by_kind[kind, target] += gaps

    def of(self, kind: str, target: str | None = None) -> list[float]:
        """The gaps of all rounds of a kind, or of those with this target."""
        return [
            gap
            for (other, role), gaps in self.by_kind.items()
            if other == kind and target in (None, role)
            for gap in gaps
        ]

    def table(self) -> list[str]:
        """One line for each kind, and for each target of a kind that has several."""
        lines = [f"{'longest gap between acknowledged sends':44} rounds    p50    p99    max"]
        for kind in dict.fromkeys(kind for kind, _ in self.by_kind):
            targets = [target for other, target in self.by_kind if other == kind]
            lines.append(_line(kind, self.of(kind)))
            if len(targets) > 1:
                lines += [_line(f"  {target}", self.by_kind[kind, target]) for target in sorted(targets)]
        return lines


def _line(label: str, gaps: list[float]) -> str:
    figures = [percentile(gaps, 0.5), percentile(gaps, 0.99), max(gaps)]
    return f"{label:44} {len(gaps):6}" + "".join(f" {figure:4.2f} s" for figure in figures)
