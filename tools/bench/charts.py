"""Two kinds of chart, drawn as plain SVG."""

import math
from collections.abc import Callable

from tools.bench.table import Compared

INK = "#7a7f87"
FAINT = "#9aa0a855"
OURS = "#2a9d8f"
THEIRS = "#b08968"
WORSE = "#e76f51"
FONT = 'font-family="system-ui, sans-serif" font-size="12"'


def _svg(width: int, height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {FONT} fill="{INK}">'
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def advantage(compared: list[Compared]) -> str:
    """How many times better than Kafka, on a logarithmic scale; the line at 1 is Kafka itself."""
    lines = [line for line in compared if line.advantage is not None]
    left, width, row_height, top = 300, 860, 24, 34
    highest = max([2.0, *(line.advantage or 1 for line in lines)]) * 1.3
    lowest = min([0.5, *(line.advantage or 1 for line in lines)])

    def x(value: float) -> float:
        span = math.log(highest) - math.log(lowest)
        return left + (width - left - 60) * (math.log(value) - math.log(lowest)) / span

    height = top + row_height * len(lines) + 10
    parts = [f'<text x="{left}" y="16">times better than Apache Kafka (logarithmic; | goal)</text>']
    for mark in (0.5, 1, 2, 4, 8, 16, 32, 64):
        if lowest <= mark <= highest:
            stroke = INK if mark == 1 else FAINT
            at = f"{x(mark):.1f}"
            parts += [
                f'<line x1="{at}" x2="{at}" y1="{top - 4}" y2="{height}" stroke="{stroke}"/>',
                f'<text x="{at}" y="{top - 6}" text-anchor="middle">{mark:g}</text>',
            ]
    for index, compared_line in enumerate(lines):
        parts += _bar(compared_line, top + index * row_height, left, x)
    return _svg(width, height, parts)


def _bar(line: Compared, y: float, left: int, x: Callable[[float], float]) -> list[str]:
    value = line.advantage or 1.0
    start, end = sorted((x(1.0), x(value)))
    colour = OURS if value >= 1 else WORSE
    parts = [
        f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{_escape(line.row.label)}</text>',
        f'<rect x="{start:.1f}" y="{y + 5}" width="{max(end - start, 1):.1f}" height="15" fill="{colour}"/>',
        f'<text x="{end + 6:.1f}" y="{y + 17}">{value:.2g}x</text>',
    ]
    if line.row.goal is not None:
        goal = line.row.goal if line.row.more_is_better else 1 / line.row.goal
        parts.append(
            f'<line x1="{x(goal):.1f}" x2="{x(goal):.1f}" y1="{y + 3}" y2="{y + 22}" stroke="{INK}"'
            ' stroke-width="2"/>'
        )
    return parts


def scaling(title: str, unit: str, series: dict[str, dict[int, float]]) -> str:
    """One group of bars per number of partitions, one bar per system."""
    counts = sorted({count for values in series.values() for count in values})
    largest = max([1e-9, *(value for values in series.values() for value in values.values())])
    left, top, plot_height, group_width = 20, 40, 170, 150
    bar_width = 44
    width, height = left * 2 + group_width * len(counts), top + plot_height + 40
    parts = [f'<text x="{left}" y="18">{_escape(title)} ({_escape(unit)})</text>']
    for index, (name, colour) in enumerate(zip(series, (OURS, THEIRS), strict=False)):
        at = width - 150 + index * 75
        parts.append(f'<rect x="{at}" y="8" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{at + 15}" y="18">{_escape(name)}</text>')
    for group, count in enumerate(counts):
        x = left + group * group_width + 20
        middle = x + bar_width
        parts.append(f'<text x="{middle}" y="{height - 16}" text-anchor="middle">{count:,} partitions</text>')
        for index, (name, colour) in enumerate(zip(series, (OURS, THEIRS), strict=False)):
            value = series[name].get(count)
            if value is None:
                continue
            size = plot_height * value / largest
            y = top + plot_height - size
            at = x + index * bar_width
            parts.append(
                f'<rect x="{at}" y="{y:.1f}" width="{bar_width - 6}" height="{size:.1f}" fill="{colour}"/>'
            )
            label = (
                f'<text x="{at + bar_width / 2 - 3}" y="{y - 4:.1f}" text-anchor="middle">{value:.3g}</text>'
            )
            parts.append(label)
    return _svg(width, height, parts)
