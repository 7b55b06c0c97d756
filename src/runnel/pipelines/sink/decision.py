"""The commit protocol of a batch: all of it becomes visible exactly once, despite failures. No I/O, no clock.

Each task writes its rows in its own transaction and leaves it open: a *part*. One commit marker per query,
stored on the broker, records the last committed batch and its parts. Writing the marker is the commit point;
committing the parts only completes it, and any process that reads the marker can do so. The marker is written
in a transaction under the query's own transactional id, so one of two concurrent drivers is fenced.
docs/spark/exactly-once.md has the proof and a table of failures.
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
    """Whether a batch was committed can no longer be determined; an operator must decide."""


class NotDecided(PipelineError):
    """A batch cannot be committed; none of it is visible, and its replay writes it again."""


class BatchAction(Enum):
    """Whether a batch is written or skipped."""

    WRITE = auto()
    SKIP = auto()


class Outcome(Enum):
    """How a transaction ended for which commit was decided."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()
    """It is no longer open, and the broker no longer knows how it ended."""


@dataclass(frozen=True, slots=True)
class Part:
    """The transaction in which one task has written its rows."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """The last committed batch of a query: its number, its row count and its parts."""

    batch: int
    rows: int
    parts: tuple[Part, ...]
    is_revoked: bool = False
    """All parts timed out before they could be committed: the batch must be written again."""
    is_ended: bool = False
    """All parts are known to be committed: nothing is left to complete."""

    @property
    def decided(self) -> tuple[Part, ...]:
        """The parts that must not be aborted."""
        return () if self.is_revoked else self.parts


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """What the tasks of a batch report to the driver."""

    batch: int
    rows: int
    """Rows of all tasks, including those that skipped the batch because it was committed."""
    parts: tuple[Part, ...]
    has_skipped: bool
    may_be_first: bool
    """Can this be the first batch of the query?"""
    is_sequential: bool = True
    """Did it start only after the previous batch was completed? Spark guarantees this, a program may not."""


class Ledger(Protocol[Claim]):
    """The state of one query on the broker. Each operation may fail before or after it took effect."""

    async def claim(self) -> Claim:
        """Acquire the query's transactional id; the previous holder is fenced."""

    async def read(self) -> CommitMarker | None:
        """The current commit marker; waits for a pending write of it."""

    async def write(self, claim: Claim, marker: CommitMarker) -> Claim:
        """Replace the commit marker; fails if another process has claimed since. Returns the next claim."""

    async def is_open(self, part: Part) -> bool:
        """Is the transaction open, with enough time left to commit it?"""

    async def commit(self, part: Part) -> Outcome:
        """Commit a transaction, or return how it ended."""

    async def abort(self, part: Part) -> None:
        """Abort this transaction if it is open; a later one of the same id is not affected."""

    async def other_open_parts(self, parts: Collection[Part]) -> list[Part]:
        """The query's other open transactions, as far as brokers list them within a short timeout."""


def batch_action(
    marker: CommitMarker | None, batch: int, *, may_be_first: bool, in_doubt: str
) -> BatchAction:
    """Write or skip a batch? InDoubt if that cannot be determined and no option decides."""
    if marker is not None and marker.batch == batch:
        return BatchAction.WRITE if marker.is_revoked else BatchAction.SKIP
    if marker is not None and marker.batch < batch:
        return BatchAction.WRITE
    if marker is None and may_be_first:
        return BatchAction.WRITE
    if in_doubt == FAIL:
        raise InDoubt(_doubt(marker, batch))
    return BatchAction.WRITE if in_doubt == WRITE else BatchAction.SKIP


def _doubt(marker: CommitMarker | None, batch: int) -> str:
    remedy = (
        "Restart once with the option inDoubt=write to write it, or inDoubt=skip if it is already written"
    )
    if marker is None:
        return (
            f"this is batch {batch}, but the broker has no commit marker for an earlier one: either the sink "
            f"is new to this checkpoint, or the marker has expired (offsets.retention.minutes). {remedy}"
        )
    return (
        f"this is batch {batch}, but batch {marker.batch} is already committed: either an older driver is "
        f"still running, or the checkpoint was reset to an earlier state. {remedy}"
    )


async def commit_batch(ledger: Ledger[Claim], written: WrittenBatch, in_doubt: str) -> None:
    """Commit a batch; if it is already committed, complete that commit and abort the new parts."""
    claim = await ledger.claim()
    marker = await ledger.read()
    if (
        batch_action(marker, written.batch, may_be_first=written.may_be_first, in_doubt=in_doubt)
        is BatchAction.SKIP
    ):
        await _skip(ledger, claim, marker, written, in_doubt)
        return
    if written.has_skipped:
        raise NotDecided(
            f"some tasks skipped batch {written.batch}, but it is not committed; it will be written again"
        )
    if marker is not None and not written.is_sequential:
        # The new marker replaces this one: after a failed commit, its parts would stay open.
        await _finish(ledger, claim, marker, in_doubt)
    decided = () if marker is None else marker.decided
    # Listed before the commit point: a transaction that starts later may belong to a later batch.
    orphans = await ledger.other_open_parts([*written.parts, *decided])
    await _check_open(ledger, written)
    decision = CommitMarker(written.batch, written.rows, written.parts)
    claim = await ledger.write(claim, decision)
    await _finish(ledger, claim, decision, in_doubt)
    await _attempt(ledger.abort(part) for part in orphans)
    await _mark_ended(ledger, claim, decision, written)


