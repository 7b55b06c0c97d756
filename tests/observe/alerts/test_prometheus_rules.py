"""The rules file for Prometheus and the Grafana dashboard are current, valid, and of the same metrics."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from runnel.observe import grafana
from runnel.observe.alerts.prometheus_rules import expression, rules_file
from runnel.observe.alerts.rules import RULES
from runnel.observe.alerts.settings import alert_settings, duration_text

DOCS = Path(__file__).parents[3] / "docs"
RULES_FILE = DOCS / "prometheus" / "runnel-rules.yml"
DASHBOARD = DOCS / "grafana" / "runnel.json"
METRIC = re.compile(r"\b(?:kafka|runnel|process)_[a-z0-9_]+")


@pytest.mark.parametrize(
    ("path", "text"),
    [(RULES_FILE, rules_file(RULES)), (DASHBOARD, grafana.dashboard_text())],
    ids=["rules", "dashboard"],
)
def test_files_of_the_documentation_are_current(path, text, request):
    if request.config.getoption("--rewrite"):
        path.write_text(text)
    assert path.read_text() == text, "run `pytest --rewrite` and review the diff"


def test_the_table_of_the_documentation_is_that_of_the_rules():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \|([^|]*)\|", (DOCS / "ALERTS.md").read_text(), re.M)
    shown = [
        (
            rule.name,
            rule.severity,
            duration_text(rule.for_ms),
            ", ".join(f"{name}={_short(value)}" for name, value in rule.thresholds.items()),
        )
        for rule in RULES
    ]
    assert [(name, severity, duration, text.strip()) for name, severity, duration, text in rows] == shown


def _short(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}" if value < 1 else f"{value:.3g}"


def test_expressions_read_the_metrics_of_the_conditions():
    for rule in RULES:
        if rule.needs:
            assert set(METRIC.findall(expression(rule))) == {need.metric for need in rule.needs}, rule.name


def test_thresholds_of_the_settings_are_those_of_the_file():
    settings = alert_settings(
        {"alerts.ConsumerLagHigh.records": "500", "alerts.DiskFullSoon.enabled": "false"}
    )
    text = rules_file(settings.rules)
    assert "kafka_consumergroup_lag_sum) > 500 and" in text
    assert "DiskFullSoon" not in text and "${" not in text


def test_templates_name_the_instance():
    text = rules_file(RULES)
    assert "$labels.broker" not in text and "broker {{ $labels.instance }}" in text


def test_promtool_accepts_the_rules():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    ended = subprocess.run([promtool, "check", "rules", RULES_FILE], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(RULES)} rules found" in ended.stdout


def test_dashboard():
    document = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    assert {panel["type"] for panel in panels} == {"timeseries", "stat", "table"}
    assert [each["name"] for each in document["templating"]["list"]] == ["datasource", "topic", "group"]
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= grafana.WIDTH
        assert all(target["expr"] and target["datasource"] == grafana.SOURCE for target in panel["targets"])
