"""A model of the commit protocol's environment: a broker, and processes that fail or lose it at any step."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from runnel.pipelines.sink.decision import (
    BatchAction,
    CommitMarker,
    Outcome,
    Part,
    WrittenBatch,
    abort_batch,
    batch_action,
    commit_batch,
)
from runnel.pipelines.sink.names import TransactionalIdPool
from runnel.pipelines.sink.options import FAIL


class Killed(BaseException):
    """The process was killed."""


class Away(Exception):
    """The broker is unreachable; whether the request took effect is unknown."""


class Fenced(Exception):
    """Another process holds the transactional id."""


@dataclass
class ModelBroker:
    """A broker with the state of one query: its commit marker, its epoch, and its transactions."""

    marker: CommitMarker | None = None
    decisions: list[CommitMarker] = field(default_factory=list)
    """All commit markers ever written."""
    epoch: int = 0
    holders: dict[str, Part] = field(default_factory=dict)
    """The latest transaction of each id."""
    states: dict[Part, str] = field(default_factory=dict)
    rows: dict[Part, list[str]] = field(default_factory=dict)
    serial: int = 0

    def write_part(self, rows: list[str], name: str | None = None) -> Part:
        """Initialize an id, which aborts its open transaction, and write."""
        self.serial += 1
        part = Part(name or f"task-{self.serial}", self.serial, 0)
        before = self.holders.get(part.transactional_id)
        if before is not None and self.states[before] == "open":
            self.states[before] = "aborted"
        self.holders[part.transactional_id] = part
        self.states[part], self.rows[part] = "open", rows
        return part

    def outcome(self, part: Part) -> Outcome:
        """The outcome of a part, of which the coordinator keeps the latest of an id only."""
        latest = self.holders.get(part.transactional_id)
        if latest is None:
            return Outcome.UNKNOWN
        return {"committed": Outcome.COMMITTED, "aborted": Outcome.ABORTED}.get(
            self.states[latest], Outcome.UNKNOWN
        )

    def visible(self) -> Counter:
        return Counter(
            row for part, rows in self.rows.items() if self.states[part] == "committed" for row in rows
        )

    def time_out(self) -> None:
        """The broker aborts all open transactions."""
        for part, state in self.states.items():
            if state == "open":
                self.states[part] = "aborted"


@dataclass
class Process:
    """One process; it fails at a given step, before or after the step took effect."""

    world: ModelBroker
    failing_step: int = -1
    fails_after: bool = False
    fault: type[BaseException] = Killed
    is_lasting: bool = False
    """Do all later steps fail as well?"""
    turn: Callable[[], Awaitable[None]] | None = None
    step: int = 0
    pool: TransactionalIdPool = field(default_factory=TransactionalIdPool)

    async def _act(self, effect):
        if self.turn is not None:
            await self.turn()
        self.step += 1
        if self.step == self.failing_step and not self.fails_after:
            raise self.fault
        if self.is_lasting and self.step > self.failing_step:
            raise self.fault
        result = effect()
        if self.step == self.failing_step:
            raise self.fault
        return result

    async def claim(self):
        def effect():
            self.world.epoch += 1
            return self.world.epoch

        return await self._act(effect)

    async def read(self):
        return await self._act(lambda: self.world.marker)

    async def write(self, claim, marker):
        def effect():
            if claim != self.world.epoch:
                raise Fenced
            self.world.marker = marker
            if not marker.is_revoked and not marker.is_ended:
                self.world.decisions.append(marker)
            # Each transaction bumps the epoch.
            self.world.epoch += 1
            return self.world.epoch

        return await self._act(effect)

    async def is_open(self, part):
        return await self._act(lambda: self.world.states[part] == "open")

    async def commit(self, part):
        def effect():
            if self.world.states[part] == "open":
                self.world.states[part] = "committed"
            return self.world.outcome(part)

        return await self._act(effect)

    async def abort(self, part):
        def effect():
            if self.world.states[part] == "open":
                self.world.states[part] = "aborted"

        await self._act(effect)

    async def other_open_parts(self, parts):
        states = self.world.states
        return await self._act(
            lambda: [part for part in states if states[part] == "open" and part not in parts]
        )


def rows_of(batch: int) -> list[str]:
    return [f"{batch}-{number}" for number in range(6)]


async def run_batch(
    life: Process,
    batch: int,
    tasks: int,
    in_doubt: str = FAIL,
    *,
    loser: bool = False,
    is_sequential: bool = True,
) -> None:
    """What Spark does with one batch: tasks write or skip, the driver commits, and aborts if that fails."""
    written, has_skipped = [], False
    may_be_first = batch == 0 or not is_sequential
    for task in range(tasks):
        marker = await life.read()
        if batch_action(marker, batch, may_be_first=may_be_first, in_doubt=in_doubt) is BatchAction.SKIP:
            has_skipped = True
            continue
        rows = rows_of(batch)[task::tasks]
        for _ in range(2 if loser else 1):
            part = life.world.write_part(rows, life.pool.take("q", batch, marker))
        written.append(part)
    total = WrittenBatch(batch, len(rows_of(batch)), tuple(written), has_skipped, may_be_first, is_sequential)
    try:
        await commit_batch(life, total, in_doubt)
    except Exception:
        await abort_batch(life, batch, written)
        raise


def expected(batches: int) -> Counter:
    return Counter(row for batch in range(batches) for row in rows_of(batch))
