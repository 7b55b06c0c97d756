"""The frame of a chart: axes, ticks, grid lines and the mapping of values to coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass

from runnel.visual.svg import element, label
from runnel.visual.units import Tick

CHARACTER_WIDTH = 7.0
"""Approximate character width of tick labels, rounded up."""
TOP, BOTTOM, RIGHT = 12.0, 26.0, 14.0


@dataclass(frozen=True, slots=True)
class Frame:
    """A plotting area within a drawing, and the values at its edges."""

    left: float
    top: float
    right: float
    bottom: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        """The horizontal position of a value."""
        span = (self.x_high - self.x_low) or 1.0
        return self.left + (value - self.x_low) / span * (self.right - self.left)

    def y(self, value: float) -> float:
        """The vertical position of a value."""
        span = (self.y_high - self.y_low) or 1.0
        return self.bottom - (value - self.y_low) / span * (self.bottom - self.top)


def frame_for(width: float, height: float, x_range: tuple[float, float], y_ticks: Sequence[Tick]) -> Frame:
    """A frame that leaves room for the texts of its vertical axis."""
    longest = max((len(tick.text) for tick in y_ticks), default=0)
    return Frame(
        left=longest * CHARACTER_WIDTH + 10,
        top=TOP,
        right=width - RIGHT,
        bottom=height - BOTTOM,
        x_low=x_range[0],
        x_high=x_range[1],
        y_low=y_ticks[0].at,
        y_high=y_ticks[-1].at,
    )


def axes(frame: Frame, x_ticks: Sequence[Tick], y_ticks: Sequence[Tick]) -> str:
    """Grid lines with their texts, and the base line."""
    parts: list[str] = []
    for tick in y_ticks:
        y = frame.y(tick.at)
        parts.append(element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="grid"))
        parts.append(label(tick.text, frame.left - 6, y + 4, anchor="end"))
    parts.append(_below(frame, x_ticks))
    base = frame.bottom
    parts.append(element("line", x1=frame.left, x2=frame.right, y1=base, y2=base, class_="axis"))
    return "".join(parts)


def _below(frame: Frame, x_ticks: Sequence[Tick]) -> str:
    parts: list[str] = []
    taken = frame.left - 30
    for tick in x_ticks:
        x, half = frame.x(tick.at), len(tick.text) * CHARACTER_WIDTH / 2
        # A text that would run out of the drawing or into its neighbour is left out, its mark stays.
        parts.append(element("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 4, class_="axis"))
        if x - half > taken and x + half < frame.right + RIGHT:
            parts.append(label(tick.text, x, frame.bottom + 17, anchor="middle"))
            taken = x + half + 6
    return "".join(parts)
