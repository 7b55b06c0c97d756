"""How much happened in each interval of time, as bars that lead to it."""

from collections.abc import Sequence
from dataclasses import dataclass

from runnel.visual.frame import axes, frame_for
from runnel.visual.svg import drawing, element, hint
from runnel.visual.units import Unit, moment_text, ticks, time_ticks

HEIGHT = 112.0
_LEAST = 2.0
"""The height of a bar that is not zero: one record among millions is seen."""


@dataclass(frozen=True, slots=True)
class TimeBar:
    """An interval [start, end) in milliseconds since 1970, and where its bar leads."""

    start_ms: int
    end_ms: int
    count: int
    href: str


@dataclass(frozen=True, slots=True)
class TimeBars:
    """Bars of one width over time; each is a link with its own tooltip."""

    title: str
    bars: Sequence[TimeBar]
    noun: str = "records"

    def draw(self, width: float) -> str:
        """The drawing as SVG."""
        y_ticks = ticks(0, max((bar.count for bar in self.bars), default=0) or 1, Unit.COUNT, 2)
        span = (self.bars[0].start_ms, self.bars[-1].end_ms)
        frame = frame_for(width, HEIGHT, span, y_ticks)
        parts = [axes(frame, time_ticks(*span, max(2, int(width / 110))), y_ticks)]
        for bar in self.bars:
            left, right = frame.x(bar.start_ms), frame.x(bar.end_ms)
            high = max(frame.bottom - frame.y(bar.count), _LEAST) if bar.count else 0.0
            text = f"{moment_text(bar.start_ms)} to {moment_text(bar.end_ms)} UTC: {bar.count:,} {self.noun}"
            column = _box("hover", left, frame.top, right - left, frame.bottom - frame.top)
            drawn = _box("bar plain", left + 0.5, frame.bottom - high, right - left - 1, high)
            parts.append(element("a", hint(text) + column + drawn, href=bar.href, aria_label=text))
        return drawing(width, HEIGHT, "".join(parts), name=self.title, role="group")


def _box(class_: str, x: float, y: float, width: float, height: float) -> str:
    return element("rect", x=x, y=y, width=max(width, 0.6), height=height, class_=class_)


def merged(bars: Sequence[TimeBar], count: int) -> list[TimeBar]:
    """At most `count` bars: neighbours are added up."""
    width = max(1, -(-len(bars) // count))
    return [
        TimeBar(some[0].start_ms, some[-1].end_ms, sum(bar.count for bar in some), some[0].href)
        for some in (bars[at : at + width] for at in range(0, len(bars), width))
    ]
