"""The demo's part on Spark: a broker, a pipeline, its results, an audit, insights."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.pipelines.declared.example.events import events
from runnel.server.demo.pipelines import MALFORMED, Stage, publish, run
from runnel.server.demo.report import Report

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

    from runnel.testing import Broker


def test_the_story_ends_well(
    spark: "SparkSession", runnel: "Broker", tmp_path: Path, capsys: "pytest.CaptureFixture[str]"
) -> None:
    start_ms = time.time_ns() // 1_000_000 - 3_600_000
    made = list(events(300, start_ms=start_ms, malformed=MALFORMED))
    report = Report()
    publish(report, runnel.bootstrap_servers, made)
    run(Stage(report, runnel.bootstrap_servers, tmp_path, spark, made, tmp_path / "reports"))
    told = capsys.readouterr().out
    for sentence in ("paid orders in the topic", "3 dead letters", "shop.revenue", "Nothing is lost"):
        assert sentence in told
    for name in ("demo-audit", "demo-insights"):
        assert (tmp_path / "reports" / name / "index.html").exists()
