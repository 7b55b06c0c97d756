"""Writes metrics of a job in the Prometheus text format, for the textfile collector of node_exporter."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runnel.pipelines.atomic_files import replace_file
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.progress import Stage, StreamBatch

_QUERY_METRICS = (
    ("batches_total", "counter", "Micro-batches finished since the start of this run."),
    ("records_total", "counter", "Records read since the start of this run."),
    ("last_batch_id", "gauge", "Id of the last finished micro-batch."),
    ("last_batch_seconds", "gauge", "Duration of the last finished micro-batch."),
    ("last_batch_timestamp_seconds", "gauge", "Time when the last micro-batch finished."),
    ("records_per_second", "gauge", "Records per second of the last finished micro-batch."),
    ("lag_records", "gauge", "Records in the source that are not read yet."),
)
_STAGE_METRICS = (
    ("stage_done", "gauge", "Completed work of a stage."),
    ("stage_total", "gauge", "Total work of a stage, if known."),
    ("stage_seconds", "gauge", "Duration of a finished stage."),
)


@dataclass(slots=True)
class _Query:
    latest: StreamBatch
    ended_s: float
    batches: int = 0
    records: int = 0


class MetricsFile:
    """A progress view that writes a metrics file, replaced atomically."""

    def __init__(self, path: Path, pipeline: str, now_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._pipeline = pipeline
        self._now_s = now_s
        self._queries: dict[str, _Query] = {}
        self._stages: dict[str, Stage] = {}
        self._is_up = True
        self._is_fine: bool | None = None
        try:
            replace_file(self._path, self.text())
        except OSError as error:
            raise PipelineError(f"cannot write metrics to {path}: {error.strerror}") from error

    def stage_began(self, stage: Stage) -> None:
        self._stages[stage.name] = stage
        self._write()

    def stage_advanced(self, stage: Stage) -> None:
        """Not written at once, as this is frequent."""

    def stage_ended(self, stage: Stage) -> None:
        self._write()

    def batch_ended(self, batch: StreamBatch) -> None:
        query = self._queries.setdefault(batch.query, _Query(batch, 0.0))
        query.latest, query.ended_s = batch, self._now_s()
        query.batches += 1
        query.records += batch.records
        self._write()

    def message(self, text: str) -> None:
        """Messages are not metrics."""

    def ended(self, is_fine: bool) -> None:
        self._is_up, self._is_fine = False, is_fine
        self._write()

    def text(self) -> str:
        """The contents of the file."""
        return "".join(f"{line}\n" for line in self._lines())

    def _write(self) -> None:
        # A full disk must not stop the pipeline; stale metrics are recognisable by their timestamp.
        with suppress(OSError):
            replace_file(self._path, self.text())

    def _lines(self) -> Iterator[str]:
        yield from self._metric("up", "gauge", "Whether the pipeline is running.", [({}, self._is_up)])
        about = "Whether this run succeeded."
        yield from self._metric("ended_well", "gauge", about, [({}, self._is_fine)])
        for name, kind, about in _QUERY_METRICS:
            rows = [({"query": query}, _query_value(name, values)) for query, values in self._queries.items()]
            yield from self._metric(name, kind, about, rows)
        for name, kind, about in _STAGE_METRICS:
            stages = [
                ({"stage": stage.name, "unit": stage.unit}, _stage_value(name, stage))
                for stage in self._stages.values()
            ]
            yield from self._metric(name, kind, about, stages)

    def _metric(
        self, name: str, kind: str, about: str, rows: Sequence[tuple[dict[str, str], float | None]]
    ) -> Iterator[str]:
        known = [(labels, value) for labels, value in rows if value is not None]
        if not known:
            return
        yield f"# HELP runnel_pipeline_{name} {about}"
        yield f"# TYPE runnel_pipeline_{name} {kind}"
        for labels, value in known:
            pairs = {"pipeline": self._pipeline, **labels}
            text = ",".join(f'{label}="{_escaped(of)}"' for label, of in pairs.items())
            yield f"runnel_pipeline_{name}{{{text}}} {float(value):.15g}"


def _query_value(name: str, query: _Query) -> float | None:
    return {
        "batches_total": query.batches,
        "records_total": query.records,
        "last_batch_id": query.latest.batch_id,
        "last_batch_seconds": query.latest.duration_ms / 1000,
        "last_batch_timestamp_seconds": query.ended_s,
        "records_per_second": query.latest.records_per_s,
        "lag_records": query.latest.lag,
    }[name]


def _stage_value(name: str, stage: Stage) -> float | None:
    return {
        "stage_done": stage.done,
        "stage_total": stage.total,
        "stage_seconds": None if stage.ended_s is None else stage.ended_s - stage.began_s,
    }[name]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
