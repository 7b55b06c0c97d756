"""The metrics that rules read: what is kept of the scrapes, how long, and how it is looked up.

A `Need` names a metric and how its series are combined; `History` keeps one list of points for each combined
series. Points of the last 15 minutes are kept as they came, older ones every 5 minutes. Those of a `stored`
need are records, too, so that windows of hours and days survive a restart.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isnan
from typing import Any

Labels = tuple[tuple[str, str], ...]
"""Sorted by name."""
Metrics = Mapping[str, Sequence[tuple[Labels, float]]]
"""Series with their values by the name of the metric."""

BROKER = "broker"
"""The label with the broker of a series."""

FINE_MS = 15 * 60_000
STEP_MS = 5 * 60_000
HOUR_MS = 3_600_000
SERIES_MAX = 5_000
"""Combined series of one need; those beyond are not kept. Users of the cluster choose how many there are."""
STORED_MAX = 300
"""Series of one need that are stored: a record has the points of an hour, and must fit into a batch."""

_RAW = "history/raw"
_HOUR = "history/"


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker that is registered, and what was read from it."""

    node_id: int
    metrics: Metrics | None
    """None: they could not be read."""
    is_fenced: bool = False
    """The controller receives no heartbeats of it."""
    is_scraped: bool = True
    """False: it has no address from which metrics could be read; no alert is derived from that."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The metrics of all registered brokers at one time."""

    at_ms: int
    brokers: tuple[BrokerState, ...]

    @property
    def missing(self) -> frozenset[int]:
        """The brokers whose metrics could not be read."""
        return frozenset(each.node_id for each in self.brokers if each.metrics is None and each.is_scraped)

    @property
    def is_complete(self) -> bool:
        """Whether the metrics of all nodes were read."""
        return all(each.metrics is not None for each in self.brokers)


@dataclass(frozen=True, slots=True)
class Need:
    """A metric as rules read it."""

    metric: str
    by: tuple[str, ...] | None = ()
    """Series with the same values of these labels are combined; None: all labels are kept."""
    where: tuple[tuple[str, str], ...] = ()
    """Label values that a series must have, as regular expressions."""
    is_counter: bool = False
    combine: str = "max"
    """Of gauges: "max" or "sum". Counters are always added up."""
    per_broker: bool = True
    """Each broker's series separately, with its id as the label `broker`."""
    begins_at_zero: bool = False
    """A series that appears later was zero before, as all counters."""
    window_ms: int = 0
    """How far rules look back."""
    is_stored: bool = False

    @property
    def key(self) -> str:
        """Names it in records."""
        where = ",".join(f"{name}={pattern}" for name, pattern in self.where)
        return f"{self.metric}{{{where}}} by {','.join(self.by or ('*',))}"


