"""Prometheus evaluates the rules file over the series of the transcripts, and finds the same alerts firing.

Transcripts with restarts and lost brokers are not compared, as those are not Prometheus's; nor is one with
the time of day, as its tests begin in 1970.
"""

import json
import shutil
import subprocess
from typing import Any

import pytest

from runnel.observe.alerts.prometheus_rules import rules_file
from runnel.observe.alerts.series import Labels
from tests.observe.alerts.test_rules import SCRIPTS
from tests.observe.alerts.world import INTERVAL_MS, Series, World
from tests.scripts import Script

OURS_ONLY = ("restart", "wait", "lose", "fence")
COMPARED = [
    script
    for script in SCRIPTS
    if "$t" not in script.path.read_text()
    and not any(line.startswith(OURS_ONLY) for line in script.path.read_text().splitlines())
]


class Recorder(World):
    """Records all values, and the alerts that fire at the end of every run."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: dict[tuple[int, Series], list[str]] = {}
        self.steps = 0
        self.ends: list[tuple[int, list[dict[str, str]]]] = []

    def snapshot(self) -> Any:
        self.steps += 1
        present = {
            (node, series): value for node, values in self.values.items() for series, value in values.items()
        }
        for key in {**self.recorded, **present}:
            values = self.recorded.setdefault(key, ["_"] * self.steps)
            values.append(repr(present[key]) if key in present else "stale")
        return super().snapshot()

    def do_run(self, text: str) -> list[str]:
        lines = super().do_run(text)
        firing = [alert.labels for alert in self.alerting.alerts.values() if alert.state == "firing"]
        self.ends.append((self.steps, [_of_instance(labels) for labels in firing]))
        return lines


def _of_instance(labels: dict[str, str]) -> dict[str, str]:
    return {"instance" if name == "broker" else name: value for name, value in labels.items()}


def _selector(metric: str, labels: Labels) -> str:
    return f"{metric}{{{','.join(f'{name}={json.dumps(value)}' for name, value in labels)}}}"


def _samples(firing: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [
        {"labels": _selector("ALERTS", tuple({**labels, "alertstate": "firing"}.items())), "value": 1}
        for labels in firing
    ]


@pytest.mark.parametrize("script", COMPARED, ids=lambda script: script.name)
def test_prometheus_agrees(script: Script, tmp_path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    world = Recorder()
    script.check(world.play, rewrite=False)
    (tmp_path / "rules.yml").write_text(rules_file(world.settings.rules))
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {
                        "series": _selector(metric, (*labels, ("instance", str(node)), ("job", "runnel"))),
                        "values": " ".join(values),
                    }
                    for (node, (metric, labels)), values in world.recorded.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": 'sum without (job) (ALERTS{alertstate="firing"})',
                        "eval_time": f"{step * INTERVAL_MS // 1000}s",
                        "exp_samples": [
                            {**each, "labels": each["labels"].removeprefix("ALERTS")}
                            for each in _samples(firing)
                        ],
                    }
                    for step, firing in world.ends
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    ended = subprocess.run([promtool, "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
