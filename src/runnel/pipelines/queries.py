"""Runs streaming queries until they end, fail, or a signal stops them, and reports progress."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from runnel.pipelines.failures import explained, is_spark_error
from runnel.pipelines.progress import Progress, StreamBatch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.3
_KILLED_BY_SIGINT = 130


@dataclass(slots=True)
class QueriesResult:
    """The result of a run of queries."""

    batches: int = 0
    records: int = 0
    was_stopped: bool = False
    """Stopped by a signal."""


def run_queries(queries: "Sequence[StreamingQuery]", progress: Progress) -> QueriesResult:
    """Wait until all queries end or a signal stops them; if one fails, stop all and raise its error."""
    watched = [_Watched(query) for query in queries]
    result = QueriesResult()
    with stop_requests() as stop:
        try:
            # Checked before the signal, so that an earlier failure is reported.
            while any([one.is_active(progress, result) for one in watched]) and not stop.is_requested:
                time.sleep(_POLL_S)
            if stop.is_requested:
                progress.message("stopping (press Ctrl-C again to exit at once)")
            for one in watched:
                one.stop(progress, result)
        except Exception as error:
            # Stop all queries, not only the failed one.
            for one in watched:
                with suppress(Exception):
                    one.stop(progress, result)
            if is_spark_error(error):
                raise explained(error) from error
            raise
        result.was_stopped = stop.is_requested
    return result


@dataclass(slots=True)
class Stop:
    """Whether a stop was requested. Without a lock, which a signal handler could deadlock on."""

    is_requested: bool = False


@contextmanager
def stop_requests() -> Iterator[Stop]:
    """The first SIGINT or SIGTERM requests a stop; the second exits the process at once."""
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_requested:
            # Java exits with this process; open transactions are recovered as after a crash.
            os._exit(_KILLED_BY_SIGINT)
        stop.is_requested = True

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class _Watched:
    """A query and how much of its progress has been reported."""

    query: "StreamingQuery"
    last_batch_id: int = -1
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.query.name or str(self.query.id)

    def is_active(self, progress: Progress, result: QueriesResult) -> bool:
        """Report new progress; raise the error of a failed query."""
        is_active = self.query.isActive
        self.report(progress, result)
        if not is_active and (error := self.query.exception()) is not None:
            raise explained(error) from error
        return is_active

    def report(self, progress: Progress, result: QueriesResult) -> None:
        """Report batches that have finished since the last call."""
        last = self.query.lastProgress
        if last is None or last["batchId"] <= self.last_batch_id:
            return
        for one in self.query.recentProgress:
            # A trigger without data reports the id of the next batch.
            if one["batchId"] <= self.last_batch_id or "addBatch" not in one["durationMs"]:
                continue
            batch = stream_batch(self.name, one)
            self.last_batch_id = batch.batch_id
            result.batches += 1
            result.records += batch.records
            progress.batch(batch)

    def stop(self, progress: Progress, result: QueriesResult) -> None:
        """Stop it if active, and report the rest."""
        if self.query.isActive:
            self.query.stop()
        self.report(progress, result)


def stream_batch(name: str, progress: Mapping[str, Any]) -> StreamBatch:
    """Convert Spark's progress of a batch."""
    lags = [lag for source in progress["sources"] if (lag := _lag(source)) is not None]
    return StreamBatch(
        query=name,
        batch_id=progress["batchId"],
        records=progress["numInputRows"],
        records_per_s=progress.get("processedRowsPerSecond") or 0.0,
        duration_ms=progress["durationMs"].get("triggerExecution", 0),
        lag=sum(lags) if lags else None,
        late=sum(one.get("numRowsDroppedByWatermark", 0) for one in progress.get("stateOperators") or ()),
        observed={name: row["count"] for name, row in _observations(progress) if "count" in row},
    )


def _observations(progress: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, row in (progress.get("observedMetrics") or {}).items():
        yield name, row if isinstance(row, Mapping) else row.asDict()


def _lag(source: Mapping[str, Any]) -> int | None:
    """Records available and not read yet; None if the source does not report it."""
    ends, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
    if not ends or not latest:
        return None
    return sum(max(0, offset - ends.get(where, 0)) for where, offset in latest.items())


def _offsets(value: object) -> dict[tuple[str, str], int]:
    """Offsets per topic and partition, from `{"topic": {"0": 17}}`, parsed or as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in value.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }
