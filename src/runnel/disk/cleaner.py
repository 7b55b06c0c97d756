"""The log cleaner: compacts one log at a time, in a throttled thread.

    consider ─► map the keys, segment by segment ──► rewrite a group   ─► swap it in ─┐
       ▲                                               ▲──────── next group ───────────┤
       └────── store the first dirty offset ◄──────────────────────────── no more ─────┘

Reading and writing are done by a worker thread, on closed segments only, which do not change; operations on
the log itself (planning, swapping) are done on the event loop. A crash at any point leaves either the
old segments or the new ones, see `segment_swap`. The first dirty offset is stored last,
after the swaps are durable; if it is lost, the next pass does more work, and nothing else.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from copy import copy
from functools import partial
from typing import TypeVar

from runnel.batch.errors import CorruptBatch
from runnel.disk.aborted_on_disk import aborted_in, aborted_of
from runnel.disk.cleaning_plan import plan_cleaning, segment_facts, store_cleaner_checkpoint
from runnel.disk.disk_log import DiskLog
from runnel.disk.segment import Segment
from runnel.disk.segment_swap import SegmentSwap, begin_swap, end_swap
from runnel.disk.segment_writer import SegmentWriter, WrittenSegment
from runnel.disk.segments import Segments
from runnel.disk.walk import walk_clear_batches
from runnel.log.aborted import AbortedTransaction
from runnel.log.compaction import (
    KEY_MEMORY_BYTES,
    CompactionPlan,
    KeyMap,
    group_segments,
)
from runnel.log.compaction_filter import BatchFilter, TransactionWalk, bare_batch, map_keys
from runnel.log.names import CLEANED
from runnel.model.errors import StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FOREVER
from runnel.ports.files import File, Files, Workers

logger = logging.getLogger(__name__)

BACKOFF_MS = 15_000
"""Kafka's log.cleaner.backoff.ms: the interval between checks if no log is due."""
RETRY_AFTER_MS = 60_000
"""Retry interval of a log whose cleaning failed, most likely because of a full disk."""
LOGS_PER_CHECK_MAX = 100
"""Logs that are checked in one run of upkeep."""
WORK_SECONDS = 0.0002
REST_SECONDS = 0.0004
"""Length of a slice of work, so that the event loop never waits a millisecond for the GIL."""

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
Script = Generator[Steps[WrittenSegment | None], WrittenSegment | None, None]


class CleaningStopped(Exception):
    """The broker is shutting down, or the log was removed: the pass is abandoned."""


