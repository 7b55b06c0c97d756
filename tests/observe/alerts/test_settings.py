"""Settings of alerts: thresholds, times, and errors that name the mistake."""

import pytest

from runnel.observe.alerts.rules import RULES
from runnel.observe.alerts.settings import BadAlertSettings, alert_settings, duration_ms, duration_text


def test_defaults():
    settings = alert_settings({})
    assert settings.rules == RULES
    assert (settings.interval_ms, settings.repeat_interval_ms) == (15_000, 4 * 3_600_000)


def test_changes():
    settings = alert_settings(
        {
            "alerts.ConsumerLagHigh.records": "500",
            "alerts.ConsumerLagHigh.for": "1m30s",
            "alerts.ConsumerLagHigh.severity": "critical",
            "alerts.DiskFullSoon.enabled": "false",
            "alerts.BrokerDown.enabled": "true",
            "alerts.group.by": "alertname, broker",
            "alerts.group.wait": "0",
            "alerts.admin.addresses": "1=10.0.0.1:9644, 2=[::1]:9645",
            "alerts.receiver.ops.type": "webhook",
            "log.retention.hours": "1",
        }
    )
    rules = {rule.name: rule for rule in settings.rules}
    changed = rules["ConsumerLagHigh"]
    assert (changed.thresholds, changed.for_ms, changed.severity) == ({"records": 500}, 90_000, "critical")
    assert "DiskFullSoon" not in rules and "BrokerDown" in rules
    assert (settings.group_by, settings.group_wait_ms) == (("alertname", "broker"), 0)
    assert settings.admin_addresses == ((1, "10.0.0.1", 9644), (2, "::1", 9645))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("alerts.ConsumerLagHihg.records", "5", "did you mean alerts.ConsumerLagHigh.records?"),
        ("alerts.ConsumerLagHigh.record", "5", "did you mean alerts.ConsumerLagHigh.records?"),
        ("alerts.ConsumerLagHigh.records", "many", "'many' is not a number"),
        ("alerts.ConsumerLagHigh.for", "5", "'5' is not a duration"),
        ("alerts.ConsumerLagHigh.enabled", "no", "must be true or false"),
        ("alerts.ConsumerLagHigh.severity", "page", "must be critical or warning"),
        ("alerts.intervall", "5s", "did you mean alerts.interval?"),
        ("alerts.interval", "0", "must be longer than 0"),
        ("alerts.admin.addresses", "broker:9644", "is not of the form 1=host:9644"),
    ],
)
def test_mistakes(name, value, message):
    with pytest.raises(BadAlertSettings) as raised:
        alert_settings({name: value})
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["500ms", "15s", "4h", "1h30m", "2d"])
def test_durations(text):
    assert duration_text(duration_ms("x", text)) == text
