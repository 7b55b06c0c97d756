"""The progress of a job: jobs report it here, independent of the display.

    with progress.stage("reading", total=1000) as stage:
        stage.advance(10)

`Progress()` without views is for tests and for callers without a display.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.3


@dataclass(slots=True)
class Stage:
    """A part of a job, with a beginning and an end."""

    name: str
    total: int | None
    """How much there is to do, where that is known."""
    unit: str
    began_s: float
    done: int = 0
    ended_s: float | None = None
    _tell: "Callable[[Stage], None]" = field(default=lambda stage: None, repr=False)

    def advance(self, count: int) -> None:
        """So much more is done."""
        self.reach(self.done + count)

    def reach(self, done: int, total: int | None = None) -> None:
        """So much is done by now, and perhaps there is more to do than was known."""
        self.done = done
        if total is not None:
            self.total = total
        self._tell(self)

    def seconds(self, now_s: float) -> float:
        """How long it has taken so far, or took."""
        return (now_s if self.ended_s is None else self.ended_s) - self.began_s


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A micro-batch that a streaming query has finished."""

    query: str
    batch_id: int
    records: int
    records_per_s: float
    duration_ms: int
    lag: int | None = None
    """Records of the source that wait to be read, where the source reports it."""
    late: int = 0
    """Rows that came after the watermark had passed them, and were left out."""
    observed: Mapping[str, int] = field(default_factory=dict)
    """What the query counts by itself: the column `count` of each observation, by its name."""


class View(Protocol):
    """Somebody who looks at a job's progress."""

    def stage_began(self, stage: Stage) -> None: ...

    def stage_advanced(self, stage: Stage) -> None: ...

    def stage_ended(self, stage: Stage) -> None: ...

    def batch_ended(self, batch: StreamBatch) -> None: ...

    def said(self, text: str) -> None: ...

    def ended(self, is_fine: bool) -> None: ...


class Progress:
    """What a job reports to; from any thread."""

    def __init__(self, *views: View, now_s: Callable[[], float] = time.monotonic) -> None:
        self._views = views
        self._now_s = now_s
        self._lock = threading.RLock()

    @contextmanager
    def stage(self, name: str, *, total: int | None = None, unit: str = "records") -> Iterator[Stage]:
        """A stage for as long as the block runs; stages may be nested."""
        stage = Stage(name, total, unit, self._now_s(), _tell=self._advanced)
        self._tell(lambda view: view.stage_began(stage))
        try:
            yield stage
        finally:
            stage.ended_s = self._now_s()
            self._tell(lambda view: view.stage_ended(stage))

    @contextmanager
    def tasks(self, session: "SparkSession", name: str) -> Iterator[None]:
        """A stage of batch work on Spark, which counts its own tasks."""
        with self.stage(name, unit="tasks") as stage:
            if not self._views:
                yield
                return
            ended = threading.Event()
            follower = threading.Thread(
                target=_follow_tasks, args=(session, stage, ended), name="count tasks", daemon=True
            )
            follower.start()
            try:
                yield
            finally:
                ended.set()
                follower.join()

    def batch(self, batch: StreamBatch) -> None:
        """A streaming query has finished a batch."""
        self._tell(lambda view: view.batch_ended(batch))

    def say(self, text: str) -> None:
        """A message for the user."""
        self._tell(lambda view: view.said(text))

    def end(self, is_fine: bool) -> None:
        """The job has ended; nothing more will be reported."""
        self._tell(lambda view: view.ended(is_fine))

    def _advanced(self, stage: Stage) -> None:
        self._tell(lambda view: view.stage_advanced(stage))

    def _tell(self, what: Callable[[View], None]) -> None:
        with self._lock:
            for view in self._views:
                what(view)


def _follow_tasks(session: "SparkSession", stage: Stage, ended: threading.Event) -> None:
    """Count the tasks of all jobs that are running, and remember those of stages that have ended."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    tracker = session.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not ended.wait(_LOOK_S):
        try:
            jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
            ids = {number for job in jobs if job is not None for number in job.stageIds}
            infos = [info for number in ids if (info := tracker.getStageInfo(number)) is not None]
        except (Py4JError, OSError):
            # The JVM is shutting down; the waiter for the work gets the error.
            return
        seen.update({info.stageId: (info.numCompletedTasks, info.numTasks) for info in infos})
        stage.reach(sum(done for done, _ in seen.values()), sum(total for _, total in seen.values()))
