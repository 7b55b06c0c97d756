"""Declared pipelines with a real broker and a real Spark: sinks of all kinds, late and malformed values."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.pipelines.declared.job import DeclaredOptions, run
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.progress import Progress
from runnel.pipelines.tables import SparkTable, open_catalog
from tests.pipelines.declared.shop import declared
from tests.pipelines.declared.test_page import BLOCKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.testing import Broker

NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)
SETTINGS = "settings: {spark.sql.shuffle.partitions: 2}\n"

pytestmark = pytest.mark.timeout(900)


def click(page: str, minutes: float) -> bytes:
    at = (NOON + timedelta(minutes=minutes)).isoformat()
    return json.dumps({"user": "anna", "page": page, "at": at, "unknown": [1]}).encode()


def forget_last_batches(folder: Path) -> int:
    """Remove the last entry of each sink's commit log; returns the number of sinks."""
    checkpoints = [folder / ".runnel" / "checkpoints" / "clicks" / name for name in ("topic", "table")]
    for checkpoint in checkpoints:
        commits = checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
    return len(checkpoints)


def test_the_first_pipeline_of_the_page(spark: "SparkSession", runnel: "Broker", tmp_path: Path) -> None:
    pipeline = declared(tmp_path, BLOCKS["clicks.yaml"] + SETTINGS, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with runnel.client() as client:
        client.create_topic("clicks", partitions=1)
        clicks = [click("/home", 0), click("/home", 0.5), b"no JSON", click("/buy", 0.9), click("/home", 15)]
        client.send_all("clicks", [(None, value) for value in clicks])
        first = run(spark, DeclaredOptions(pipeline, once=True), Progress())
        # As if all had died after the writing and before Spark noted it: the last batches come once more.
        assert forget_last_batches(tmp_path) == 2
        # The watermark is 12:05. Older rows are late; newer windows are still open.
        client.send_all("clicks", [(None, click("/late", 1)), (None, click("/home", 16))])
        second = run(spark, DeclaredOptions(pipeline, once=True), Progress())
        written = client.read("clicks-per-minute", committed_only=True)
        dead = client.read("clicks.dead-letters", committed_only=True)
    noon = "2026-10-01T12:00:00.000Z"
    assert sorted((message.key, json.loads(message.value or b"")) for message in written) == [
        (b"/buy", {"minute": noon, "page": "/buy", "clicks": 1}),
        (b"/home", {"minute": noon, "page": "/home", "clicks": 2}),
    ]
    assert [message.value for message in dead] == [b"no JSON"]
    table = SparkTable(open_catalog(str(tmp_path / ".runnel" / "warehouse")), "web.clicks_per_minute")
    rows = table.read(spark).collect()
    assert sorted((row.page, row.clicks) for row in rows) == [("/buy", 1), ("/home", 2)]
    late = {query.name: query.late for query in second.queries}
    assert late == {"topic": 1, "table": 1, "dead-letters-clicks": 0}
    assert (first.malformed, second.malformed) == ({"clicks": 1}, {})


WORDS = """
name: words
sources:
  words: {topic: words, format: string, metadata: [key], on-malformed: skip}
  numbers: {topic: words, schema: "n int", on-malformed: fail}
steps:
  upper: {python: "steps.py:upper", inputs: [words]}
  counts: {sql: "SELECT value AS word, count(*) AS n FROM upper GROUP BY value"}
sinks:
  files: {from: upper, parquet: files}
  counts: {from: counts, topic: counts, key: word, value: [n], mode: update}
  shown: {from: upper, console: true}
"""
STEPS = """
from pyspark.sql.functions import udf

SUFFIX = "!"


@udf("string")
def shouted(word):
    return word.upper() + SUFFIX


def upper(words):
    return words.select(shouted("value").alias("value"), words["_key"].cast("string").alias("key"))
"""


def test_other_sinks_and_functions(
    spark: "SparkSession", runnel: "Broker", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    text = WORDS.replace('  numbers: {topic: words, schema: "n int", on-malformed: fail}\n', "") + SETTINGS
    pipeline = declared(tmp_path, text, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with runnel.client() as client:
        client.create_topic("words", partitions=2)
        for words in ([b"a", b"b", b"\xff", b"a"], [b"a", None]):
            client.send_all("words", [(b"k", word) for word in words])
            outcome = run(spark, DeclaredOptions(pipeline, once=True), Progress())
        counts = client.read("counts", committed_only=True)
    assert sorted(row.value for row in spark.read.parquet(str(tmp_path / "files")).collect()) == [
        "A!"
    ] * 3 + ["B!"]
    reported = [(message.key, json.loads(message.value or b"")) for message in counts]
    assert sorted(reported, key=str) == [(b"A!", {"n": 2}), (b"A!", {"n": 3}), (b"B!", {"n": 1})]
    assert outcome.malformed == {}
    shown = capsys.readouterr().out
    assert "shown, batch 0: 3 rows" in shown
    assert "|A!   |k  |" in shown


def test_a_failing_pipeline_reports_the_offset(
    spark: "SparkSession", runnel: "Broker", tmp_path: Path
) -> None:
    text = WORDS.partition("steps:")[0] + "sinks:\n  files: {from: numbers, parquet: files}\n"
    text = text.replace("  words: {topic: words, format: string, metadata: [key], on-malformed: skip}\n", "")
    pipeline = declared(tmp_path, text, RUNNEL_BOOTSTRAP=runnel.bootstrap_servers)
    with runnel.client() as client:
        client.create_topic("words", partitions=1)
        client.send_all("words", [(None, b'{"n": 1}'), (None, b'{"n": "one"}')])
    with pytest.raises(PipelineError, match=r"malformed value in words-0 at offset 1: .*n"):
        run(spark, DeclaredOptions(pipeline, once=True), Progress())
