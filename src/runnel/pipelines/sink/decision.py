"""Deciding about a batch: all of it becomes visible, once, whatever fails in between. No I/O, no clock.

Every task has written its rows in a transaction of its own and left it open: a *part*. One note per query,
on the broker, says which batch was decided last and which parts it consists of. Writing the note is the
decision; ending the parts only carries it out, and any process that finds the note can do it. The note is
written in a transaction by the holder of the query's own transactional id, so of two drivers that decide at
the same time one is refused. docs/spark/exactly-once.md has the proof and a table of failures.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol, TypeVar

from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.options import FAIL, SKIP, WRITE

Claim = TypeVar("Claim")
T = TypeVar("T")


class InDoubt(PipelineError):
    """Whether a batch was written is no longer known; an operator has to decide."""


class NotDecided(PipelineError):
    """A batch cannot be committed; nothing of it is visible, and its replay writes it again."""


class Verdict(Enum):
    """What to do with a batch."""

    WRITE = auto()
    SKIP = auto()


class Fate(Enum):
    """How a transaction ended that was decided to be committed."""

    COMMITTED = auto()
    LOST = auto()
    """It was aborted."""
    UNKNOWN = auto()
    """It is not open any more, and the broker has forgotten how it ended."""


@dataclass(frozen=True, slots=True)
class Part:
    """The transaction in which one task has written its rows."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Note:
    """What was decided last: this batch, of this many rows, in these parts."""

    batch: int
    rows: int
    parts: tuple[Part, ...]
    is_revoked: bool = False
    """All parts were lost before they could be ended: the batch is to be written again."""
    is_ended: bool = False
    """All parts are known to have ended: there is nothing left to carry out."""

    @property
    def decided(self) -> tuple[Part, ...]:
        """The parts that must not be aborted."""
        return () if self.is_revoked else self.parts


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks of a batch report to the driver."""

    batch: int
    rows: int
    """All rows that tasks saw, also those of tasks that found the batch decided and wrote nothing."""
    parts: tuple[Part, ...]
    has_skipped: bool
    may_begin: bool
    """May this be the first batch that is ever recorded?"""
    is_in_step: bool = True
    """Did it begin only when the batch before was carried out? Spark sees to that, a program may not."""


class Ledger(Protocol[Claim]):
    """What the broker knows of one query. Each verb may fail, before or after it took effect."""

    async def claim(self) -> Claim:
        """Become the decider; the one before is fenced and can write no note any more."""

    async def read(self) -> Note | None:
        """The note that holds now; waits for one that is just being written."""

    async def write(self, claim: Claim, note: Note) -> Claim:
        """Replace the note; refused if another process has claimed meanwhile. The claim for the next one."""

    async def is_open(self, part: Part) -> bool:
        """Is the transaction open, with time enough to be ended?"""

    async def commit(self, part: Part) -> Fate:
        """Commit a transaction, or report how it has ended."""

    async def abort(self, part: Part) -> None:
        """Undo exactly this transaction, if it is open; a later one of the same id is left alone."""

    async def others(self, parts: Collection[Part]) -> list[Part]:
        """The query's open transactions but for these, as far as brokers report them in a short while."""


def judge(note: Note | None, batch: int, *, may_begin: bool, in_doubt: str) -> Verdict:
    """Is a batch still to be written? InDoubt if that is unknown and no option decides."""
    if note is not None and note.batch == batch:
        return Verdict.WRITE if note.is_revoked else Verdict.SKIP
    if note is not None and note.batch < batch:
        return Verdict.WRITE
    if note is None and may_begin:
        return Verdict.WRITE
    if in_doubt == FAIL:
        raise InDoubt(_doubt(note, batch))
    return Verdict.WRITE if in_doubt == WRITE else Verdict.SKIP


def _doubt(note: Note | None, batch: int) -> str:
    remedy = "Start once with the option inDoubt=write to write it, or inDoubt=skip if it is there already"
    if note is None:
        return (
            f"this is batch {batch}, but the broker has no note of any batch before it: either this sink is "
            f"new to the checkpoint, or the note has expired (offsets.retention.minutes). {remedy}"
        )
    return (
        f"this is batch {batch}, but batch {note.batch} was written before: either an older driver is still "
        f"running, or the checkpoint was put back to an earlier state. {remedy}"
    )


async def commit_batch(ledger: Ledger[Claim], written: Written, in_doubt: str) -> None:
    """Make a batch visible; if it was decided before, finish that instead, and undo what was written now."""
    claim = await ledger.claim()
    note = await ledger.read()
    if judge(note, written.batch, may_begin=written.may_begin, in_doubt=in_doubt) is Verdict.SKIP:
        await _skip(ledger, claim, note, written, in_doubt)
        return
    if written.has_skipped:
        raise NotDecided(
            f"some tasks found batch {written.batch} written, but it is not; it will be written again"
        )
    if note is not None and not written.is_in_step:
        # The new note replaces this one: after a failed commit, its parts would stay open.
        await _finish(ledger, claim, note, in_doubt)
    decided = () if note is None else note.decided
    # Looked up before the decision: what begins later may belong to a later batch.
    strangers = await ledger.others([*written.parts, *decided])
    await _check_open(ledger, written)
    decision = Note(written.batch, written.rows, written.parts)
    claim = await ledger.write(claim, decision)
    await _finish(ledger, claim, decision, in_doubt)
    await _attempt(ledger.abort(part) for part in strangers)
    await _mark_ended(ledger, claim, decision, written)


