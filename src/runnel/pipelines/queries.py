"""Running streaming queries to their end: all of them or none, with progress, and stopped by a signal."""

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

from runnel.pipelines.failures import explained, is_of_spark
from runnel.pipelines.progress import Progress, StreamBatch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S = 0.3
_KILLED_BY_SIGINT = 130


@dataclass(slots=True)
class Ran:
    """What queries did while they were watched."""

    batches: int = 0
    records: int = 0
    was_stopped: bool = False
    """By a signal, before the queries ended by themselves."""


def run_queries(queries: "Sequence[StreamingQuery]", progress: Progress) -> Ran:
    """Wait until all queries have ended, or a signal ends them; if one fails, all end, and that is raised."""
    watched = [_Watched(query) for query in queries]
    ran = Ran()
    with stop_requests() as stop:
        try:
            # Looked at before the signal is: what had failed by then has failed.
            while any([one.is_active(progress, ran) for one in watched]) and not stop.is_requested:
                time.sleep(_LOOK_S)
            if stop.is_requested:
                progress.say("stopping (Ctrl-C once more ends at once)")
            for one in watched:
                one.stop(progress, ran)
        except Exception as error:
            # Also what has not failed: half a pipeline is none.
            for one in watched:
                with suppress(Exception):
                    one.stop(progress, ran)
            if is_of_spark(error):
                raise explained(error) from error
            raise
        ran.was_stopped = stop.is_requested
    return ran


@dataclass(slots=True)
class Stop:
    """Whether a stop was requested. No lock: a signal may come while its own thread holds it."""

    is_requested: bool = False


@contextmanager
def stop_requests() -> Iterator[Stop]:
    """Requested by the first Ctrl-C or SIGTERM while the block runs; the second ends the process at once."""
    stop = Stop()

    def answer(number: int, frame: FrameType | None) -> None:
        if stop.is_requested:
            # Java ends with us, and so does everything that it runs; whatever is open is as after a crash.
            os._exit(_KILLED_BY_SIGINT)
        stop.is_requested = True

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, answer) for number in (signal.SIGINT, signal.SIGTERM)}
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

    def is_active(self, progress: Progress, ran: Ran) -> bool:
        """Is it still running? Tell what is new; raise what it failed with."""
        is_active = self.query.isActive
        self.report(progress, ran)
        if not is_active and (error := self.query.exception()) is not None:
            raise explained(error) from error
        return is_active

    def report(self, progress: Progress, ran: Ran) -> None:
        """Tell of the batches that have ended since the last time."""
        last = self.query.lastProgress
        if last is None or last["batchId"] <= self.last_batch_id:
            return
        for one in self.query.recentProgress:
            # A trigger without data repeats the id of the batch to come.
            if one["batchId"] <= self.last_batch_id or "addBatch" not in one["durationMs"]:
                continue
            batch = stream_batch(self.name, one)
            self.last_batch_id = batch.batch_id
            ran.batches += 1
            ran.records += batch.records
            progress.batch(batch)

    def stop(self, progress: Progress, ran: Ran) -> None:
        """End it if it runs, and report the rest."""
        if self.query.isActive:
            self.query.stop()
        self.report(progress, ran)


def stream_batch(name: str, progress: Mapping[str, Any]) -> StreamBatch:
    """What Spark's progress of one batch says."""
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
    """How many records are available and not yet read; None for sources that do not report it."""
    ends, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
    if not ends or not latest:
        return None
    return sum(max(0, offset - ends.get(where, 0)) for where, offset in latest.items())


def _offsets(value: object) -> dict[tuple[str, str], int]:
    """Offsets per topic and partition, from `{"topic": {"0": 17}}` as Spark gives it, whole or as text."""
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
