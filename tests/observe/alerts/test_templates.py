"""Texts of alerts: as Prometheus renders them."""

import pytest

from runnel.observe.alerts.templates import FUNCTIONS, rendered


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (None, 3.0, "3"),
        (None, 0.25, "0.25"),
        ("humanize", 1234567.0, "1.235M"),
        ("humanize", 12.0, "12"),
        ("humanize", 0.0, "0"),
        ("humanize", 0.0042, "4.2m"),
        ("humanize", 0.0000042, "4.2u"),
        ("humanizePercentage", 0.8153, "81.53%"),
        ("humanizeDuration", 0.25, "250ms"),
        ("humanizeDuration", 12.5, "12.5s"),
        ("humanizeDuration", 93784.0, "1d 2h 3m 4s"),
        ("humanizeDuration", 60.0, "1m 0s"),
        ("humanizeDuration", -90.0, "-1m 30s"),
        ("humanizeDuration", float("inf"), "inf"),
    ],
)
def test_numbers(function, value, text):
    assert FUNCTIONS[function](value) == text


def test_labels_and_values():
    text = rendered(
        "{{ $labels.topic }}: {{ $value | humanize }} of {{ $labels.gone }}.", {"topic": "{{"}, 5000
    )
    assert text == "{{: 5k of ."
