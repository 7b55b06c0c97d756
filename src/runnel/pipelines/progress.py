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

_POLL_S = 0.3


@dataclass(slots=True)
class Stage:
    """A stage of a job."""

    name: str
    total: int | None
    """Total work, if known."""
    unit: str
    began_s: float
    done: int = 0
    ended_s: float | None = None
    _notify: "Callable[[Stage], None]" = field(default=lambda stage: None, repr=False)

    def advance(self, count: int) -> None:
        """Add completed work."""
        self.reach(self.done + count)

    def reach(self, done: int, total: int | None = None) -> None:
        """Set the completed work, and optionally the total."""
        self.done = done
        if total is not None:
            self.total = total
        self._notify(self)

    def seconds(self, now_s: float) -> float:
        """The duration so far, or in total."""
        return (now_s if self.ended_s is None else self.ended_s) - self.began_s


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A finished micro-batch of a streaming query."""

    query: str
    batch_id: int
    records: int
    records_per_s: float
    duration_ms: int
    lag: int | None = None
    """Records of the source that are not read yet, if reported."""
    late: int = 0
    """Rows dropped because they were later than the watermark."""
    observed: Mapping[str, int] = field(default_factory=dict)
    """The column `count` of each observation of the query, by name."""


class View(Protocol):
    """A display or sink of progress."""

    def stage_began(self, stage: Stage) -> None: ...

    def stage_advanced(self, stage: Stage) -> None: ...

    def stage_ended(self, stage: Stage) -> None: ...

    def batch_ended(self, batch: StreamBatch) -> None: ...

    def message(self, text: str) -> None: ...

    def ended(self, is_fine: bool) -> None: ...


class Progress:
    """Receives the progress of a job; thread-safe."""

    def __init__(self, *views: View, now_s: Callable[[], float] = time.monotonic) -> None:
        self._views = views
        self._now_s = now_s
        self._lock = threading.RLock()

    @contextmanager
    def stage(self, name: str, *, total: int | None = None, unit: str = "records") -> Iterator[Stage]:
        """A stage for the duration of the block; stages may be nested."""
        stage = Stage(name, total, unit, self._now_s(), _notify=self._advanced)
        self._notify(lambda view: view.stage_began(stage))
        try:
            yield stage
        finally:
            stage.ended_s = self._now_s()
            self._notify(lambda view: view.stage_ended(stage))

    @contextmanager
    def tasks(self, session: "SparkSession", name: str) -> Iterator[None]:
        """A stage of batch work on Spark, with the number of tasks as progress."""
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
        self._notify(lambda view: view.batch_ended(batch))

    def message(self, text: str) -> None:
        """A message for the user."""
        self._notify(lambda view: view.message(text))

    def end(self, is_fine: bool) -> None:
        """The job has ended; nothing more will be reported."""
        self._notify(lambda view: view.ended(is_fine))

    def _advanced(self, stage: Stage) -> None:
        self._notify(lambda view: view.stage_advanced(stage))

    def _notify(self, what: Callable[[View], None]) -> None:
        with self._lock:
            for view in self._views:
                what(view)


def _follow_tasks(session: "SparkSession", stage: Stage, ended: threading.Event) -> None:
    """Count the tasks of running jobs and of finished stages."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    tracker = session.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not ended.wait(_POLL_S):
        try:
            jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
            ids = {number for job in jobs if job is not None for number in job.stageIds}
            infos = [info for number in ids if (info := tracker.getStageInfo(number)) is not None]
        except (Py4JError, OSError):
            # The JVM is shutting down; the caller of the job gets the error.
            return
        seen.update({info.stageId: (info.numCompletedTasks, info.numTasks) for info in infos})
        if seen:
            stage.reach(sum(done for done, _ in seen.values()), sum(total for _, total in seen.values()))
