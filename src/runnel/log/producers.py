"""The producer state of a partition: detects duplicates and gaps, and tracks transactions.

    new producer id ─────────► accepted at any sequence (its state may have expired, KIP-360)
    same epoch, next sequence ► accepted
    same epoch, one of the last five batches again ► duplicate: acknowledged with its original offset
    same epoch, behind a batch whose write failed ► KAFKA_STORAGE_ERROR: the producer retries them in order
    same epoch, anything else ► OUT_OF_ORDER_SEQUENCE_NUMBER
    newer epoch, sequence 0 ──► accepted, the older epoch is fenced
    older epoch ──────────────► INVALID_PRODUCER_EPOCH

The state of a producer is immutable: a change replaces it and keeps the previous one, so that a failed write
can be rolled back. `now_ms` is always of a clock that does not jump.

A transaction begins with its first batch and ends with its marker; it is unstable until that is committed:

    first batch ──► open ──► marker staged ──► ended ──► marker below the high watermark ──► forgotten
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from runnel.batch.control import EndMarker
from runnel.batch.header import NO_SEQUENCE, SEQUENCE_MAX, TRANSACTIONAL, BatchHeader
from runnel.log.aborted import AbortedTransaction
from runnel.model.errors import ApiError, ErrorCode

BATCHES_REMEMBERED = 5
"""The maximum number of in-flight requests of an idempotent producer, which it may retry."""
NO_OFFSET = -1
NO_EPOCH = -1


@dataclass(slots=True)
class WrittenBatch:
    """A batch that a producer has written: its sequences and offsets."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp: int


