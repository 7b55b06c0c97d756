"""Deciding about a batch: all of it becomes visible, once, whoever dies in between. No I/O, no clock.

Every task has written its rows in a transaction of its own and left it open: a *part*. One note per query,
on the broker, says which batch was decided last and which parts it consists of. Writing the note is the
decision; ending the parts only carries it out, and whoever finds the note can do it. The note is written by
the holder of the query's own transactional id, in a transaction, so of two drivers that decide at the same
time one is refused. docs/spark/exactly-once.md has the proof and a table of failures.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol, TypeVar

from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.options import FAIL, SKIP, WRITE

Claim = TypeVar("Claim")
T = TypeVar("T")


class InDoubt(PipelineError):
    """Nobody can know any more whether a batch was written; a person has to say what to do."""


class NotDecided(PipelineError):
    """A batch cannot be committed; nothing of it is visible, and its replay writes it anew."""


class Verdict(Enum):
    """What to do with a batch."""

    WRITE = auto()
    SKIP = auto()


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
    """All parts were lost before they could be ended: the batch is to be written anew."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks of a batch tell the driver."""

    batch: int
    rows: int
    """All rows that tasks saw, also those of tasks that found the batch decided and wrote nothing."""
    parts: tuple[Part, ...]
    has_skipped: bool
    may_begin: bool
    """May this be the first batch that the note ever tells of?"""


class Ledger(Protocol[Claim]):
    """What the broker knows of one query. Each verb may fail, before or after it took effect."""

    async def claim(self) -> Claim:
        """Become the one who decides; whoever was it before can write no note any more."""

    async def read(self) -> Note | None:
        """The note that holds now; waits for one that is just being written."""

    async def write(self, claim: Claim, note: Note) -> None:
        """Replace the note; refused if somebody else has claimed meanwhile."""

    async def is_open(self, part: Part) -> bool:
        """Is the transaction open, with time enough to be ended?"""

    async def commit(self, part: Part) -> bool:
        """End a transaction; True if it is committed, False if it never will be. Raises if nobody knows."""

    async def abort(self, part: Part) -> None:
        """Undo exactly this transaction, if it is open; a later one of the same id is left alone."""

    async def others(self, parts: Collection[Part]) -> list[Part]:
        """The query's open transactions, but for these."""


def judge(note: Note | None, batch: int, *, may_begin: bool, in_doubt: str) -> Verdict:
    """Is a batch still to be written? InDoubt if that cannot be told, and nobody has said what to do then."""
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
            f"some tasks found batch {written.batch} written, but it is not; it will be written anew"
        )
    # Looked up before the decision: what begins later may belong to a later batch.
    strangers = await ledger.others(written.parts)
    await _check_open(ledger, written)
    decision = Note(written.batch, written.rows, written.parts)
    await ledger.write(claim, decision)
    await _finish(ledger, claim, decision, in_doubt)
    await abort_parts(ledger, strangers)


async def _skip(
    ledger: Ledger[Claim], claim: Claim, note: Note | None, written: Written, in_doubt: str
) -> None:
    decided = note.parts if note is not None and note.batch == written.batch else ()
    await abort_parts(ledger, [part for part in written.parts if part not in decided])
    if note is None:
        await ledger.write(claim, Note(written.batch, written.rows, ()))
    elif note.batch == written.batch:
        await _finish(ledger, claim, note, in_doubt)
        if note.rows != written.rows and in_doubt != SKIP:
            raise InDoubt(
                f"batch {note.batch} was written before with {note.rows} rows, and has {written.rows} now: "
                "the query is not deterministic, or its checkpoint was changed. If what was written is "
                "right, start once with the option inDoubt=skip"
            )


async def _check_open(ledger: Ledger[Claim], written: Written) -> None:
    lost = await _failing(ledger.is_open, written.parts)
    if lost:
        raise NotDecided(
            f"the transactions {_names(lost)} of batch {written.batch} are not open any more, or not for "
            "long enough: writing took longer than transactionTimeoutMs, or somebody ended them"
        )


async def _finish(ledger: Ledger[Claim], claim: Claim, note: Note, in_doubt: str) -> None:
    """Carry a decision out."""
    lost = await _failing(ledger.commit, note.parts)
    if not lost or (in_doubt == SKIP and len(lost) < len(note.parts)):
        return
    if len(lost) == len(note.parts) or in_doubt == WRITE:
        await ledger.write(claim, replace(note, is_revoked=True))
        raise NotDecided(
            f"batch {note.batch} was decided, but timed out before it could be made visible. "
            "The next start writes it anew"
        )
    raise InDoubt(
        f"{len(lost)} of {len(note.parts)} parts of batch {note.batch} timed out before they could be made "
        f"visible ({_names(lost)}); the others are there. Start once with the option inDoubt=write to write "
        "the whole batch again, or with inDoubt=skip to go on without the lost part"
    )


async def abort_batch(ledger: Ledger[Claim], batch: int, parts: Sequence[Part]) -> None:
    """Undo what was written, unless it was decided: a commit that failed may have taken effect."""
    await ledger.claim()
    note = await ledger.read()
    is_decided = note is not None and note.batch == batch and not note.is_revoked
    decided = note.parts if note is not None and is_decided else ()
    await abort_parts(ledger, [part for part in parts if part not in decided])


async def commit_parts(ledger: Ledger[Claim], written: Written) -> None:
    """Make a write visible that is told of nowhere, and that nobody will therefore repeat."""
    await _check_open(ledger, written)
    lost = await _failing(ledger.commit, written.parts)
    await abort_parts(ledger, await ledger.others(written.parts))
    if lost:
        raise InDoubt(f"{len(lost)} of {len(written.parts)} parts of this write are lost: {_names(lost)}")


async def abort_parts(ledger: Ledger[Claim], parts: Sequence[Part]) -> None:
    """Undo transactions of which it is certain that nobody decided to commit them."""
    await _each(ledger.abort, parts)


async def _failing(ask: Callable[[Part], Awaitable[bool]], parts: Sequence[Part]) -> list[Part]:
    answers = await _each(ask, parts)
    return [part for part, is_well in zip(parts, answers, strict=True) if not is_well]


async def _each(ask: Callable[[Part], Awaitable[T]], parts: Sequence[Part]) -> list[T]:
    """Ask about all parts at once, wait for every answer, and raise the first failure if there is one."""
    answers = await asyncio.gather(*(ask(part) for part in parts), return_exceptions=True)
    good: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        good.append(answer)
    return good


def _names(parts: Sequence[Part]) -> str:
    return ", ".join(part.transactional_id for part in parts)
