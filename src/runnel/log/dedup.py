"""The idempotency keys that a partition remembers: a record that is sent again is not appended again.

    produce ─► key of the batch? ─no──────────────────────────────► append
                    │ yes
                    ▼
               KnownKeys.find ─► unknown ─► append, then `add` ───► acknowledged when it is committed
                    ├─► same record ─► nothing is appended ───────► acknowledged with the first offset, when
                    │                                               that is committed
                    ├─► another record with the key ──────────────► DUPLICATE_RESOURCE
                    └─► too many keys ────────────────────────────► THROTTLING_QUOTA_EXCEEDED

Only the leader of a partition has this table. It is a view of the end of its log, from which it is rebuilt:

* A key is added when its record is staged, so that a duplicate in the same request is found as well. If the
  write fails, or the log is truncated, `truncate` removes it with the record.
* A duplicate waits for the same offset as the first one: it is never acknowledged before, and fails with it.
* A new leader, also one that was restarted, reads the log up to its end, not only to the high watermark: a
  record that is not committed yet may be soon. Until it has, records with a key are refused with an error
  that clients retry; others are not affected. A follower has no table, so there is none to keep in step.
* The time of an append is in the log: the leader stamps a record that has a key (LogAppendTime, whatever the
  topic has). Where to start reading is therefore found by the time index. A running leader uses its monotonic
  clock. Across leaders, the wall clocks of brokers may differ by DEDUP_CLOCK_TOLERANCE_MS: for so much longer
  are keys remembered that were read from the log. Only a clock that is set forward by more than that, and a
  change of the leader within the window, make a key be forgotten early.
* Memory is bounded by `dedup.keys.max`: beyond it, records with new keys are refused. Nothing is forgotten
  silently. There are never more than DEDUP_KEYS_MAX keys within a window, so that a new leader, which keeps
  as many, the latest ones, has all of them.
* Compaction leaves records alone while their keys are remembered (`LogConfig.compaction_lag_ms`), and
  retention.ms may not be shorter than the window. What retention.bytes and DeleteRecords remove, a new leader
  does not know.

Batches of idempotent producers are not concerned: they may not contain a key (`idempotency.py`), and a retry
is found by its sequence numbers as ever.
"""

from collections import deque

from runnel.log.idempotency import KeyedRecord
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import DEDUP_KEYS_MAX

EXPIRED_AT_ONCE = 1_000
"""Keys that one append frees: after a pause, all of them may have expired."""


class KnownRecord:
    """A record that is in the log, or about to be written."""

    __slots__ = ("append_time_ms", "fingerprint", "key", "offset", "seen_ms")

    def __init__(self, record: KeyedRecord, offset: int, append_time_ms: int, seen_ms: int) -> None:
        self.key, self.fingerprint = record
        self.offset = offset
        self.append_time_ms = append_time_ms
        """The timestamp of the record."""
        self.seen_ms = seen_ms
        """When it was appended, by the monotonic clock of this process."""


class KnownKeys:
    """The keys of one partition, oldest first. Times are those of a monotonic clock."""

    __slots__ = ("_by_key", "_in_order", "_keys_max", "_window_ms")

    def __init__(self, window_ms: int, keys_max: int) -> None:
        self._by_key: dict[bytes, KnownRecord] = {}
        self._in_order: deque[KnownRecord] = deque()
        """By offset. A key that was used again after its window may be here twice."""
        self._window_ms, self._keys_max = window_ms, keys_max

    def __len__(self) -> int:
        return len(self._in_order)

    def configure(self, window_ms: int, keys_max: int) -> None:
        """The settings have changed. With a longer window, what has expired stays forgotten."""
        self._window_ms, self._keys_max = window_ms, keys_max

    def find(self, record: KeyedRecord, now_ms: int) -> KnownRecord | None:
        """The record with this key, if it is the same; None if the key is new.

        Raises ApiError: DUPLICATE_RESOURCE for another record, THROTTLING_QUOTA_EXCEEDED for too many keys.
        """
        self._expire(now_ms)
        known = self._by_key.get(record.key)
        if known is not None and not self._has_expired(known, now_ms):
            if known.fingerprint != record.fingerprint:
                why = f"the idempotency key is that of another record, at offset {known.offset}"
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, why)
            return known
        if len(self._in_order) >= self._keys_max and not self._has_expired(self._in_order[0], now_ms):
            why = f"more than dedup.keys.max = {self._keys_max} idempotency keys in dedup.window.ms"
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why)
        return None

    def add(self, record: KeyedRecord, offset: int, append_time_ms: int, seen_ms: int) -> None:
        """A record with a new key was staged, or found in the log. Offsets ascend."""
        known = KnownRecord(record, offset, append_time_ms, seen_ms)
        self._by_key[known.key] = known
        self._in_order.append(known)
        if len(self._in_order) > DEDUP_KEYS_MAX:
            # Found in the log, where there are older ones than the window allows.
            self._forget(self._in_order.popleft())

    def truncate(self, end_offset: int) -> None:
        """The log ends at this offset: records from there on were not written, or removed."""
        in_order = self._in_order
        while in_order and in_order[-1].offset >= end_offset:
            self._forget(in_order.pop())

    def _expire(self, now_ms: int) -> None:
        in_order = self._in_order
        for _ in range(EXPIRED_AT_ONCE):
            if not in_order or not self._has_expired(in_order[0], now_ms):
                return
            self._forget(in_order.popleft())

    def _has_expired(self, known: KnownRecord, now_ms: int) -> bool:
        return known.seen_ms + self._window_ms <= now_ms

    def _forget(self, known: KnownRecord) -> None:
        if self._by_key.get(known.key) is known:
            del self._by_key[known.key]
