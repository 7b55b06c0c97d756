"""A model of what a decision acts on: a broker, and processes that die or lose it at any step."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from runnel.pipelines.sink.decision import (
    Fate,
    Note,
    Part,
    Verdict,
    Written,
    abort_batch,
    commit_batch,
    judge,
)
from runnel.pipelines.sink.names import IdPool
from runnel.pipelines.sink.options import FAIL


class Killed(BaseException):
    """The process is gone: nothing behind this line runs."""


class Away(Exception):
    """The broker cannot be reached; whether it has acted is unknown."""


class Fenced(Exception):
    """Somebody else decides now."""


@dataclass
class World:
    """A broker that knows one query: its note, who may write it, and the state of each transaction."""

    note: Note | None = None
    decisions: list[Note] = field(default_factory=list)
    """All that was ever decided."""
    epoch: int = 0
    holders: dict[str, Part] = field(default_factory=dict)
    """The latest transaction of each id."""
    states: dict[Part, str] = field(default_factory=dict)
    rows: dict[Part, list[str]] = field(default_factory=dict)
    serial: int = 0

    def write_part(self, rows: list[str], name: str | None = None) -> Part:
        """Take an id over, which aborts what is open under it, and write."""
        self.serial += 1
        part = Part(name or f"task-{self.serial}", self.serial, 0)
        before = self.holders.get(part.transactional_id)
        if before is not None and self.states[before] == "open":
            self.states[before] = "aborted"
        self.holders[part.transactional_id] = part
        self.states[part], self.rows[part] = "open", rows
        return part

    def fate(self, part: Part) -> Fate:
        """How a part ended, as its coordinator tells it: it knows the latest transaction of an id only."""
        latest = self.holders.get(part.transactional_id)
        if latest is None:
            return Fate.UNKNOWN
        return {"committed": Fate.COMMITTED, "aborted": Fate.LOST}.get(self.states[latest], Fate.UNKNOWN)

    def visible(self) -> Counter:
        return Counter(
            row for part, rows in self.rows.items() if self.states[part] == "committed" for row in rows
        )

    def time_out(self) -> None:
        """The broker aborts whatever is open."""
        for part, state in self.states.items():
            if state == "open":
                self.states[part] = "aborted"


@dataclass
class Life:
    """One process's view of the world; it dies at a given step, before or after that took effect."""

    world: World
    deadly_step: int = -1
    dies_after: bool = False
    fault: type[BaseException] = Killed
    is_lasting: bool = False
    """Do all steps behind that one fail as well?"""
    turn: Callable[[], Awaitable[None]] | None = None
    step: int = 0
    pool: IdPool = field(default_factory=IdPool)

    async def _act(self, effect):
        if self.turn is not None:
            await self.turn()
        self.step += 1
        if self.step == self.deadly_step and not self.dies_after:
            raise self.fault
        if self.is_lasting and self.step > self.deadly_step:
            raise self.fault
        result = effect()
        if self.step == self.deadly_step:
            raise self.fault
        return result

    async def claim(self):
        def effect():
            self.world.epoch += 1
            return self.world.epoch

        return await self._act(effect)

    async def read(self):
        return await self._act(lambda: self.world.note)

    async def write(self, claim, note):
        def effect():
            if claim != self.world.epoch:
                raise Fenced
            self.world.note = note
            if not note.is_revoked and not note.is_ended:
                self.world.decisions.append(note)
            # Each transaction has an epoch of its own.
            self.world.epoch += 1
            return self.world.epoch

        return await self._act(effect)

    async def is_open(self, part):
        return await self._act(lambda: self.world.states[part] == "open")

    async def commit(self, part):
        def effect():
            if self.world.states[part] == "open":
                self.world.states[part] = "committed"
            return self.world.fate(part)

        return await self._act(effect)

    async def abort(self, part):
        def effect():
            if self.world.states[part] == "open":
                self.world.states[part] = "aborted"

        await self._act(effect)

    async def others(self, parts):
        states = self.world.states
        return await self._act(
            lambda: [part for part in states if states[part] == "open" and part not in parts]
        )


def rows_of(batch: int) -> list[str]:
    return [f"{batch}-{number}" for number in range(6)]


async def run_batch(
    life: Life,
    batch: int,
    tasks: int,
    in_doubt: str = FAIL,
    *,
    loser: bool = False,
    is_in_step: bool = True,
) -> None:
    """What Spark does with one batch: tasks write or skip, the driver commits, and aborts if that fails."""
    written, has_skipped = [], False
    may_begin = batch == 0 or not is_in_step
    for task in range(tasks):
        note = await life.read()
        if judge(note, batch, may_begin=may_begin, in_doubt=in_doubt) is Verdict.SKIP:
            has_skipped = True
            continue
        rows = rows_of(batch)[task::tasks]
        for _ in range(2 if loser else 1):
            part = life.world.write_part(rows, life.pool.take("q", batch, note))
        written.append(part)
    total = Written(batch, len(rows_of(batch)), tuple(written), has_skipped, may_begin, is_in_step)
    try:
        await commit_batch(life, total, in_doubt)
    except Exception:
        await abort_batch(life, batch, written)
        raise


def expected(batches: int) -> Counter:
    return Counter(row for batch in range(batches) for row in rows_of(batch))
