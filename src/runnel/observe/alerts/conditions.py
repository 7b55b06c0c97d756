"""Conditions of rules: each says of every series that it knows whether it is in alarm.

A condition is a function of the history and the rule's thresholds. `is_active` None means that the data do
not suffice to decide, as in the first moments after a start: the alert stays as it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isfinite

from runnel.observe.alerts.series import BROKER, STEP_MS, History, Labels, Need, labels_of

Thresholds = Mapping[str, float]
MINUTE_MS = 60_000
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Observation:
    """What a rule finds about one series."""

    labels: Labels
    is_active: bool | None
    value: float = 0.0


Condition = Callable[[History, Thresholds], Iterator[Observation]]


def above(need: Need, threshold: str) -> Condition:
    """The value is above the threshold."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        for labels, value in history.latest(need):
            yield Observation(labels, value > thresholds[threshold], value)

    return observe


def above_and_not_falling(need: Need, threshold: str, window_ms: int) -> Condition:
    """The value is above the threshold, and not lower than it was at the beginning of the window."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        for labels, value in history.latest(need):
            growth = history.increase(need, labels, window_ms)
            is_active = None if growth is None else growth >= 0
            yield Observation(labels, is_active if value > thresholds[threshold] else False, value)

    return observe


def quantile_of_series_above(need: Need, threshold: str, share: float) -> Condition:
    """The value that this share of the series does not exceed is above the threshold."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        values = sorted(value for _, value in history.latest(need))
        if values:
            value = interpolated(values, share)
            yield Observation((), value > thresholds[threshold], value)

    return observe


def histogram_above(need: Need, threshold: str, share: float, window_ms: int) -> Condition:
    """The quantile of what a histogram counted within the window is above the threshold."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        by_series: dict[Labels, dict[float, float | None]] = {}
        for rest, bound, labels in _bounds(history, need):
            by_series.setdefault(rest, {})[bound] = history.increase(need, labels, window_ms)
        for labels, buckets in by_series.items():
            known = [(bound, count) for bound, count in sorted(buckets.items()) if count is not None]
            if len(known) < len(buckets):
                yield Observation(labels, None)
            else:
                value = histogram_quantile(known, share)
                yield Observation(labels, value > thresholds[threshold], value)

    return observe


def counted_beyond(buckets: Need, counts: Need, threshold: str, window_ms: int) -> Condition:
    """A histogram counted something above the threshold within the window.

    The highest bound of the histogram that is not above the threshold decides.
    """

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        for labels, _ in history.latest(counts):
            total = history.increase(counts, labels, window_ms)
            bounds = [(bound, found) for rest, bound, found in _bounds(history, buckets) if rest == labels]
            below = max((each for each in bounds if each[0] <= thresholds[threshold]), default=None)
            within = None if below is None else history.increase(buckets, below[1], window_ms)
            if total is None or within is None:
                yield Observation(labels, None)
            else:
                yield Observation(labels, total - within > 0, total - within)

    return observe


def _bounds(history: History, need: Need) -> Iterator[tuple[Labels, float, Labels]]:
    """The buckets of histograms: the labels of the histogram, the bound, and all labels."""
    for labels, _ in history.latest(need):
        rest = tuple(each for each in labels if each[0] != "le")
        with suppress(ValueError):
            yield rest, float(dict(labels).get("le", "")), labels


def grows(need: Need, threshold: str, window_ms: int, by: Sequence[str] | None = None) -> Condition:
    """The value has grown by more than the threshold within the window; summed by labels, if given."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        sums: dict[Labels, float | None] = {}
        for labels, _ in history.latest(need):
            key = labels if by is None else tuple(each for each in labels if each[0] in by)
            growth = history.increase(need, labels, window_ms)
            before = sums.get(key)
            # A series that is deleted and created again begins at zero: that is no growth.
            known = None if growth is None else max(growth, 0.0)
            sums[key] = known if before is None else before + (known or 0.0)
        for labels, growth in sums.items():
            if growth is None:
                yield Observation(labels, None)
            else:
                yield Observation(labels, growth > thresholds[threshold], growth)

    return observe


def is_word(need: Need, label: str, word: str) -> Condition:
    """A series whose label is this word has a value other than zero."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        states: dict[Labels, bool] = {}
        for labels, value in history.latest(need):
            key = tuple(each for each in labels if each[0] != label)
            is_this = value != 0 and dict(labels).get(label) == word
            states[key] = states.get(key, False) or is_this
        for labels, is_active in states.items():
            yield Observation(labels, is_active, float(is_active))

    return observe


def is_not(need: Need, threshold: str) -> Condition:
    """The value differs from the threshold."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        for labels, value in history.latest(need):
            yield Observation(labels, value != thresholds[threshold], value)

    return observe