class Throttle:
    """Pauses after each slice of work; called at every step."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        if time.perf_counter() - self._since >= WORK_SECONDS:
            time.sleep(REST_SECONDS)
            self._since = time.perf_counter()


class Cleaner:
    """Compacts logs in the background, the most urgent first."""

    __slots__ = (
        "_backoff_ms",
        "_due",
        "_is_on",
        "_is_stopping",
        "_key_memory_bytes",
        "_log",
        "_next_check_ms",
        "_not_before_ms",
        "_report",
        "_round",
        "_throttle",
        "_workers",
    )

    def __init__(
        self,
        workers: Workers,
        *,
        throttle: Callable[[], None] | None = None,
        report: Callable[[str], None] = lambda text: None,
        is_on: bool = True,
        key_memory_bytes: int = KEY_MEMORY_BYTES,
        backoff_ms: int = BACKOFF_MS,
    ) -> None:
        self._workers = workers
        self._throttle = Throttle() if throttle is None else throttle
        self._report = report
        self._is_on = is_on
        self._key_memory_bytes = key_memory_bytes
        self._not_before_ms: dict[TopicPartition, int] = {}
        self._round: list[DiskLog] = []
        """Logs of this round that are not checked yet."""
        self._due: list[tuple[CompactionPlan, DiskLog]] = []
        self._log: DiskLog | None = None
        self._next_check_ms = 0
        self._backoff_ms = backoff_ms
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        return self._log is not None

    def consider(self, logs: Iterable[DiskLog], now_ms: int) -> None:
        """Start to clean the dirtiest log that is due, unless a pass is in progress."""
        if not self._is_on or self._is_stopping or self._log is not None:
            return
        if not self._round:
            # A clock that was set back must not delay the next round by more than the back-off.
            if self._next_check_ms - self._backoff_ms <= now_ms < self._next_check_ms:
                return
            self._round = [log for log in logs if log.config.cleanup_compact]
            self._due.clear()
        self._check_some(now_ms)
        if self._round:
            return
        if not self._due:
            self._next_check_ms = now_ms + self._backoff_ms
            return
        plan, log = max(self._due, key=lambda pair: pair[0].urgency)
        self._due.clear()
        self._log = log
        script = _clean(log, plan, KeyMap(self._key_memory_bytes), now_ms)
        self._resume(log, script, now_ms, None, None)

    def _check_some(self, now_ms: int) -> None:
        """Plan for some logs of the round: each plan reads small files, on the event loop."""
        for log in self._round[-LOGS_PER_CHECK_MAX:]:
            if log.failure is None and now_ms >= self._not_before_ms.get(log.name, 0):
                plan = self._plan(log, now_ms)
                if plan is not None:
                    self._due.append((plan, log))
        del self._round[-LOGS_PER_CHECK_MAX:]

    def _plan(self, log: DiskLog, now_ms: int) -> CompactionPlan | None:
        try:
            return plan_cleaning(log, now_ms)
        except (OSError, CorruptBatch, StorageFailed) as error:
            self._set_aside(
                log, now_ms + RETRY_AFTER_MS, f"{log.name} could not be checked for compaction: {error}"
            )
            return None
        except Exception as bug:
            logger.exception("%s could not be checked for compaction", log.name)
            self._set_aside(
                log, now_ms + RETRY_AFTER_MS, f"{log.name} could not be checked for compaction: {bug!r}"
            )
            return None

    def change(self, *, key_memory_bytes: int, backoff_ms: int) -> None:
        """Apply other settings, from the next pass and the next back-off on."""
        self._key_memory_bytes = key_memory_bytes
        self._backoff_ms = backoff_ms

    def stop(self) -> None:
        """Stop at the next step; the log that is being cleaned stays as it is."""
        self._is_stopping = True

    def close(self) -> None:
        """Stop, and wait until no thread touches a file."""
        self.stop()
        self._workers.drain()

    def _resume(
        self,
        log: DiskLog,
        script: Script,
        now_ms: int,
        result: WrittenSegment | None,
        failure: BaseException | None,
    ) -> None:
        """Run the script's part on this thread, then submit its next piece of work to a worker."""
        if (failure is None and self._is_stopping) or log.cleaner_files().is_revoked:
            # Segments written before the stop or the removal of the log are not swapped in.
            failure = CleaningStopped()
        try:
            steps = script.send(result) if failure is None else script.throw(failure)
        except StopIteration:
            self._log = None
        except CleaningStopped:
            self._log = None
        except CorruptBatch as error:
            # Continuing would lose the records after the corruption; the log is not compacted.
            self._set_aside(log, FOREVER, f"{log.name} is damaged and cannot be compacted: {error}")
        except (OSError, StorageFailed) as error:
            self._set_aside(log, now_ms + RETRY_AFTER_MS, f"{log.name} could not be compacted: {error}")
        except Exception as bug:
            # A bug, logged with its traceback; other logs are still compacted.
            logger.exception("%s could not be compacted", log.name)
            self._set_aside(log, now_ms + RETRY_AFTER_MS, f"{log.name} could not be compacted: {bug!r}")
        else:
            self._workers.submit(partial(self._run, steps), partial(self._resume, log, script, now_ms))

    def _set_aside(self, log: DiskLog, until_ms: int, text: str) -> None:
        self._not_before_ms[log.name] = until_ms
        self._log = None
        self._report(text)

    def _run(self, steps: Steps[WrittenSegment | None]) -> WrittenSegment | None:
        """On a worker thread: all steps, throttled."""
        while True:
            if self._is_stopping:
                steps.throw(CleaningStopped())
            try:
                next(steps)
            except StopIteration as stop:
                written: WrittenSegment | None = stop.value
                return written
            self._throttle()


