"""Charts: round ticks, valid XML, and escaping of data."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.visual.charts import Bar, BarChart, Bin, Chart, Histogram, LineChart, Mark, Series
from runnel.visual.strips import HeatStrips, Ribbon, Ribbons, Span, Strip, sparkline
from runnel.visual.time_bars import TimeBar, TimeBars, merged
from runnel.visual.units import Unit, moment_text, thinned, ticks, time_ticks

HOSTILE = "</svg><script>alert(1)</script>\"'&\x00\x1b[31m\u202e"
NOW_MS = 1_790_000_000_000


@given(st.floats(0, 1e15), st.floats(0, 1e15), st.sampled_from(list(Unit)), st.integers(2, 10))
def test_ticks_reach_around_what_is_drawn(low, size, unit, count):
    found = ticks(low, low + size, unit, count)
    places = [tick.at for tick in found]
    assert places == sorted(places) and len(places) >= 2
    assert places[0] <= low + 1e-6 * abs(low) + 1e-9
    assert places[-1] >= (low + size) * (1 - 1e-6) - 1e-9
    if size > low / 1000:
        assert len(places) <= 2.6 * count + 3


@given(st.integers(0, 4 * 10**12), st.integers(1, 10**11), st.integers(2, 12))
def test_moments_on_an_axis_lie_within_it(low, span, count):
    found = time_ticks(low, low + span, count)
    assert all(low <= tick.at <= low + span for tick in found)
    assert len(found) <= count + 1


def test_quantities_are_said_as_people_say_them():
    assert Unit.BYTES.text(0) == "0 B"
    assert Unit.BYTES.text(1536) == "1.5 KiB"
    assert Unit.COUNT.text(9999) == "9,999"
    assert Unit.COUNT.text(12_345_678) == "12.3 M"
    assert Unit.DURATION_MS.text(90_000) == "1.5 min"
    assert Unit.PERCENT.text(12.345) == "12.3 %"
    assert moment_text(NOW_MS) == "2026-09-21 14:13:20"
    assert [tick.text for tick in ticks(0, 3, Unit.COUNT)] == ["0", "1", "2", "3"]
    assert [tick.text for tick in ticks(0, 3 * 2**20, Unit.BYTES, 3)] == ["0", "1 MiB", "2 MiB", "3 MiB"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(10, 200))
def test_a_thinned_line_keeps_its_highest_and_lowest(values, most):
    points = list(enumerate(map(float, values)))
    kept = thinned(points, most)
    assert set(kept) <= set(points)
    assert max(y for _, y in kept) == max(values) and min(y for _, y in kept) == min(values)
    assert [x for x, _ in kept] == sorted(x for x, _ in kept)


CHARTS: list[Chart] = [
    LineChart(HOSTILE, [Series(HOSTILE, [(NOW_MS + n * 1000, n % 7) for n in range(900)])], Unit.BYTES),
    LineChart("one point", [Series("a", [(NOW_MS, 5.0)])], Unit.COUNT, is_filled=True),
    LineChart("none", [], Unit.COUNT),
    LineChart(
        "forecast",
        [Series("a", [(0, 1), (5, 3)]), Series("b", [(5, 3), (9, 9)], is_forecast=True)],
        Unit.BYTES,
        marks=[Mark(7, HOSTILE)],
        ceiling=(8.0, HOSTILE),
    ),
    BarChart(HOSTILE, [Bar(HOSTILE * 3, 5, "warn"), Bar("none", 0)], Unit.COUNT),
    BarChart("none", [], Unit.COUNT),
    Histogram(HOSTILE, [Bin(0, 1, 5), Bin(1, 2, 0), Bin(2, 4, 9)], Unit.BYTES, [Mark(1.5, HOSTILE)]),
    Histogram("none", [], Unit.BYTES),
    HeatStrips(HOSTILE, [Strip(HOSTILE, [0, 1, 2.5]), Strip("even", [1] * 300, "1×")], Unit.BYTES),
    Ribbons(
        HOSTILE,
        [
            Ribbon(HOSTILE, 0, 10**9, [Span(5, 6, "bad", HOSTILE), Span(0, 10**9, "plain", "")]),
            Ribbon("", 5, 5, []),
        ],
        [("bad", HOSTILE)],
    ),
]


@pytest.mark.parametrize("width", [1040, 340])
@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: f"{type(chart).__name__}-{chart.title[:9]}")
def test_drawings_are_sound_and_stay_within_their_width(chart, width):
    drawing = ElementTree.fromstring(chart.draw(width))
    assert drawing.attrib["viewBox"].split()[2] == str(width)
    assert not list(drawing.iter("script"))
    for rect in drawing.iter("rect"):
        x, wide, high = (float(rect.attrib[name]) for name in ("x", "width", "height"))
        assert wide >= 0 and high >= 0
        assert x >= -0.1 and x + wide <= width + 0.1


def test_a_small_line_is_sound():
    for values in ([], [1], [1, 2, 3], [0, 0]):
        if markup := sparkline(values, HOSTILE):
            ElementTree.fromstring(markup)


def test_bars_are_labelled_with_what_there_is_room_for():
    """The rest is in the tooltip."""
    chart = BarChart(
        "sizes", [Bar("orders", 1536, hint="a long story about orders"), Bar("b", 10)], Unit.BYTES
    )
    drawing = ElementTree.fromstring(chart.draw(340))
    texts = [each.text for each in drawing.iter("text") if each.attrib["class"] == "value"]
    assert texts == ["1.5 KiB", "10 B"]
    assert [each.text for each in drawing.iter("title")] == ["a long story about orders", "b: 10 B"]


@pytest.mark.parametrize("width", [1080, 340])
def test_bars_over_time_lead_somewhere(width):
    bars = [
        TimeBar(NOW_MS + at * 1000, NOW_MS + at * 1000 + 1000, at * at % 7, f"/a?b={at}&c={HOSTILE}")
        for at in range(50)
    ]
    drawing = ElementTree.fromstring(TimeBars(HOSTILE, merged(bars, 24)).draw(width))
    links = list(drawing.iter("a"))
    assert drawing.attrib["role"] == "group" and len(links) <= 24
    assert all(each.attrib["aria-label"].endswith(" records") for each in links)
    assert links[0].attrib["href"].startswith("/a?b=0&c=</svg>")
    heights = [float(list(each.iter("rect"))[1].attrib["height"]) for each in links]
    assert all((height > 0) == (bar.count > 0) for height, bar in zip(heights, merged(bars, 24), strict=True))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=99), st.integers(1, 50))
def test_merged_bars_have_the_same_sum_and_span(counts, most):
    bars = [TimeBar(at, at + 1, count, str(at)) for at, count in enumerate(counts)]
    found = merged(bars, most)
    assert len(found) <= most and sum(bar.count for bar in found) == sum(counts)
    assert (found[0].start_ms, found[-1].end_ms) == (0, len(counts))
    assert all(one.end_ms == other.start_ms for one, other in pairwise(found))
