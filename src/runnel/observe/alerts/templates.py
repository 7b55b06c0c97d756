"""Texts of alerts, in the part of Prometheus's template language that the rules use.

    {{ $labels.topic }}   {{ $value }}   {{ $value | humanize }}   {{ $value | humanizeDuration }}

The same texts are written to the rules file for Prometheus.
"""

import re
from collections.abc import Mapping
from math import isfinite

_FIELD = re.compile(r"\{\{ \$(labels\.(?P<label>\w+)|value)( \| (?P<function>\w+))? \}\}")
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def rendered(template: str, labels: Mapping[str, str], value: float) -> str:
    """The text with the labels and the value of an alert."""

    def replaced(found: re.Match[str]) -> str:
        if found["label"]:
            return labels.get(found["label"], "")
        return FUNCTIONS[found["function"]](value)

    return _FIELD.sub(replaced, template)


def fields_of(template: str) -> list[str]:
    """The labels that a text refers to."""
    return [found["label"] for found in _FIELD.finditer(template) if found["label"]]


def plain(value: float) -> str:
    """A number with at most six significant digits."""
    return f"{value:.0f}" if isfinite(value) and value == int(value) else f"{value:.6g}"


def humanize(value: float) -> str:
    """1234567 as 1.235M."""
    size = abs(value)
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if isfinite(size) and size >= factor:
            return f"{value / factor:.4g}{unit}"
    if 0 < size < 1:
        return f"{value * 1000:.4g}m" if size >= 1e-3 else f"{value * 1e6:.4g}u"
    return f"{value:.4g}"


def humanize_percentage(value: float) -> str:
    """0.815 as 81.5%."""
    return f"{value * 100:.4g}%"


def humanize_duration(value: float) -> str:
    """93784 as 1d 2h 3m 4s; 0.25 as 250ms."""
    if not isfinite(value):
        return f"{value:.4g}"
    sign, size = "-" if value < 0 else "", abs(value)
    if size < 1:
        return f"{sign}{size * 1000:.4g}ms"
    if size < 60:
        return f"{sign}{size:.4g}s"
    parts: list[str] = []
    left = int(size)
    for seconds, unit in _UNITS:
        if parts or left >= seconds:
            parts.append(f"{left // seconds}{unit}")
            left %= seconds
    return sign + " ".join(parts)


FUNCTIONS = {
    None: plain,
    "humanize": humanize,
    "humanizePercentage": humanize_percentage,
    "humanizeDuration": humanize_duration,
}