@dataclass(slots=True)
class Producer:
    """The state of one producer; immutable."""

    producer_id: int
    epoch: int
    batches: tuple[WrittenBatch, ...]
    """The newest five, oldest first; empty after a marker with a new epoch."""
    last_seen_ms: int
    coordinator_epoch: int = NO_EPOCH
    transaction_start_offset: int = NO_OFFSET
    """First offset of the open transaction, or -1."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last batch or marker of this producer."""
        is_data = self.coordinator_epoch == NO_EPOCH or self.transaction_start_offset != NO_OFFSET
        return self.batches[-1].max_timestamp if self.batches and is_data else self.last_seen_ms

    @property
    def last_offset(self) -> int:
        """The last offset of this producer, or -1."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


@dataclass(slots=True, eq=False)
class Guard:
    """A pending verification by the transaction coordinator that a producer may begin a transaction here.

    The result is valid only while the guard is in place. The end of a transaction removes it, so that the
    result for a previous transaction cannot begin one that would hang.
    """

    producer_id: int
    epoch: int
    lowest_sequence: int
    """The sequence of the first batch: a batch that overtook it during verification would make a gap."""
    since_ms: int


@dataclass(slots=True)
class FailedBatch:
    """The first batch of a producer whose write failed, while later ones may have been in flight."""

    epoch: int
    base_sequence: int
    since_ms: int
    in_flight_left: int = BATCHES_REMEMBERED - 1
    """How many more of those may arrive."""


class Producers:
    """The producer state of one partition."""

    __slots__ = ("_aborted", "_by_id", "_ended", "_failed", "_guards", "_in_transaction", "_staged")

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        self._in_transaction: dict[int, int] = {}
        """The first offset of each open transaction."""
        self._ended: deque[tuple[int, int]] = deque()
        """(marker, first offset) of transactions whose marker may not be committed yet."""
        self._aborted: list[AbortedTransaction] = []
        """Transactions aborted since the last call of `take_aborted`."""
        self._guards: dict[int, Guard] = {}
        self._staged: list[tuple[int, Producer | None, int]] = []
        """(id, former state, offset of the last marker) before each staged batch."""
        self._failed: dict[int, FailedBatch] = {}
        """Batches that were rolled back, and not retried yet."""

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction, which bounds the last stable offset."""
        return min(self._in_transaction.values(), default=None)

    @property
    def oldest_open_ms(self) -> int | None:
        """When the producer of an open transaction that has been silent for longest was last seen."""
        seen = (producer for each in self._in_transaction if (producer := self._by_id.get(each)) is not None)
        return min((producer.last_seen_ms for producer in seen), default=None)

    def first_unstable_offset(self, committed_offset: int) -> int | None:
        """Where the oldest transaction begins whose end is not below `committed_offset`.

        What ended below is forgotten: what is committed stays so.
        """
        if self._ended:
            self.forget_ended(committed_offset)
        if not self._in_transaction and not self._ended:
            return None
        starts = [start_offset for _, start_offset in self._ended]
        return min((*self._in_transaction.values(), *starts))

    def forget_ended(self, committed_offset: int) -> None:
        """Markers below this offset are committed. A staged marker never is."""
        ended = self._ended
        while ended and ended[0][0] < committed_offset:
            ended.popleft()

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Has this producer an open transaction, which needs no verification?"""
        producer = self._by_id.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer_id in self._in_transaction

    def guard(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Guard:
        """Set a guard while the coordinator verifies that this producer may begin a transaction."""
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = Guard(producer_id, epoch, sequence, now_ms)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def is_guarded(self, guard: Guard) -> bool:
        """Is this guard still in place?"""
        return self._guards.get(guard.producer_id) is guard

    def check_guard(self, guard: Guard, sequence: int, *, needs_start: bool) -> None:
        """Reject the begin of a transaction unless its guard is still in place.

        `needs_start`: with transaction version 2, a producer without state begins at sequence 0.
        """
        producer_id = guard.producer_id
        if not self.is_guarded(guard):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} is not in an ongoing transaction"
            )
        producer = self._by_id.get(producer_id)
        is_late = needs_start and sequence != 0 and (producer is None or not producer.batches)
        if is_late or sequence > guard.lowest_sequence:
            expected = 0 if is_late else guard.lowest_sequence
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence} where {expected} was next",
            )

    def check_marker(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """Reject a delayed or duplicate marker; transaction version 2 bumps the epoch with each marker."""
        producer = self._by_id.get(producer_id)
        if producer is None or transaction_version < 2 or epoch > producer.epoch:
            return
        is_repeated = epoch == producer.epoch and producer_id not in self._in_transaction
        if not is_repeated:
            raise _fenced(producer, epoch)

    def stage(
        self, header: BatchHeader, base_offset: int, now_ms: int, *, from_client: bool
    ) -> WrittenBatch | None:
        """Stage a data batch that is about to be written at `base_offset`, or return the one it duplicates.

        Raises ApiError. Staged changes can be rolled back until `keep_staged`.
        """
        producer = self._by_id.get(header.producer_id)
        if self._failed and from_client:
            self._check_order(header)
        if producer is not None:
            if producer.epoch > header.producer_epoch:
                raise _fenced(producer, header.producer_epoch)
            if from_client and not _is_next(producer, header):
                return _duplicate(producer, header)
            if producer.transaction_start_offset != NO_OFFSET and not header.is_transactional:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"producer {header.producer_id} has a transaction open and wrote outside of it",
                )
        marker_offset = self._ended[-1][0] if self._ended else NO_OFFSET
        self._staged.append((header.producer_id, producer, marker_offset))
        self._written(producer, header, base_offset, now_ms)
        return None

    def stage_marker(self, header: BatchHeader, marker: EndMarker, offset: int, now_ms: int) -> None:
        """Stage a marker that is about to be written at `offset`. Raises ApiError."""
        producer = self._by_id.get(header.producer_id)
        if producer is not None:
            if producer.epoch > header.producer_epoch:
                raise _fenced(producer, header.producer_epoch)
            if marker.coordinator_epoch < producer.coordinator_epoch:
                raise ApiError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"coordinator epoch {marker.coordinator_epoch} comes after {producer.coordinator_epoch}",
                )
        self._note(header.producer_id, producer)
        self._end(producer, header, marker, offset, now_ms)

    def stage_copy(self, header: BatchHeader, marker: EndMarker | None, now_ms: int) -> None:
        """Stage a batch that was replicated from the leader."""
        self._note(header.producer_id, self._by_id.get(header.producer_id))
        self.replay(header, marker, now_ms)

    @property
    def staged_count(self) -> int:
        """The number of staged changes."""
        return len(self._staged)

    def keep_staged(self, count: int | None = None) -> list[AbortedTransaction]:
        """The first staged changes (or all) are written; returns the transactions that they aborted."""
        if not self._staged:
            return []
        if count is None or count >= len(self._staged):
            self._staged.clear()
            return self.take_aborted()
        _, _, marker_offset = self._staged[count]
        del self._staged[:count]
        kept = [entry for entry in self._aborted if entry.last_offset <= marker_offset]
        del self._aborted[: len(kept)]
        return kept

    def take_aborted(self) -> list[AbortedTransaction]:
        """The transactions aborted since the last call, in the order of their markers."""
        aborted, self._aborted = self._aborted, []
        return aborted

    def undo_staged(self) -> None:
        """Roll back the staged changes after a failed write."""
        while self._staged:
            producer_id, former, marker_offset = self._staged.pop()
            undone = self._by_id.get(producer_id)
            batch = _last_batch(undone)
            if undone is not None and batch is not None and batch is not _last_batch(former):
                self._failed[producer_id] = FailedBatch(
                    undone.epoch, batch.base_sequence, undone.last_seen_ms
                )
            self._put(producer_id, former)
            while self._ended and self._ended[-1][0] > marker_offset:
                self._ended.pop()
            while self._aborted and self._aborted[-1].last_offset > marker_offset:
                self._aborted.pop()

    def replay(self, header: BatchHeader, marker: EndMarker | None, now_ms: int) -> None:
        """Apply a batch that is in the log already, without validation.

        `marker` is the end of a transaction if that is what a control batch holds. The producer counts as
        seen now, not at the batch's time, which its sender chose: to remember too long is harmless, to forget
        early is not.
        """
        if header.producer_id < 0:
            return
        producer = self._by_id.get(header.producer_id)
        if not header.is_control:
            self._written(producer, header, header.base_offset, now_ms)
        elif marker is not None:
            self._end(producer, header, marker, header.base_offset, now_ms)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Expire idle producers without an open transaction; returns their number."""
        if not self._by_id and not self._guards and not self._failed:
            return 0
        seen_min_ms = now_ms - expiration_ms
        expired = [
            producer.producer_id
            for producer in self._by_id.values()
            if producer.last_seen_ms <= seen_min_ms and producer.transaction_start_offset == NO_OFFSET
        ]
        for producer_id in expired:
            del self._by_id[producer_id]
        for producer_id in [key for key, failed in self._failed.items() if failed.since_ms <= seen_min_ms]:
            del self._failed[producer_id]
        for guard in [guard for guard in self._guards.values() if guard.since_ms <= seen_min_ms]:
            del self._guards[guard.producer_id]
        return len(expired)

    def restore(self, producers: list[Producer], now_ms: int) -> None:
        """Replace all state by the producers of a snapshot.

        The last of them counts as seen now, and the others as long before it as they were: the wall clock may
        have been set since the snapshot was written.
        """
        self._by_id.clear()
        self._in_transaction.clear()
        self._ended.clear()
        self._aborted.clear()
        self._guards.clear()
        self._staged.clear()
        self._failed.clear()
        later_ms = max(0, now_ms - max((producer.last_seen_ms for producer in producers), default=0))
        for producer in producers:
            seen_ms = min(producer.last_seen_ms + later_ms, now_ms)
            self._put(producer.producer_id, replace(producer, last_seen_ms=seen_ms))

    def _check_order(self, header: BatchHeader) -> None:
        """Reject a batch that was in flight behind one whose write failed: that one has to be retried first.

        As a gap in the sequence, it would make some clients continue in a new epoch, with duplicates.
        """
        failed = self._failed.get(header.producer_id)
        if failed is None:
            return
        distance = (header.base_sequence - failed.base_sequence) & SEQUENCE_MAX
        is_behind = header.producer_epoch == failed.epoch and 0 < distance <= SEQUENCE_MAX // 2
        if is_behind and failed.in_flight_left > 0:
            failed.in_flight_left -= 1
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, and the write of "
                f"{failed.base_sequence} has failed",
            )

    def _written(self, producer: Producer | None, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        delta = header.last_offset_delta
        sequence = header.base_sequence
        batch = WrittenBatch(
            sequence,
            (sequence + delta) & SEQUENCE_MAX if sequence >= 0 else NO_SEQUENCE,
            base_offset,
            base_offset + delta,
            header.max_timestamp,
        )
        start_offset = base_offset if header.attributes & TRANSACTIONAL else NO_OFFSET
        batches: tuple[WrittenBatch, ...] = (batch,)
        coordinator_epoch = NO_EPOCH
        if producer is not None:
            if producer.epoch == epoch:
                batches = producer.batches[1 - BATCHES_REMEMBERED :] + batches
            coordinator_epoch = producer.coordinator_epoch
            if producer.transaction_start_offset != NO_OFFSET:
                start_offset = producer.transaction_start_offset
        self._by_id[producer_id] = Producer(
            producer_id, epoch, batches, now_ms, coordinator_epoch, start_offset
        )
        if self._failed:
            self._failed.pop(producer_id, None)
        if start_offset != NO_OFFSET:
            self._in_transaction[producer_id] = start_offset
            if self._guards:
                self._guards.pop(producer_id, None)

    def _end(
        self, producer: Producer | None, header: BatchHeader, marker: EndMarker, offset: int, now_ms: int
    ) -> None:
        same_epoch = producer is not None and producer.epoch == header.producer_epoch
        batches = producer.batches if producer is not None and same_epoch else ()
        producer_id = header.producer_id
        start_offset = self._in_transaction.get(producer_id, NO_OFFSET)
        self._put(
            producer_id,
            Producer(producer_id, header.producer_epoch, batches, now_ms, marker.coordinator_epoch),
        )
        self._guards.pop(producer_id, None)
        if start_offset == NO_OFFSET:
            return
        self._ended.append((offset, start_offset))
        if not marker.committed:
            stable_offset = min(self._in_transaction.values(), default=offset + 1)
            self._aborted.append(AbortedTransaction(producer_id, start_offset, offset, stable_offset))

    def _note(self, producer_id: int, former: Producer | None) -> None:
        """Save the previous state before a batch is staged."""
        marker_offset = self._ended[-1][0] if self._ended else NO_OFFSET
        self._staged.append((producer_id, former, marker_offset))

    def _put(self, producer_id: int, producer: Producer | None) -> None:
        if producer is None:
            self._by_id.pop(producer_id, None)
            self._in_transaction.pop(producer_id, None)
            return
        self._by_id[producer_id] = producer
        if producer.transaction_start_offset != NO_OFFSET:
            self._in_transaction[producer_id] = producer.transaction_start_offset
        elif self._in_transaction:
            self._in_transaction.pop(producer_id, None)


def _last_batch(producer: Producer | None) -> WrittenBatch | None:
    return producer.batches[-1] if producer is not None and producer.batches else None


def _is_next(producer: Producer, header: BatchHeader) -> bool:
    if producer.epoch != header.producer_epoch:
        return header.base_sequence == 0
    batches = producer.batches
    last_sequence = batches[-1].last_sequence if batches else -1
    return header.base_sequence == (last_sequence + 1) & SEQUENCE_MAX


def _duplicate(producer: Producer, header: BatchHeader) -> WrittenBatch:
    """The cached batch that this one duplicates; ApiError if there is none."""
    if producer.epoch == header.producer_epoch:
        for batch in producer.batches:
            if batch.base_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        expected = (producer.last_sequence + 1) & SEQUENCE_MAX
    else:
        expected = 0
    raise ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer.producer_id} sent sequence {header.base_sequence} where {expected} was next",
    )


def _fenced(producer: Producer, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer.producer_id} is at epoch {producer.epoch}, epoch {epoch} is fenced",
    )
