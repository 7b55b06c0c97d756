"""Streaming queries to their end: together, reported, stopped by a signal, and failing in one sentence."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from runnel.pipelines.errors import DataLost, PipelineError
from runnel.pipelines.progress import Progress, Stage, StreamBatch
from runnel.pipelines.queries import run_queries, stream_batch
from tools.processes import child


class Seen:
    """A view that remembers."""

    def __init__(self) -> None:
        self.batches: list[StreamBatch] = []
        self.said_texts: list[str] = []
        self.reached: list[tuple[int, int | None]] = []

    def stage_began(self, stage: Stage) -> None: ...

    def stage_advanced(self, stage: Stage) -> None:
        self.reached.append((stage.done, stage.total))

    def stage_ended(self, stage: Stage) -> None: ...

    def batch_ended(self, batch: StreamBatch) -> None:
        self.batches.append(batch)

    def message(self, text: str) -> None:
        self.said_texts.append(text)

    def ended(self, is_fine: bool) -> None: ...


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"orders": {"0": 5, "1": 7}}, {"orders": {"0": 9, "1": 7, "2": 3}}, 7),
        ('{"orders": {"0": 5}}', '{"orders": {"0": 4}}', 0),
        ({"orders": {"0": 5}}, None, None),
        ("17", "19", None),
        ("no json", "{", None),
    ],
)
def test_a_batch_as_spark_reports_it(end, latest, lag):
    progress = {
        "batchId": 3,
        "numInputRows": 10,
        "processedRowsPerSecond": 5.5,
        "durationMs": {"triggerExecution": 1200, "addBatch": 900},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }
    assert stream_batch("q", progress) == StreamBatch("q", 3, 10, 5.5, 1200, lag)


def rate_query(spark, tmp_path, name, step=lambda frame: frame, **trigger):
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    writer = step(frame).writeStream.format("noop").queryName(name)
    return writer.option("checkpointLocation", str(tmp_path / name)).trigger(**trigger).start()


def text_query(spark, tmp_path, name, step=lambda frame: frame):
    """A query over one small file, which ends by itself."""
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / "in" / "a.txt").write_text("1\n2\n3\n")
    frame = step(spark.readStream.text(str(tmp_path / "in")))
    writer = frame.writeStream.format("noop").queryName(name).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(tmp_path / name)).start()


def test_queries_run_until_all_have_ended(spark, tmp_path):
    seen = Seen()
    queries = [text_query(spark, tmp_path, name) for name in ("one", "two")]
    ran = run_queries(queries, Progress(seen))
    assert (ran.batches, ran.records, ran.was_stopped) == (2, 6, False)
    assert sorted((batch.query, batch.batch_id, batch.records) for batch in seen.batches) == [
        ("one", 0, 3),
        ("two", 0, 3),
    ]


def failing(error: Exception):
    def step(frame):
        def fail(batches):
            for _ in batches:
                raise error
            yield from ()

        return frame.mapInArrow(fail, frame.schema)

    return step


def test_one_that_fails_ends_all_and_says_what_its_worker_said(spark, tmp_path):
    healthy = rate_query(spark, tmp_path, "healthy", processingTime="100 milliseconds")
    lost = text_query(spark, tmp_path, "lost", failing(DataLost("offsets 3 to 5 of orders-0 are gone")))
    with pytest.raises(DataLost) as raised:
        run_queries([healthy, lost], Progress())
    assert str(raised.value) == "offsets 3 to 5 of orders-0 are gone"
    assert not healthy.isActive


def test_a_mistake_in_the_owners_code_is_reported_with_its_place(spark, tmp_path):
    query = text_query(spark, tmp_path, "mistaken", failing(ValueError("no price")))
    with pytest.raises(
        PipelineError, match=r"ValueError: no price \(.*test_queries\.py, line \d+, in fail\)"
    ):
        run_queries([query], Progress())


def test_a_signal_stops_queries_cleanly(spark, tmp_path):
    seen = Seen()
    before = signal.getsignal(signal.SIGTERM)
    query = rate_query(spark, tmp_path, "endless", processingTime="100 milliseconds")

    # Only the first: the second would end the test run, as it should.
    def once(batch: StreamBatch) -> None:
        Progress.batch(stopping, batch)
        if len(seen.batches) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    stopping = Progress(seen)
    stopping.batch = once  # type: ignore[method-assign]
    ran = run_queries([query], stopping)
    assert ran.was_stopped and ran.batches >= 1
    assert not query.isActive and query.exception() is None
    assert seen.said_texts == ["stopping (press Ctrl-C again to exit at once)"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_tasks_of_batch_work_are_counted(spark, tmp_path):
    counted = tmp_path / "counted"

    class Counting(Seen):
        def stage_advanced(self, stage: Stage) -> None:
            super().stage_advanced(stage)
            counted.touch()

    seen = Counting()
    with Progress(seen).tasks(spark, "counting"):
        spark.sparkContext.parallelize(range(4), 4).map(until_exists(str(counted))).count()
    assert seen.reached
    assert all(total == 4 and 0 <= done <= 4 for done, total in seen.reached)


def until_exists(path: str) -> Callable[[int], int]:
    """A task that waits for a file."""

    def wait(number: int) -> int:
        import os
        import time

        deadline = time.monotonic() + 60
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.05)
        return number

    return wait


TWICE = """
import time
from runnel.pipelines.queries import stop_requests
with stop_requests() as stop:
    print("ready", flush=True)
    while not stop.is_requested:
        time.sleep(0.01)
    print("stopping", flush=True)
    time.sleep(100)
"""


def test_the_second_signal_ends_at_once():
    command = [sys.executable, "-c", TWICE]
    with child(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for word in ("ready", "stopping"):
            assert process.stdout.readline() == f"{word}\n"
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