async def _skip(
    ledger: Ledger[Claim], claim: Claim, note: Note | None, written: Written, in_doubt: str
) -> None:
    decided = () if note is None else note.decided
    await abort_parts(ledger, [part for part in written.parts if part not in decided])
    if note is None:
        await ledger.write(claim, Note(written.batch, written.rows, ()))
    elif note.batch == written.batch:
        await _finish(ledger, claim, note, in_doubt)
        await _mark_ended(ledger, claim, note, written)
        if note.rows != written.rows and in_doubt != SKIP:
            raise InDoubt(
                f"batch {note.batch} was written before with {note.rows} rows, and has {written.rows} now: "
                "the query is not deterministic, or its checkpoint was changed. If what was written is "
                "right, start once with the option inDoubt=skip"
            )


async def _check_open(ledger: Ledger[Claim], written: Written) -> None:
    answers = await _each(ledger.is_open, written.parts)
    lost = [part for part, is_open in zip(written.parts, answers, strict=True) if not is_open]
    if lost:
        raise NotDecided(
            f"the transactions {_names(lost)} of batch {written.batch} are not open any more, or not for "
            "long enough: writing took longer than transactionTimeoutMs, or another process ended them"
        )


async def _finish(ledger: Ledger[Claim], claim: Claim, note: Note, in_doubt: str) -> None:
    """Carry a decision out, unless it is known that this was done."""
    if note.is_revoked or note.is_ended:
        return
    lost, unknown = await _missing(ledger, note.parts)
    if not lost and not unknown:
        return
    if len(lost) == len(note.parts) or in_doubt == WRITE:
        await ledger.write(claim, replace(note, is_revoked=True))
        raise NotDecided(
            f"batch {note.batch} was decided, but timed out before it could be made visible. It is to be "
            "written again: a streaming query does so at its next start"
        )
    if in_doubt == FAIL:
        raise InDoubt(
            f"{_loss(lost, unknown, f'{len(note.parts)} parts of batch {note.batch}')}. Start once with the "
            "option inDoubt=write to have the whole batch written again, or with inDoubt=skip to go on with "
            "what is there"
        )


def _loss(lost: Sequence[Part], unknown: Sequence[Part], whole: str) -> str:
    reasons = []
    if lost:
        reasons.append(f"{len(lost)} of {whole} timed out before they could be made visible ({_names(lost)})")
    if unknown:
        reasons.append(
            f"{len(unknown)} of {whole} ended, but their outcome is no longer known ({_names(unknown)})"
        )
    return ", and ".join(reasons)


async def _missing(ledger: Ledger[Claim], parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """Commit transactions: those that are lost, and those whose outcome is unknown."""
    fates = list(zip(parts, await _each(ledger.commit, parts), strict=True))
    return (
        [part for part, fate in fates if fate is Fate.LOST],
        [part for part, fate in fates if fate is Fate.UNKNOWN],
    )


async def _mark_ended(ledger: Ledger[Claim], claim: Claim, note: Note, written: Written) -> None:
    """Record that nothing is left to do, where the start of the next batch does not imply it.

    A broker remembers only for a while how transactions ended, and the next batch may be a long time off.
    """
    if not written.is_in_step and not note.is_ended:
        await _attempt([ledger.write(claim, replace(note, is_ended=True))])


async def abort_batch(ledger: Ledger[Claim], batch: int, parts: Sequence[Part]) -> None:
    """Undo what was written, unless it was decided: a commit that failed may have taken effect."""
    await ledger.claim()
    note = await ledger.read()
    decided = () if note is None else note.decided
    await abort_parts(ledger, [part for part in parts if part not in decided])


async def commit_parts(ledger: Ledger[Claim], written: Written) -> None:
    """Make a write visible that has no note, and is therefore never repeated."""
    await _check_open(ledger, written)
    lost, unknown = await _missing(ledger, written.parts)
    await _attempt(ledger.abort(part) for part in await ledger.others(written.parts))
    if lost or unknown:
        raise InDoubt(_loss(lost, unknown, f"{len(written.parts)} parts of this write"))


async def abort_parts(ledger: Ledger[Claim], parts: Sequence[Part]) -> None:
    """Abort transactions that were certainly not decided to be committed."""
    await _each(ledger.abort, parts)


async def _each(ask: Callable[[Part], Awaitable[T]], parts: Sequence[Part]) -> list[T]:
    """Ask about all parts at once, wait for every answer, and raise the first failure if there is one."""
    answers = await asyncio.gather(*(ask(part) for part in parts), return_exceptions=True)
    good: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        good.append(answer)
    return good


async def _attempt(actions: Iterable[Awaitable[object]]) -> None:
    """Do what is left when all rows are visible: if that fails, the write has not, and the next tidies up."""
    for answer in await asyncio.gather(*actions, return_exceptions=True):
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            raise answer


def _names(parts: Sequence[Part]) -> str:
    return ", ".join(part.transactional_id for part in parts)
