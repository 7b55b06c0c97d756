"""`runnel demo` runs all steps, verifies them, and leaves no files behind."""

import os
import subprocess
import sys

import pytest

from runnel.server.demo.events import DAY_MS, orders


@pytest.mark.slow
def test_demo_completes(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "runnel.server.cli", "demo", "--orders", "2000", "--no-pipelines"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    for sentence in (
        "2,000 orders acknowledged",
        "anna is assigned partitions 0, 1, 2, 3",
        "anna revokes partitions 0, 1, 2, 3",
        "2,000 orders consumed, each exactly once",
        "end to end",
        "with all 2,000 orders and the group's committed offsets",
        "clean shutdown",
    ):
        assert sentence in ended.stdout
    assert "\033" not in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_generated_events_are_deterministic_and_within_one_day():
    first, again = list(orders(500, end_ms=10**12)), list(orders(500, end_ms=10**12))
    assert first == again
    moments = [order.timestamp_ms for order in first]
    assert moments == sorted(moments)
    assert moments[0] >= 10**12 - DAY_MS and moments[-1] <= 10**12
    assert len({order.key for order in first}) > 50