class Points:
    """One series: times and values, in order of time."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.values: list[float] = []

    def add(self, at_ms: int, value: float) -> None:
        if self.times and self.times[-1] >= at_ms:
            return
        self.times.append(at_ms)
        self.values.append(value)

    def thin(self, now_ms: int, window_ms: int) -> None:
        """Drop what no rule needs: points before the window, and most of those that are not recent."""
        first = max(bisect_right(self.times, now_ms - window_ms) - 1, 0)
        del self.times[:first], self.values[:first]
        fine = bisect_right(self.times, now_ms - FINE_MS)
        # The last of the old ones was recent a moment ago: does it begin five minutes?
        if fine > 1 and self.times[fine - 1] // STEP_MS == self.times[fine - 2] // STEP_MS:
            self._thin(fine)

    def _thin(self, fine: int) -> None:
        marks = [
            index
            for index in range(fine)
            if index == 0 or self.times[index] // STEP_MS != self.times[index - 1] // STEP_MS
        ]
        self.times[:fine] = [self.times[index] for index in marks]
        self.values[:fine] = [self.values[index] for index in marks]

    def increase(self, since_ms: int) -> float | None:
        """The difference of the last value and that of `since_ms`; None if there is only one."""
        first = max(bisect_right(self.times, since_ms) - 1, 0)
        return self.values[-1] - self.values[first] if len(self.times) - first > 1 else None

    def since(self, at_ms: int) -> list[tuple[int, float]]:
        """The points from the last one at or before this time; all if there is none."""
        first = max(bisect_right(self.times, at_ms) - 1, 0)
        return list(zip(self.times[first:], self.values[first:], strict=True))


@dataclass(slots=True)
class _Counter:
    """A counter of one broker: its last value, and what it has counted in total across restarts."""

    last: float
    total: float = 0.0

    def count(self, value: float) -> None:
        # A lower value: the broker was restarted, and has counted from zero.
        self.total += value - self.last if value >= self.last else value
        self.last = value


@dataclass(slots=True)
class History:
    """The points of all needs."""

    needs: tuple[Need, ...]
    at_ms: int = 0
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(0, ()))
    series: dict[Need, dict[Labels, Points]] = field(default_factory=dict)
    _counters: dict[tuple[Need, int], dict[Labels, _Counter]] = field(default_factory=dict)
    _scraped: set[int] = field(default_factory=set)
    """Brokers that were read before: what appears on them later has counted from zero."""
    _stored: dict[str, str] = field(default_factory=dict)
    _hour: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.series = {need: {} for need in self.needs}

    # Reading.

    def latest(self, need: Need) -> Iterator[tuple[Labels, float]]:
        """The series of the last snapshot."""
        for labels, points in self.series[need].items():
            if points.times[-1] == self.at_ms:
                yield labels, points.values[-1]

    def value(self, need: Need, labels: Labels = ()) -> float | None:
        """The value of one series in the last snapshot."""
        points = self.series[need].get(labels)
        return points.values[-1] if points is not None and points.times[-1] == self.at_ms else None

    def window(self, need: Need, labels: Labels, window_ms: int) -> list[tuple[int, float]]:
        """The points of a window, the last one before it included; empty if there are fewer than two."""
        points = self.series[need].get(labels)
        found = [] if points is None else points.since(self.at_ms - window_ms)
        return found if len(found) > 1 and found[-1][0] == self.at_ms else []

    def increase(self, need: Need, labels: Labels, window_ms: int) -> float | None:
        """How much a series has grown within a window; None if that is not known."""
        points = self.series[need].get(labels)
        if points is None or points.times[-1] != self.at_ms:
            return None
        return points.increase(self.at_ms - window_ms)

    # Writing.

    def add(self, snapshot: Snapshot) -> None:
        """Add what the needs select of a snapshot."""
        is_mark = snapshot.at_ms // STEP_MS != self.at_ms // STEP_MS
        before, stored_ms = self.snapshot, self.at_ms
        self.snapshot, self.at_ms = snapshot, snapshot.at_ms
        for need in self.needs:
            begun_ms = before.at_ms
            if need.begins_at_zero and before.missing:
                # The series may have been on a broker that was missing.
                begun_ms = 0
            elif not begun_ms and need.is_stored and need.is_counter:
                # After a restart.
                begun_ms = stored_ms
            self._add(need, dict(_selected(need, snapshot)), begun_ms)
        self._scraped |= {broker.node_id for broker in snapshot.brokers if broker.metrics is not None}
        self._forget(snapshot)
        if is_mark:
            self._store()

    def _add(self, need: Need, by_broker: Mapping[int, Mapping[Labels, float]], begun_ms: int) -> None:
        """Add points; a series that is new was zero at `begun_ms`, unless that is 0."""
        snapshot = self.snapshot
        if need.is_counter:
            for node, values in by_broker.items():
                self._count(need, node, values)
            # A total over all brokers includes those that are missing now: it must not fall.
            by_broker = {
                node: {labels: counter.total for labels, counter in counters.items()}
                for (of, node), counters in self._counters.items()
                if of == need and (node in by_broker or not need.per_broker)
            }
        # A sum without all its parts would fall, and rise again when the broker is back.
        elif need.combine == "sum" and not need.per_broker and not snapshot.is_complete:
            return
        combined: dict[Labels, float] = {}
        combine = _plus if need.is_counter or need.combine == "sum" else max
        for node, values in by_broker.items():
            for labels, value in values.items():
                key = _with_broker(labels, node) if need.per_broker else labels
                combined[key] = combine(combined[key], value) if key in combined else value
        known = self.series[need]
        for labels, value in combined.items():
            points = known.get(labels)
            if points is None:
                if len(known) >= SERIES_MAX:
                    continue
                points = known[labels] = Points()
                if begun_ms and (need.is_counter or need.begins_at_zero):
                    points.add(begun_ms, 0.0)
            points.add(snapshot.at_ms, value)
            points.thin(snapshot.at_ms, need.window_ms)

    def _count(self, need: Need, node: int, values: Mapping[Labels, float]) -> None:
        counters = self._counters.setdefault((need, node), {})
        for labels, value in values.items():
            counter = counters.get(labels)
            if counter is None:
                if len(counters) >= SERIES_MAX:
                    continue
                counter = counters[labels] = _Counter(0.0 if node in self._scraped else value)
            counter.count(value)

    def _forget(self, snapshot: Snapshot) -> None:
        """Drop series and brokers that no window reaches."""
        for need, known in self.series.items():
            limit_ms = snapshot.at_ms - max(need.window_ms, FINE_MS)
            for labels in [labels for labels, points in known.items() if points.times[-1] < limit_ms]:
                del known[labels]
        registered = {broker.node_id for broker in snapshot.brokers}
        for need, node in [each for each in self._counters if each[0].per_broker]:
            if node not in registered:
                del self._counters[need, node]

    # Records.

    def records(self) -> dict[str, str]:
        """What is to be stored: points every five minutes, a record for each hour, and the last counts."""
        return dict(self._stored)

    def _store(self) -> None:
        stored = [need for need in self.needs if need.is_stored]
        hour = self.at_ms // HOUR_MS
        if self._hour and self._hour[0][0] // HOUR_MS != hour:
            self._hour = []
        row = {
            need.key: [[dict(labels), value] for labels, value in islice(self.latest(need), STORED_MAX)]
            for need in stored
        }
        self._hour.append([self.at_ms, row])
        self._stored[f"{_HOUR}{hour}"] = _json(self._hour)
        first = (self.at_ms - max((need.window_ms for need in stored), default=0)) // HOUR_MS - 1
        for key in [key for key in self._stored if _is_hour(key) and _number(key) < first]:
            del self._stored[key]
        counters = [
            [need.key, node, dict(labels), counter.last, counter.total]
            for (need, node), known in self._counters.items()
            if need.is_stored
            for labels, counter in known.items()
        ]
        self._stored[_RAW] = _json({"scraped": sorted(self._scraped), "counters": counters})

    def restore(self, records: Mapping[str, str]) -> list[str]:
        """Continue from records. Returns the keys of those that are not valid and left out."""
        needs = {need.key: need for need in self.needs if need.is_stored}
        hours = sorted((key for key in records if _is_hour(key)), key=_number)
        rejected = []
        for key in [*hours, *([_RAW] if _RAW in records else [])]:
            try:
                restore = self._restore_raw if key == _RAW else self._restore_hour
                restore(json.loads(records[key]), needs)
                self._stored[key] = records[key]
            except (ValueError, KeyError, TypeError, AttributeError):
                rejected.append(key)
        return rejected

    def _restore_hour(self, rows: list[list[Any]], needs: Mapping[str, Need]) -> None:
        for at_ms, row in rows:
            for need in needs.values():
                for names, value in row.get(need.key, ()):
                    self.series[need].setdefault(labels_of(names), Points()).add(int(at_ms), float(value))
            self.at_ms = int(at_ms)
        self._hour = rows

    def _restore_raw(self, raw: dict[str, Any], needs: Mapping[str, Need]) -> None:
        self._scraped = {int(node) for node in raw["scraped"]}
        for name, node, names, last, total in raw["counters"]:
            if name in needs:
                counters = self._counters.setdefault((needs[name], int(node)), {})
                counters[labels_of(names)] = _Counter(float(last), float(total))


def _is_hour(key: str) -> bool:
    return key.startswith(_HOUR) and key.removeprefix(_HOUR).isdecimal()


def _number(key: str) -> int:
    return int(key.removeprefix(_HOUR))


def labels_of(names: Mapping[str, str]) -> Labels:
    """Labels from a mapping."""
    return tuple(sorted(names.items()))


def _selected(need: Need, snapshot: Snapshot) -> Iterator[tuple[int, dict[Labels, float]]]:
    """The series of a need by broker, combined within each."""
    patterns = [(name, re.compile(pattern).fullmatch) for name, pattern in need.where]
    combine = _plus if need.is_counter or need.combine == "sum" else max
    for broker in snapshot.brokers:
        if broker.metrics is None:
            continue
        values: dict[Labels, float] = {}
        for labels, value in broker.metrics.get(need.metric, ()):
            if not isnan(value) and _matches(patterns, labels):
                key = labels if need.by is None else tuple(each for each in labels if each[0] in need.by)
                values[key] = combine(values[key], value) if key in values else value
        yield broker.node_id, values


def _matches(patterns: Sequence[tuple[str, Callable[[str], Any]]], labels: Labels) -> bool:
    if not patterns:
        return True
    given = dict(labels)
    return all(matches(given.get(name, "")) for name, matches in patterns)


def _with_broker(labels: Labels, node: int) -> Labels:
    return labels_of({**dict(labels), BROKER: str(node)})


def _plus(one: float, other: float) -> float:
    return one + other


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
