"""What is reported of a job, on the terminal and to Prometheus."""

import io
import os
import pty
import threading

import pytest

from runnel.pipelines.errors import PipelineError
from runnel.pipelines.metrics_file import MetricsFile
from runnel.pipelines.progress import Progress, StreamBatch
from runnel.pipelines.terminal import LineView, LiveView, terminal_view


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def batch(number: int, records: int, lag: int | None = None) -> StreamBatch:
    return StreamBatch("orders", number, records, records_per_s=1500.4, duration_ms=250, lag=lag)


def test_lines_for_stages(clock):
    out = io.StringIO()
    progress = Progress(LineView(out, clock), now_s=clock)
    with progress.stage("starting"):
        clock.now_s += 1.5
    with progress.stage("reading", total=3000) as stage:
        stage.advance(1000)
        clock.now_s += 10
        stage.advance(1000)
        stage.reach(2500)
    progress.message("done")
    assert out.getvalue().splitlines() == [
        "starting: 1.5 s",
        "reading: 2,000 of 3,000 records",
        "reading: 2,500 records in 10.0 s",
        "done",
    ]


def test_lines_for_streams_are_few(clock):
    out = io.StringIO()
    progress = Progress(LineView(out, clock), now_s=clock)
    for number in range(21):
        progress.batch(batch(number, 100, lag=7))
        clock.now_s += 1
    progress.end(True)
    assert out.getvalue().splitlines() == [
        "orders: batch 0, 100 records, 1,500/s, lag 7",
        "orders: 10 batches to 10, 1,000 records, 1,500/s, lag 7",
        "orders: 10 batches to 20, 1,000 records, 1,500/s, lag 7",
        "orders: 2,100 records in total",
    ]


def test_a_stage_that_fails_ends_too(clock):
    out = io.StringIO()
    progress = Progress(LineView(out, clock), now_s=clock)
    with pytest.raises(ValueError), progress.stage("reading"):
        raise ValueError
    assert out.getvalue() == "reading: 0.0 s\n"


def test_a_terminal_gets_a_live_picture_and_a_file_gets_lines():
    assert isinstance(terminal_view(io.StringIO()), LineView)
    controller, terminal = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        while b"the end" not in b"".join(seen[-3:]):
            seen.append(os.read(controller, 65536))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with os.fdopen(terminal, "w") as stream:
        view = terminal_view(stream)
        assert isinstance(view, LiveView)
        progress = Progress(view)
        with progress.stage("reading [bold]", total=10) as stage:
            stage.advance(5)
            progress.batch(batch(1, 100, lag=50))
            progress.batch(batch(2, 100))
        progress.end(True)
        stream.write("the end\n")
        stream.flush()
        reader.join(30)
    os.close(controller)
    text = b"".join(seen).decode()
    assert "✓ reading [bold] (5 records" in text
    assert "orders: 200 records in 2 batches" in text


def test_metrics_are_those_of_the_latest_batch(tmp_path, clock):
    file = tmp_path / "figures.prom"
    progress = Progress(MetricsFile(file, 'a "quoted\\\n" name', clock), now_s=clock)
    assert 'runnel_pipeline_up{pipeline="a \\"quoted\\\\\\n\\" name"} 1' in file.read_text().splitlines()
    progress.batch(batch(4, 100, lag=3))
    progress.batch(batch(5, 200))
    with progress.stage("compacting", total=9, unit="files") as stage:
        stage.advance(2)
        clock.now_s += 2.5
    lines = [line.replace(' name"', '"') for line in file.read_text().splitlines()]
    figures = {
        line.split("{")[0].removeprefix("runnel_pipeline_"): line.split("} ")[1]
        for line in lines
        if line[0] != "#"
    }
    assert figures == {
        "up": "1",
        "batches_total": "2",
        "records_total": "300",
        "last_batch_id": "5",
        "last_batch_seconds": "0.25",
        "last_batch_timestamp_seconds": "100",
        "records_per_second": "1500.4",
        "stage_done": "2",
        "stage_total": "9",
        "stage_seconds": "2.5",
    }
    assert (
        'runnel_pipeline_stage_done{pipeline="a \\"quoted\\\\\\n\\"",stage="compacting",unit="files"} 2'
        in lines
    )


def test_metrics_say_how_a_run_ended_and_leave_nothing_beside(tmp_path):
    file = tmp_path / "figures.prom"
    progress = Progress(MetricsFile(file, "archive"))
    progress.batch(batch(0, 1))
    progress.end(False)
    assert 'runnel_pipeline_up{pipeline="archive"} 0\n' in file.read_text()
    assert 'runnel_pipeline_ended_well{pipeline="archive"} 0\n' in file.read_text()
    assert os.listdir(tmp_path) == ["figures.prom"]
    assert file.stat().st_mode & 0o777 == 0o644


def test_metrics_of_a_known_exporter_parse(tmp_path):
    """Each sample follows the HELP and TYPE of its own metric, which stand once."""
    file = tmp_path / "figures.prom"
    progress = Progress(MetricsFile(file, "archive"))
    for query in ("a", "b"):
        progress.batch(StreamBatch(query, 0, 1, 1.0, 1, 1))
    described: list[str] = []
    for line in file.read_text().splitlines():
        if line.startswith("# TYPE "):
            described.append(line.split()[2])
        elif not line.startswith("#"):
            assert line.split("{")[0] == described[-1]
    assert len(described) == len(set(described)) == 8


def test_metrics_that_cannot_be_written(tmp_path):
    with pytest.raises(PipelineError, match=r"cannot write metrics to .*nowhere"):
        MetricsFile(tmp_path / "nowhere" / "figures.prom", "archive")
    folder = tmp_path / "folder"
    folder.mkdir()
    progress = Progress(MetricsFile(folder / "figures.prom", "archive"))
    (folder / "figures.prom").unlink()
    folder.rmdir()
    progress.batch(batch(0, 1))
