"""What a pass of the cleaner retains of each batch.

    records with a later one of the same key ─► removed
    tombstones ───────────────────────────────► removed after their delete horizon, set by the first pass
    records of aborted transactions ──────────► removed
    end markers ──────────────────────────────► the same, set once all their records are removed
    a batch left without records ─────────────► removed, unless it has the last sequence of its producer

The bytes of retained records are unchanged, because their deltas are relative to the base of the batch.
Timestamps are rewritten only where a delete horizon is set, which replaces the base timestamp (KIP-534).

The functions are generators that yield regularly, so that the caller can serve other work.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace

from runnel.batch.compression import Compression, compress
from runnel.batch.control import EndMarker, read_end_marker
from runnel.batch.header import COMPRESSION_MASK, DELETE_HORIZON, BatchHeader, Buffer, seal
from runnel.batch.records import RecordSpan, unpack_records, walk_records
from runnel.batch.varint import encode_varint, read_varint
from runnel.log.aborted import AbortedTransaction
from runnel.log.compaction import KeyMap
from runnel.log.producers import Producer

RECORDS_PER_STEP = 32
"""Less than a tenth of a millisecond of work."""

Step = Generator[None, None, None]


class TransactionWalk:
    """The transactions in progress while batches are read in offset order."""

    __slots__ = ("_aborted", "_in_progress", "_open")

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._in_progress: dict[int, AbortedTransaction] = {}
        self._open: set[int] = set()
        """Producers with a batch since their last marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Does this data batch belong to an aborted transaction?"""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._open.add(header.producer_id)
        transaction = self._in_progress.get(header.producer_id)
        return transaction is not None and header.base_offset <= transaction.last_offset

    def is_discardable(self, header: BatchHeader) -> bool:
        """Have all records of this marker's transaction been removed?"""
        self._begin_up_to(header.last_offset)
        self._in_progress.pop(header.producer_id, None)
        if header.producer_id in self._open:
            self._open.discard(header.producer_id)
            return False
        return True

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            transaction = self._aborted.pop()
            self._in_progress[transaction.producer_id] = transaction


def map_keys(keys: KeyMap, batch: Buffer, header: BatchHeader, transactions: TransactionWalk) -> Step:
    """Map each key of a dirty batch to its last offset, in steps."""
    if header.is_control:
        transactions.is_discardable(header)
    elif not transactions.is_aborted(header):
        raw = unpack_records(batch, header)
        base_offset = header.base_offset
        for count, span in enumerate(walk_records(raw, header.record_count)):
            _, _, _, offset_delta, start, length, _, _ = span
            if length >= 0:
                keys.put(raw[start : start + length], base_offset + offset_delta)
            if count % RECORDS_PER_STEP == 0:
                yield
    keys.end_offset = header.next_offset


@dataclass(slots=True)
class BatchFilter:
    """One pass over the segments below `keys.end_offset`, batch by batch."""

    keys: KeyMap
    producers: dict[int, Producer]
    """The producer state of the log when the pass started."""
    now_ms: int
    delete_retention_ms: int
    transactions: TransactionWalk = field(default_factory=TransactionWalk)
    discardable_markers: set[int] = field(default_factory=set)
    """Offsets of the end markers whose transactions have no records left."""

    def kept(self, batch: Buffer, header: BatchHeader) -> Generator[None, None, Buffer | None]:
        """The retained batch, computed in steps: unchanged, smaller, or None."""
        if header.base_offset >= self.keys.end_offset:
            return batch
        if header.is_control:
            return self._kept_control(batch, header)
        is_aborted = self.transactions.is_aborted(header)
        if header.record_count == 0 or is_aborted:
            return self._emptied(header)
        raw = unpack_records(batch, header)
        spans: list[RecordSpan] = []
        has_tombstone = False
        for count, span in enumerate(walk_records(raw, header.record_count)):
            if self._stays(raw, header, span):
                spans.append(span)
                has_tombstone |= span[7] < 0
            if count % RECORDS_PER_STEP == 0:
                yield
        if not spans:
            return self._emptied(header)
        sets_horizon = has_tombstone and header.delete_horizon_ms is None
        if len(spans) == header.record_count and not sets_horizon:
            return batch
        return self._rewritten(raw, header, spans, sets_horizon)

    def _stays(self, raw: bytes, header: BatchHeader, span: RecordSpan) -> bool:
        _, _, _, offset_delta, key_start, key_length, _, value_length = span
        if key_length < 0:
            # Written before the topic was compacted: as in Kafka, records without a key are removed.
            return False
        if value_length < 0:
            horizon_ms = header.delete_horizon_ms
            if horizon_ms is not None and horizon_ms <= self.now_ms:
                return False
        key = raw[key_start : key_start + key_length]
        return self.keys.is_latest(key, header.base_offset + offset_delta)

    def _kept_control(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        marker: EndMarker | None = read_end_marker(batch) if header.record_count else None
        if marker is None:
            return self._emptied(header) if header.record_count == 0 else batch
        if not self.transactions.is_discardable(header):
            return batch
        self.discardable_markers.add(header.base_offset)
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            raw = unpack_records(batch, header)
            return self._rewritten(raw, header, list(walk_records(raw, header.record_count)), True)
        return self._emptied(header) if horizon_ms <= self.now_ms else batch

    def _emptied(self, header: BatchHeader) -> Buffer | None:
        """An empty batch if this one has the last sequence of an active producer, or None."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None
        if producer.batches:
            is_last = producer.last_offset == header.last_offset
        else:
            is_last = header.is_control and header.producer_epoch == producer.epoch
        return bare_batch(header) if is_last else None

    def _rewritten(
        self, raw: bytes, header: BatchHeader, spans: list[RecordSpan], sets_horizon: bool
    ) -> bytearray:
        kept = replace(header, record_count=len(spans))
        if not header.uses_log_append_time:
            kept.max_timestamp = header.base_timestamp + max(span[2] for span in spans)
        if sets_horizon:
            kept.attributes |= DELETE_HORIZON
            kept.base_timestamp = self.now_ms + self.delete_retention_ms
            shift = header.base_timestamp - kept.base_timestamp
            payload = b"".join(_with_shifted_time(raw, span, shift) for span in spans)
        else:
            payload = b"".join(raw[span[0] : span[1]] for span in spans)
        return seal(kept, compress(payload, Compression(header.compression)))


def bare_batch(header: BatchHeader) -> bytearray:
    """An empty batch with the offsets and sequences of this one."""
    return seal(replace(header, record_count=0, attributes=header.attributes & ~COMPRESSION_MASK), b"")


def _with_shifted_time(raw: bytes, span: RecordSpan, shift: int) -> bytes:
    """The record with another timestamp delta."""
    start, end, timestamp_delta, *_ = span
    _, body_start = read_varint(raw, start)
    _, rest_start = read_varint(raw, body_start + 1)
    body = raw[body_start : body_start + 1] + encode_varint(timestamp_delta + shift) + raw[rest_start:end]
    return encode_varint(len(body)) + body
