"""The shared style: text can be read by day and by night, and every class that is drawn has a colour."""

import re

import pytest

from runnel.visual.style import COLOURS, stylesheet
from tests.visual.test_charts import CHARTS

AA = 4.5
TEXTS = {
    "ink": ("page", "card", "raised", "hover", "good-page", "warn-page", "bad-page", "accent-page"),
    "soft": ("page", "card", "raised", "hover"),
    "accent": ("page", "card", "accent-page"),
    "on-accent": ("accent",),
    "good": ("card", "good-page"),
    "warn": ("card", "warn-page"),
    "bad": ("card", "bad-page"),
    "on-sign": ("good", "warn", "bad"),
}


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    digits = colour.removeprefix("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    shares = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["day", "night"])
def test_texts_have_contrast(theme):
    weak = {
        (text, surface): round(found, 2)
        for text, surfaces in TEXTS.items()
        for surface in surfaces
        if (found := contrast(COLOURS[text][theme], COLOURS[surface][theme])) < AA
    }
    assert weak == {}


def test_the_twin_of_contrast():
    assert contrast("#fff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)


def test_all_colours_that_are_used_exist():
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", stylesheet()))
    assert used - set(COLOURS) <= {"radius", "mono"}


def test_all_classes_that_charts_draw_have_a_style():
    drawn = "".join(chart.draw(1040) for chart in CHARTS)
    classes = {name for group in re.findall(r'class="([^"]+)"', drawn) for name in group.split()}
    styled = set(re.findall(r"\.([a-z][a-z0-9-]*)", stylesheet()))
    assert classes - styled <= {"tick"}