def _clean(log: DiskLog, plan: CompactionPlan, keys: KeyMap, now_ms: int) -> Script:
    """One pass over a log: what is yielded is done on a worker thread, the rest on the log's own."""
    facts = {fact.base_offset: fact for fact in segment_facts(log)}
    segments = {segment.base_offset: segment for segment in log.closed_segments()}
    producers = {producer.producer_id: producer for producer in log.producer_state.get()}
    transactions = TransactionWalk(aborted_in(log.segments, plan.first_dirty_offset, plan.end_offset))
    yield _remove_leftovers(log.cleaner_files(), log.segments.folder)
    for base_offset, fact in facts.items():
        if fact.end_offset <= plan.first_dirty_offset or base_offset >= plan.end_offset:
            continue
        if keys.is_full:
            break
        if not _still_exist(log, [segments[base_offset]]):
            return
        file = log.segment_file(segments[base_offset])
        reading = segments[base_offset], file
        yield _map_segment(keys, reading, fact.size_bytes, plan.first_dirty_offset, transactions)
    if not keys.is_full:
        # An earlier pass may have removed the last batches; all offsets were read nevertheless.
        keys.end_offset = plan.end_offset
    start_offset = min(facts, default=plan.first_dirty_offset)
    transactions = TransactionWalk(aborted_in(log.segments, start_offset, plan.end_offset))
    batch_filter = BatchFilter(keys, producers, now_ms, log.config.delete_retention_ms, transactions)
    for group in group_segments(list(facts.values()), keys.end_offset, log.config):
        old = [segments[fact.base_offset] for fact in group]
        if not _still_exist(log, old):
            break
        files = [log.segment_file(segment) for segment in old]
        aborted = [entry for segment in old for entry in aborted_of(log.segments, segment)]
        written = yield _write_group(log, old, files, aborted, batch_filter)
        assert written is not None
        swap = begin_swap(log, old, written)
        if swap is None:
            break
        try:
            yield _carry_out(swap)
        finally:
            is_swapped = end_swap(log, swap)
        if not is_swapped:
            break
    else:
        store_cleaner_checkpoint(log, keys.end_offset)
    yield _forget(keys)


def _carry_out(swap: SegmentSwap) -> Steps[WrittenSegment | None]:
    yield
    swap.run()
    return None


def _still_exist(log: DiskLog, segments: list[Segment]) -> bool:
    """Does the log still have these segments? Retention may have deleted them since the pass started.

    If the log was removed, its folder may be that of another one by now.
    """
    return log.failure is None and set(segments) <= set(log.closed_segments())


def _remove_leftovers(files: Files, folder: str) -> Steps[WrittenSegment | None]:
    """Remove files of a pass that was stopped just before its swap.

    The sync makes the removal of the last pass's swap file durable: if a power cut restored that file,
    recovery would take the incomplete files of this pass for complete.
    """
    for name in files.names(folder):
        if name.endswith(CLEANED):
            files.remove(f"{folder}/{name}")
        yield
    files.sync_folder(folder)
    return None


def _forget(keys: KeyMap) -> Steps[WrittenSegment | None]:
    yield from keys.forget()
    return None


def _map_segment(
    keys: KeyMap,
    reading: tuple[Segment, File],
    size_bytes: int,
    first_dirty_offset: int,
    transactions: TransactionWalk,
) -> Steps[WrittenSegment | None]:
    segment, file = reading
    for _, header, batch in walk_clear_batches(file, 0, size_bytes, segment.cipher):
        if header.next_offset <= first_dirty_offset:
            continue
        if keys.is_full:
            break
        yield from map_keys(keys, batch, header, transactions)
        yield
    return None


def _write_group(
    log: DiskLog,
    segments: list[Segment],
    files: list[File],
    aborted: list[AbortedTransaction],
    batch_filter: BatchFilter,
) -> Steps[WrittenSegment | None]:
    """Write what stays of these segments as one.

    Its last batch stays at least bare: so segments follow each other without a gap, as recovery expects,
    and a reader behind the last record learns where to continue. It is encrypted if one of these is: so its
    key replaces that of the first one.
    """
    is_encrypted = log.segments.encrypts or any(segment.is_encrypted for segment in segments)
    writer = SegmentWriter(
        log.cleaner_files(),
        log.segments.folder,
        segments[0].base_offset,
        log.config.index_interval_bytes,
        log.segments.keys if is_encrypted else None,
    )
    try:
        for segment, file in zip(segments, files, strict=True):
            batches = walk_clear_batches(file, 0, segment.size_bytes, segment.cipher)
            for end_position, header, batch in batches:
                kept = yield from batch_filter.kept(batch, header)
                is_last = segment is segments[-1] and end_position == segment.size_bytes
                if kept is None and is_last:
                    kept = bare_batch(header)
                if kept is not None:
                    writer.append(kept)
                yield
        # Transactions without records left need not be listed.
        kept_aborted = [
            entry for entry in aborted if entry.last_offset not in batch_filter.discardable_markers
        ]
        written = writer.finish(kept_aborted, had_aborted=bool(aborted))
        written.replaced = list(_loaded(log.segments, segments, files))
        return written
    except Exception:
        writer.discard()
        raise


def _loaded(log_files: Segments, segments: list[Segment], files: list[File]) -> Iterator[Segment]:
    """Copies of segments with their indexes in memory, loaded in a thread."""
    view = log_files.view(log_files.files, len(files))
    for segment, file in zip(segments, files, strict=True):
        found = copy(segment)
        found.file = file
        view.load_indexes(found)
        view.max_timestamp_of(found)
        view.segments.append(found)
        aborted_of(view, found)
        yield found
