"""A job's progress on standard error: a live display on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from runnel.pipelines.progress import Stage, StreamBatch, View

if TYPE_CHECKING:
    from rich.progress import TaskID

_LINE_EVERY_S = 10.0


def terminal_view(stream: TextIO | None = None) -> View:
    """A live display on a terminal, lines for pipes and files."""
    target = sys.stderr if stream is None else stream
    return LiveView(target) if target.isatty() else LineView(target)


@dataclass(slots=True)
class _Flow:
    """Counters of a streaming query since the last line, and in total."""

    batches: int = 0
    records: int = 0
    records_total: int = 0
    printed_s: float | None = None

    def add(self, batch: StreamBatch) -> None:
        self.batches += 1
        self.records += batch.records
        self.records_total += batch.records


class LineView:
    """One line per finished stage, and one every ten seconds for running ones."""

    def __init__(self, stream: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now_s = now_s
        self._stages: dict[int, float] = {}
        self._flows: dict[str, _Flow] = {}

    def stage_began(self, stage: Stage) -> None:
        self._stages[id(stage)] = self._now_s()

    def stage_advanced(self, stage: Stage) -> None:
        now_s = self._now_s()
        if now_s - self._stages[id(stage)] >= _LINE_EVERY_S:
            self._stages[id(stage)] = now_s
            self.message(f"{stage.name}: {done_text(stage)}")

    def stage_ended(self, stage: Stage) -> None:
        del self._stages[id(stage)]
        seconds = stage.seconds(self._now_s())
        # A stage without a count.
        done = f"{stage.done:,} {stage.unit} in " if stage.done else ""
        self.message(f"{stage.name}: {done}{seconds:.1f} s")

    def batch_ended(self, batch: StreamBatch) -> None:
        flow = self._flows.setdefault(batch.query, _Flow())
        flow.add(batch)
        now_s = self._now_s()
        if flow.printed_s is None or now_s - flow.printed_s >= _LINE_EVERY_S:
            self.message(f"{batch.query}: {flow_text(flow.batches, flow.records, batch)}")
            flow.batches = flow.records = 0
            flow.printed_s = now_s

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def ended(self, is_fine: bool) -> None:
        for query, flow in self._flows.items():
            self.message(f"{query}: {flow.records_total:,} records in total")


class LiveView:
    """Bars for stages and a line for each query, redrawn in place and removed at the end."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self._stages: dict[int, TaskID] = {}
        self._queries: dict[str, TaskID] = {}
        self._flows: dict[str, _Flow] = {}
        self._bars.start()

    def stage_began(self, stage: Stage) -> None:
        self._stages[id(stage)] = self._bars.add_task(stage.name, total=stage.total, figures="")

    def stage_advanced(self, stage: Stage) -> None:
        task = self._stages[id(stage)]
        self._bars.update(task, completed=stage.done, total=stage.total, figures=done_text(stage))

    def stage_ended(self, stage: Stage) -> None:
        self._bars.remove_task(self._stages.pop(id(stage)))
        done = f"{stage.done:,} {stage.unit}, " if stage.done else ""
        self.message(f"✓ {stage.name} ({done}{stage.seconds(time.monotonic()):.1f} s)")

    def batch_ended(self, batch: StreamBatch) -> None:
        flow = self._flows.setdefault(batch.query, _Flow())
        flow.add(batch)
        if batch.query not in self._queries:
            self._queries[batch.query] = self._bars.add_task(batch.query, total=None, figures="")
        figures = flow_text(flow.batches, flow.records_total, batch)
        bar: dict[str, Any] = {}
        if batch.lag is not None:
            # The share of available records that was read.
            bar = {"completed": flow.records_total, "total": max(1, flow.records_total + batch.lag)}
        self._bars.update(self._queries[batch.query], figures=figures, **bar)

    def message(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def ended(self, is_fine: bool) -> None:
        self._bars.stop()
        for query, flow in self._flows.items():
            self.message(f"{query}: {flow.records_total:,} records in {flow.batches:,} batches")


def done_text(stage: Stage) -> str:
    """The progress of a stage."""
    of_all = "" if stage.total is None else f" of {stage.total:,}"
    return f"{stage.done:,}{of_all} {stage.unit}"


def flow_text(batches: int, records: int, latest: StreamBatch) -> str:
    """Batches, records, rate and lag of a query."""
    count = f"batch {latest.batch_id}" if batches == 1 else f"{batches:,} batches to {latest.batch_id}"
    lag = "" if latest.lag is None else f", lag {latest.lag:,}"
    return f"{count}, {records:,} records, {latest.records_per_s:,.0f}/s{lag}"
