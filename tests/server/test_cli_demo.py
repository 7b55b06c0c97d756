"""`runnel demo` tells its whole story, checks it, and leaves nothing behind."""

import os
import subprocess
import sys

import pytest

from runnel.server.demo.events import DAY_MS, orders


@pytest.mark.slow
def test_the_story_ends_well(tmp_path):
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
        "anna gets partitions 0, 1, 2, 3",
        "anna gives back partitions 0, 1, 2, 3",
        "2,000 orders read, each exactly once",
        "until a consumer has it",
        "with all 2,000 orders and the group's offsets",
        "stopped cleanly",
    ):
        assert sentence in ended.stdout
    assert "\033" not in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_events_are_the_same_every_time_and_of_one_day():
    first, again = list(orders(500, end_ms=10**12)), list(orders(500, end_ms=10**12))
    assert first == again
    moments = [order.timestamp_ms for order in first]
    assert moments == sorted(moments)
    assert moments[0] >= 10**12 - DAY_MS and moments[-1] <= 10**12
    assert len({order.key for order in first}) > 50
