"""A continuous pipeline: progress, and a clean end on Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.processes import child

PIPELINE = """
name: copy
trigger: 200 ms
sources:
  orders:
    topic: orders
    format: string
    start: earliest
    on-malformed: skip
sinks:
  copies:
    from: orders
    topic: copies
    value: value
"""

PIPELINE_TIMEOUT_S = 240
"""To start, or to stop, on a busy machine."""


def figure(metrics: Path, name: str) -> float | None:
    text = metrics.read_text() if metrics.exists() else ""
    found = re.search(rf"^runnel_pipeline_{name}\{{.*\}} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


@pytest.mark.long
@pytest.mark.slow
def test_ctrl_c_ends_a_pipeline_well(runnel, tmp_path):
    with runnel.client() as client:
        for topic in ("orders", "copies"):
            client.create_topic(topic)
        client.send_all("orders", [(None, b"%d" % number) for number in range(100)])
    (tmp_path / "copy.yaml").write_text(PIPELINE)
    metrics = tmp_path / "figures.prom"
    command = [sys.executable, "-m", "runnel.server.cli", "pipeline", "run", "copy.yaml", "--continuous"]
    options = ["--json", "-b", runnel.bootstrap_servers, "--metrics", str(metrics), "--master", "local[1]"]
    with child(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        deadline = time.monotonic() + PIPELINE_TIMEOUT_S
        while process.poll() is None and figure(metrics, "records_total") != 100:
            assert time.monotonic() < deadline, metrics.read_text() if metrics.exists() else "no metrics"
            time.sleep(0.1)
        assert figure(metrics, "up") == 1
        assert figure(metrics, "lag_records") in (0, None)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PIPELINE_TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    outcome = json.loads(out)
    assert outcome["was_stopped"] and outcome["queries"][0]["records"] == 100
    assert (figure(metrics, "up"), figure(metrics, "ended_well")) == (0, 1)
    with runnel.client() as client:
        assert len(client.read("copies")) == 100
