"""Row charts: heat strips, ribbons over offsets, and sparklines."""

from collections.abc import Sequence
from dataclasses import dataclass

from runnel.visual.frame import CHARACTER_WIDTH, RIGHT
from runnel.visual.svg import drawing, element, hint, label, path
from runnel.visual.units import Unit, whole

_ROW = 24.0
_NAME_SHARE = 0.3
HEAT_STEPS = 7
"""Shades of a heat strip, from zero to the maximum."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One row of cells, each shaded relative to the maximum of the row."""

    name: str
    values: Sequence[float]
    note: str = ""


@dataclass(frozen=True, slots=True)
class HeatStrips:
    """The distribution over numbered cells, one row per name."""

    title: str
    strips: Sequence[Strip]
    unit: Unit
    cell_name: str = "partition"

    @property
    def legend(self) -> Sequence[tuple[str, str]]:
        return [("heat0", "none"), ("heat3", "half"), ("heat6", "maximum")] if self.strips else ()

    def draw(self, width: float) -> str:
        names = [_cut(strip.name, width) for strip in self.strips]
        left = max((len(name) for name in names), default=0) * CHARACTER_WIDTH + 12
        longest = max((len(strip.note) for strip in self.strips), default=0)
        right = width - RIGHT - (longest * CHARACTER_WIDTH + 8 if longest else 0)
        parts: list[str] = []
        for index, (strip, name) in enumerate(zip(self.strips, names, strict=True)):
            y = index * _ROW + 2
            parts.append(label(name, left - 8, y + 15, anchor="end"))
            parts.append(self._cells(strip, left, right, y))
            if strip.note:
                parts.append(label(strip.note, right + 8, y + 15, class_="value"))
        return drawing(width, max(1, len(self.strips)) * _ROW + 4, "".join(parts), name=self.title)

    def _cells(self, strip: Strip, left: float, right: float, y: float) -> str:
        largest, count = max(strip.values, default=0.0) or 1.0, max(1, len(strip.values))
        step = (right - left) / count
        gap = 2.0 if step > 6 else 0.0
        parts = []
        for number, value in enumerate(strip.values):
            shade = 0 if value <= 0 else max(1, round(value / largest * (HEAT_STEPS - 1)))
            text = f"{strip.name}, {self.cell_name} {number}: {self.unit.text(value)}"
            box = {"x": left + number * step, "y": y, "width": max(0.6, step - gap), "height": _ROW - 5}
            parts.append(element("rect", hint(text), class_=f"cell heat{shade}", rx=2 if gap else 0, **box))
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class Span:
    """The range [start, end) of a ribbon."""

    start: int
    end: int
    level: str
    """good, plain, warn or bad"""
    hint: str


@dataclass(frozen=True, slots=True)
class Ribbon:
    """One row for the range [start, end)."""

    name: str
    start: int
    end: int
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Ribbons:
    """One row per range of offsets, with its valid and faulty parts."""

    title: str
    rows: Sequence[Ribbon]
    names: Sequence[tuple[str, str]] = ()
    """(level, what it means)"""

    @property
    def legend(self) -> Sequence[tuple[str, str]]:
        return self.names

    def draw(self, width: float) -> str:
        names = [_cut(row.name, width) for row in self.rows]
        left = max((len(name) for name in names), default=0) * CHARACTER_WIDTH + 12
        ends = [f"{whole(row.start)} – {whole(row.end)}" for row in self.rows]
        right = width - RIGHT - max((len(end) for end in ends), default=0) * CHARACTER_WIDTH
        parts: list[str] = []
        for index, (row, name, end) in enumerate(zip(self.rows, names, ends, strict=True)):
            y = index * _ROW + 2
            parts.append(label(name, left - 8, y + 15, anchor="end"))
            parts.append(_ribbon(row, left, right, y))
            parts.append(label(end, right + 8, y + 15, class_="tick"))
        return drawing(width, max(1, len(self.rows)) * _ROW + 4, "".join(parts), name=self.title)


def _ribbon(row: Ribbon, left: float, right: float, y: float) -> str:
    size = max(1, row.end - row.start)
    text = f"{row.name}: offsets {whole(row.start)} to {whole(row.end)}"
    base = {"x": left, "y": y + 3, "width": right - left, "height": _ROW - 12}
    level = "good" if row.end > row.start else "empty"
    parts = [element("rect", hint(text), class_=f"ribbon {level}", rx=3, **base)]
    # Faults are drawn last and with a minimum width, so that one record among millions is visible.
    for span in sorted(row.spans, key=lambda span: span.level == "bad"):
        start = left + (max(span.start, row.start) - row.start) / size * (right - left)
        length = (min(span.end, row.end) - max(span.start, row.start)) / size * (right - left)
        is_bad = span.level in ("bad", "warn")
        shown = max(length, 3.0 if is_bad else 0.5)
        tall = {"y": y, "height": _ROW - 6} if is_bad else {"y": y + 3, "height": _ROW - 12}
        start = min(start, right - shown)
        parts.append(
            element("rect", hint(span.hint), class_=f"ribbon {span.level}", x=start, width=shown, **tall)
        )
    return "".join(parts)


def sparkline(values: Sequence[float], name: str, width: float = 110, height: float = 26) -> str:
    """A line without axes, for a table cell or a figure."""
    if not values:
        return ""
    # Draw a single value as a horizontal line.
    values = values if len(values) > 1 else [*values, *values]
    low, high = min(0.0, *values), max(*values, 0.0) or 1.0
    step = (width - 6) / max(1, len(values) - 1)
    points = [
        (3 + index * step, height - 3 - (value - low) / ((high - low) or 1.0) * (height - 6))
        for index, value in enumerate(values)
    ]
    area = path([(points[0][0], height - 3), *points, (points[-1][0], height - 3)]) + "Z"
    content = (
        hint(name)
        + element("path", d=area, class_="area s0")
        + element("path", d=path(points), class_="line s0 thin")
        + element("circle", cx=points[-1][0], cy=points[-1][1], r=2.4, class_="dot s0")
    )
    return drawing(width, height, content, name=name, class_="spark")


def _cut(text: str, width: float) -> str:
    most = int(width * _NAME_SHARE / CHARACTER_WIDTH)
    return text if len(text) <= most else text[: max(1, most - 1)] + "…"
