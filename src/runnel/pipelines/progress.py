"""How a job goes: jobs tell it here, and do not know who looks.

    with progress.stage("reading", total=1000) as stage:
        stage.advance(10)

`Progress()` without views is for tests and for whoever does not care.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


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
    """Records of the source that wait to be read, where the source tells."""


class View(Protocol):
    """Somebody who looks at a job's progress."""

    def stage_began(self, stage: Stage) -> None: ...

    def stage_advanced(self, stage: Stage) -> None: ...

    def stage_ended(self, stage: Stage) -> None: ...

    def batch_ended(self, batch: StreamBatch) -> None: ...

    def said(self, text: str) -> None: ...


class Progress:
    """What a job reports to."""

    def __init__(self, *views: View, now_s: Callable[[], float] = time.monotonic) -> None:
        self._views = views
        self._now_s = now_s

    @contextmanager
    def stage(self, name: str, *, total: int | None = None, unit: str = "records") -> Iterator[Stage]:
        """A stage for as long as the block runs; stages may stand inside each other."""
        stage = Stage(name, total, unit, self._now_s(), _tell=self._advanced)
        for view in self._views:
            view.stage_began(stage)
        try:
            yield stage
        finally:
            stage.ended_s = self._now_s()
            for view in self._views:
                view.stage_ended(stage)

    def batch(self, batch: StreamBatch) -> None:
        """A streaming query has finished a batch."""
        for view in self._views:
            view.batch_ended(batch)

    def say(self, text: str) -> None:
        """A sentence that whoever watches should read."""
        for view in self._views:
            view.said(text)

    def _advanced(self, stage: Stage) -> None:
        for view in self._views:
            view.stage_advanced(stage)