async def _skip(
    ledger: Ledger[Claim], claim: Claim, marker: CommitMarker | None, written: WrittenBatch, in_doubt: str
) -> None:
    decided = () if marker is None else marker.decided
    await abort_parts(ledger, [part for part in written.parts if part not in decided])
    if marker is None:
        await ledger.write(claim, CommitMarker(written.batch, written.rows, ()))
    elif marker.batch == written.batch:
        await _finish(ledger, claim, marker, in_doubt)
        await _mark_ended(ledger, claim, marker, written)
        if marker.rows != written.rows and in_doubt != SKIP:
            raise InDoubt(
                f"batch {marker.batch} was committed with {marker.rows} rows, and has {written.rows} now: "
                "the query is not deterministic, or its checkpoint was changed. If the committed rows are "
                "correct, restart once with the option inDoubt=skip"
            )


async def _check_open(ledger: Ledger[Claim], written: WrittenBatch) -> None:
    answers = await _each(ledger.is_open, written.parts)
    lost = [part for part, is_open in zip(written.parts, answers, strict=True) if not is_open]
    if lost:
        raise NotDecided(
            f"the transactions {_names(lost)} of batch {written.batch} are no longer open, or not for "
            "long enough: writing took longer than transactionTimeoutMs, or another process ended them"
        )


async def _finish(ledger: Ledger[Claim], claim: Claim, marker: CommitMarker, in_doubt: str) -> None:
    """Commit the parts of a marker, unless they are known to be committed."""
    if marker.is_revoked or marker.is_ended:
        return
    lost, unknown = await _missing(ledger, marker.parts)
    if not lost and not unknown:
        return
    if len(lost) == len(marker.parts) or in_doubt == WRITE:
        await ledger.write(claim, replace(marker, is_revoked=True))
        raise NotDecided(
            f"batch {marker.batch} was decided, but timed out before it became visible. It must be "
            "written again: a streaming query does so on restart"
        )
    if in_doubt == FAIL:
        raise InDoubt(
            f"{_loss(lost, unknown, f'{len(marker.parts)} parts of batch {marker.batch}')}. "
            "Restart once with the option inDoubt=write to write the whole batch again, or with inDoubt=skip "
            "to continue with the committed parts"
        )


def _loss(lost: Sequence[Part], unknown: Sequence[Part], whole: str) -> str:
    reasons = []
    if lost:
        reasons.append(f"{len(lost)} of {whole} timed out before they became visible ({_names(lost)})")
    if unknown:
        reasons.append(
            f"{len(unknown)} of {whole} ended, but their outcome is no longer known ({_names(unknown)})"
        )
    return ", and ".join(reasons)


async def _missing(ledger: Ledger[Claim], parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """Commit transactions; returns those that were aborted, and those whose outcome is unknown."""
    outcomes = list(zip(parts, await _each(ledger.commit, parts), strict=True))
    return (
        [part for part, outcome in outcomes if outcome is Outcome.ABORTED],
        [part for part, outcome in outcomes if outcome is Outcome.UNKNOWN],
    )


async def _mark_ended(
    ledger: Ledger[Claim], claim: Claim, marker: CommitMarker, written: WrittenBatch
) -> None:
    """Record that all parts are committed, where the start of the next batch does not imply it.

    A broker keeps the outcome of a transaction for a limited time, and the next batch may come much later.
    """
    if not written.is_sequential and not marker.is_ended:
        await _attempt([ledger.write(claim, replace(marker, is_ended=True))])


async def abort_batch(ledger: Ledger[Claim], batch: int, parts: Sequence[Part]) -> None:
    """Abort the parts, except committed ones: a commit that failed may have taken effect."""
    await ledger.claim()
    marker = await ledger.read()
    decided = () if marker is None else marker.decided
    await abort_parts(ledger, [part for part in parts if part not in decided])


async def commit_parts(ledger: Ledger[Claim], written: WrittenBatch) -> None:
    """Commit a write that has no commit marker, and is therefore never replayed."""
    await _check_open(ledger, written)
    lost, unknown = await _missing(ledger, written.parts)
    await _attempt(ledger.abort(part) for part in await ledger.other_open_parts(written.parts))
    if lost or unknown:
        raise InDoubt(_loss(lost, unknown, f"{len(written.parts)} parts of this write"))


async def abort_parts(ledger: Ledger[Claim], parts: Sequence[Part]) -> None:
    """Abort transactions for which commit was not decided."""
    await _each(ledger.abort, parts)


async def _each(ask: Callable[[Part], Awaitable[T]], parts: Sequence[Part]) -> list[T]:
    """Send a request for each part, wait for all responses, and raise the first failure."""
    answers = await asyncio.gather(*(ask(part) for part in parts), return_exceptions=True)
    good: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        good.append(answer)
    return good


async def _attempt(actions: Iterable[Awaitable[object]]) -> None:
    """Clean up after all rows are visible: a failure does not fail the write, the next batch cleans up."""
    for answer in await asyncio.gather(*actions, return_exceptions=True):
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            raise answer


def _names(parts: Sequence[Part]) -> str:
    return ", ".join(part.transactional_id for part in parts)