def used_above(free: Need, total: Need, threshold: str) -> Condition:
    """More than this share is used."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        for labels, whole in history.latest(total):
            left = history.value(free, labels)
            if left is not None and whole > 0:
                used = 1 - left / whole
                yield Observation(labels, used > thresholds[threshold], used)

    return observe


def exhausted_within(free: Need, threshold: str, window_ms: int) -> Condition:
    """By the trend of the window nothing is left after this many seconds."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        for labels, _ in history.latest(free):
            points = history.window(free, labels, window_ms)
            if not points:
                yield Observation(labels, None)
                continue
            left = forecast(_evenly(points), thresholds[threshold])
            yield Observation(labels, left < 0, left)

    return observe


def _evenly(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """One point of every five minutes: the recent ones, of which more are kept, must not weigh more."""
    marks = [
        point
        for index, point in enumerate(points)
        if index == 0 or point[0] // STEP_MS != points[index - 1][0] // STEP_MS
    ]
    return marks if len(marks) > 2 else points


def expires_within(need: Need, threshold: str) -> Condition:
    """The time (seconds since 1970) is less than this many seconds ahead."""

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        for labels, moment_s in history.latest(need):
            left_s = moment_s - history.at_ms / 1000
            yield Observation(labels, left_s < thresholds[threshold], left_s)

    return observe


def metrics_missing(history: History, thresholds: Thresholds) -> Iterator[Observation]:
    """The metrics of a broker could not be read."""
    for broker in history.snapshot.brokers:
        is_up = broker.metrics is not None or not broker.is_scraped
        yield Observation(labels_of({BROKER: str(broker.node_id)}), not is_up, float(is_up))


def heartbeats_missing(history: History, thresholds: Thresholds) -> Iterator[Observation]:
    """The controller has fenced a registered broker."""
    for broker in history.snapshot.brokers:
        yield Observation(labels_of({BROKER: str(broker.node_id)}), broker.is_fenced, float(broker.is_fenced))


def burns(errors: Need, requests: Need, windows: Sequence[tuple[str, int, int]]) -> Condition:
    """The error budget is used up too fast: for one of (threshold, long, short window) in both windows.

    The rate is the share of failed requests divided by the share that the objective permits. Windows with
    fewer than `requests` requests do not count: one failed request of ten is no trend.
    """

    def observe(history: History, thresholds: Thresholds) -> Iterator[Observation]:
        rates: list[tuple[bool, float]] = []
        for threshold, *spans in windows:
            burned = [_burn_rate(history, errors, requests, span, thresholds) for span in spans]
            if None in burned:
                continue
            slowest = min(rate for rate in burned if rate is not None)
            rates.append((slowest > thresholds[threshold], slowest))
        if rates:
            yield Observation((), any(is_active for is_active, _ in rates), max(rate for _, rate in rates))
        elif history.value(requests) is not None:
            yield Observation((), None)

    return observe


def _burn_rate(
    history: History, errors: Need, requests: Need, window_ms: int, thresholds: Thresholds
) -> float | None:
    asked = history.increase(requests, (), window_ms)
    if asked is None:
        return None
    if asked < thresholds["requests"]:
        return 0.0
    failed = history.increase(errors, (), window_ms) or 0.0
    return failed / asked / (1 - thresholds["objective"])


# Arithmetic, as PromQL defines it.


def interpolated(values: Sequence[float], share: float) -> float:
    """PromQL's quantile: linear between the two nearest of the sorted values."""
    position = share * (len(values) - 1)
    lower = int(position)
    upper = min(lower + 1, len(values) - 1)
    return values[lower] + (values[upper] - values[lower]) * (position - lower)


def histogram_quantile(buckets: Sequence[tuple[float, float]], share: float) -> float:
    """PromQL's histogram_quantile of cumulative counts by upper bound; 0 if nothing was counted."""
    total = buckets[-1][1]
    if total <= 0 or buckets[-1][0] != inf:
        return 0.0
    rank = share * total
    lower_bound = lower_count = 0.0
    for bound, count in buckets:
        if count >= rank:
            if not isfinite(bound):
                return lower_bound
            if count == lower_count:
                return bound
            return lower_bound + (bound - lower_bound) * (rank - lower_count) / (count - lower_count)
        lower_bound, lower_count = bound, count
    return lower_bound


def forecast(points: Sequence[tuple[int, float]], ahead_s: float) -> float:
    """PromQL's predict_linear: the value of the least-squares line `ahead_s` after the last point."""
    last_ms = points[-1][0]
    xs = [(at_ms - last_ms) / 1000 for at_ms, _ in points]
    ys = [value for _, value in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if spread == 0:
        return mean_y
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    return mean_y + slope * (ahead_s - mean_x)
