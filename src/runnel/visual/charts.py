"""The charts of a report, drawn at any width; colours come from the stylesheet, tooltips are in <title>.

LineChart     quantities over time, as lines or filled
BarChart      quantities by name, the largest first if so state
Histogram     distribution of sizes
HeatStrips    one row of cells per name: distribution over partitions
Ribbons       one row per name over a range of offsets: valid and faulty ranges
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from runnel.visual.frame import CHARACTER_WIDTH, RIGHT, Frame, axes, frame_for
from runnel.visual.svg import drawing, element, hint, label, path
from runnel.visual.units import Tick, Unit, moment_text, thinned, ticks, time_ticks

SERIES_MAX = 8
"""Number of distinct colours; further series are merged into one."""
_POINTS_MAX = 400
_HINTS_MAX = 120
_HEIGHT = 220.0


class Chart(Protocol):
    """Something that can be drawn at a width."""

    @property
    def title(self) -> str: ...

    @property
    def legend(self) -> Sequence[tuple[str, str]]:
        """(CSS class, name) of each series; empty if the title is sufficient."""

    def draw(self, width: float) -> str:
        """The drawing as SVG."""


@dataclass(frozen=True, slots=True)
class Series:
    """A named line: (x, y) in order of x."""

    name: str
    points: Sequence[tuple[float, float]]
    is_forecast: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a point in time."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """Quantities over time (milliseconds since 1970, UTC)."""

    title: str
    series: Sequence[Series]
    unit: Unit
    is_filled: bool = False
    marks: Sequence[Mark] = ()
    ceiling: tuple[float, str] | None = None
    """A reference level, such as the disk size, and its name."""

    @property
    def legend(self) -> Sequence[tuple[str, str]]:
        if len(self.series) < 2:
            return ()
        return [(f"s{index}", series.name) for index, series in enumerate(self.series)]

    def draw(self, width: float) -> str:
        times = [x for series in self.series for x, _ in series.points] + [mark.at for mark in self.marks]
        values = [y for series in self.series for _, y in series.points]
        if self.ceiling:
            values.append(self.ceiling[0])
        if not times:
            return _nothing(self.title, width)
        y_ticks = ticks(min(0.0, *values, 0.0), max(*values, 0.0), self.unit, 4)
        low, high = min(times), max(times)
        # Show a single point in the middle of a minute.
        span = (low, high) if high > low else (low - 30_000, high + 30_000)
        frame = frame_for(width, _HEIGHT, span, y_ticks)
        x_ticks = time_ticks(frame.x_low, frame.x_high, max(2, int(width / 90)))
        parts = [axes(frame, x_ticks, y_ticks)]
        for index, series in enumerate(self.series):
            parts.append(self._line(frame, index, series))
        parts.extend(_mark(frame, mark) for mark in self.marks)
        if self.ceiling:
            parts.append(_ceiling(frame, *self.ceiling))
        parts.append(self._hints(frame))
        return drawing(width, _HEIGHT, "".join(parts), name=self.title)

    def _line(self, frame: Frame, index: int, series: Series) -> str:
        points = [(frame.x(x), frame.y(y)) for x, y in thinned(series.points, _POINTS_MAX)]
        colour = f"s{index % SERIES_MAX}"
        if len(points) == 1:
            return element("circle", cx=points[0][0], cy=points[0][1], r=3.5, class_=f"dot {colour}")
        style = "forecast" if series.is_forecast else "line"
        line = element("path", d=path(points), class_=f"{style} {colour}")
        if not self.is_filled or series.is_forecast or not points:
            return line
        base = frame.y(max(0.0, frame.y_low))
        area = path([(points[0][0], base), *points, (points[-1][0], base)])
        return element("path", d=area + "Z", class_=f"area {colour}") + line

    def _hints(self, frame: Frame) -> str:
        """Invisible columns with the values of all series as tooltips."""
        by_time: dict[float, list[str]] = {}
        for series in self.series:
            prefix = f"{series.name}: " if len(self.series) > 1 else ""
            for x, y in series.points:
                by_time.setdefault(x, []).append(f"{prefix}{self.unit.text(y)}")
        times = sorted(by_time)
        chosen = times[:: max(1, -(-len(times) // _HINTS_MAX))]
        positions = [frame.x(x) for x in chosen]
        # Each column extends halfway to its neighbours.
        edges = [(before + after) / 2 for before, after in pairwise(positions)]
        parts = []
        for x, left, right in zip(chosen, [frame.left, *edges], [*edges, frame.right], strict=False):
            text = "\n".join([moment_text(x) + " UTC", *by_time[x]])
            column = {"x": left, "y": frame.top, "width": right - left, "height": frame.bottom - frame.top}
            parts.append(element("rect", hint(text), class_="hover", **column))
        return "".join(parts)


def _mark(frame: Frame, mark: Mark) -> str:
    x = frame.x(mark.at)
    anchor = "end" if x > (frame.left + frame.right) / 2 else "start"
    line = element("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_="mark")
    return line + label(
        mark.text, x + (-5 if anchor == "end" else 5), frame.top + 9, anchor=anchor, class_="marked"
    )


def _ceiling(frame: Frame, level: float, name: str) -> str:
    y = frame.y(level)
    line = element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="mark")
    return line + label(name, frame.left + 5, y + 13, class_="marked")


@dataclass(frozen=True, slots=True)
class Bar:
    """One named quantity; `level` colours it: plain, good, warn or bad."""

    name: str
    value: float
    level: str = "plain"
    hint: str = ""


@dataclass(frozen=True, slots=True)
class BarChart:
    """Horizontal bars by name."""

    title: str
    bars: Sequence[Bar]
    unit: Unit

    @property
    def legend(self) -> Sequence[tuple[str, str]]:
        return ()

    def draw(self, width: float) -> str:
        if not self.bars:
            return _nothing(self.title, width)
        names = [_cut(bar.name, int(width * 0.36 / CHARACTER_WIDTH)) for bar in self.bars]
        left = max(map(len, names)) * CHARACTER_WIDTH + 12
        texts = [self.unit.text(bar.value) for bar in self.bars]
        room = width - left - RIGHT - max(map(len, texts)) * CHARACTER_WIDTH
        largest = max(bar.value for bar in self.bars) or 1.0
        parts, row = [], 24.0
        for index, (bar, name, text) in enumerate(zip(self.bars, names, texts, strict=True)):
            y = index * row + 4
            length = max(1.0, bar.value / largest * room)
            body = (
                label(name, left - 8, y + 14, anchor="end")
                + element(
                    "rect", x=left, y=y + 2, width=length, height=row - 8, rx=2, class_=f"bar {bar.level}"
                )
                + label(text, left + length + 6, y + 14, class_="value")
                + hint(bar.hint or f"{bar.name}: {text}")
            )
            parts.append(element("g", body))
        return drawing(width, len(self.bars) * row + 8, "".join(parts), name=self.title)


@dataclass(frozen=True, slots=True)
class Bin:
    """The number of values in [low, high)."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution; all bins are drawn with the same width."""

    title: str
    bins: Sequence[Bin]
    unit: Unit
    marks: Sequence[Mark] = ()

    @property
    def legend(self) -> Sequence[tuple[str, str]]:
        return ()

    def draw(self, width: float) -> str:
        if not self.bins:
            return _nothing(self.title, width)
        # Leave room above the highest bar for the text of a mark.
        highest = max(bin_.count for bin_ in self.bins) * (1.15 if self.marks else 1.0)
        y_ticks = ticks(0, highest, Unit.COUNT, 4)
        frame = frame_for(width, _HEIGHT, (0, len(self.bins)), y_ticks)
        edges = [bin_.low for bin_ in self.bins] + [self.bins[-1].high]
        every = max(1, -(-len(edges) * 58 // int(frame.right - frame.left)))
        x_ticks = [
            Tick(index, self.unit.text(edge)) for index, edge in enumerate(edges) if index % every == 0
        ]
        parts = [axes(frame, x_ticks, y_ticks)]
        total = sum(bin_.count for bin_ in self.bins) or 1
        for index, bin_ in enumerate(self.bins):
            left, right, top = frame.x(index) + 1, frame.x(index + 1) - 1, frame.y(bin_.count)
            span = f"{self.unit.text(bin_.low)} to {self.unit.text(bin_.high)}"
            text = f"{span}: {bin_.count:,} ({bin_.count / total:.1%})"
            box = {"x": left, "y": top, "width": max(1.0, right - left), "height": frame.bottom - top}
            parts.append(element("rect", hint(text), class_="bar plain", **box))
        for mark in self.marks:
            parts.append(_mark(frame, Mark(self._position(mark.at), mark.text)))
        return drawing(width, _HEIGHT, "".join(parts), name=self.title)

    def _position(self, value: float) -> float:
        for index, bin_ in enumerate(self.bins):
            if value < bin_.high:
                within = (value - bin_.low) / ((bin_.high - bin_.low) or 1.0)
                return index + min(1.0, max(0.0, within))
        return float(len(self.bins))


def _cut(text: str, most: int) -> str:
    """Truncate a name; the tooltip has the full text."""
    return text if len(text) <= most else text[: max(1, most - 1)] + "…"


def _nothing(title: str, width: float) -> str:
    text = label("no data", width / 2, 40, anchor="middle", class_="tick")
    return drawing(width, 70, text, name=title)
