"""The idempotency keys of a partition that this node leads: `runnel.log.dedup` decides, this drives it.

begin ─► find_timestamp ─► find_keys, a part of the log after the other, in threads ─► the table is complete
            │ truncated, failed
            └──► begun again by the next record with a key
"""

import logging
from collections.abc import Sequence
from functools import partial

from runnel.broker.runtime.stored_log import StoredLog
from runnel.log.dedup import KnownKeys
from runnel.log.idempotency import FoundKeys, keyed_record
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.log_config import DEDUP_CLOCK_TOLERANCE_MS
from runnel.ports.clock import Clock
from runnel.ports.disk import Origin, Staged, TimestampedOffset

logger = logging.getLogger("runnel.broker")

READ_BYTES = 1024 * 1024
"""Bytes of the log that are read at a time: at most ten thousand keys, milliseconds of the event loop."""


class _Reading:
    """One attempt to read the keys of the log."""

    __slots__ = ("end_offset", "known", "now_ms", "offset", "steady_ms")

    def __init__(self, known: KnownKeys, end_offset: int, now_ms: int, steady_ms: int) -> None:
        self.known = known
        self.offset = 0
        """The next offset to be read."""
        self.end_offset = end_offset
        self.now_ms = now_ms
        """When it began, by the wall clock."""
        self.steady_ms = steady_ms
        """When it began, by the monotonic clock."""


class Deduplication:
    """Stages batches of clients for a topic with `dedup.window.ms`."""

    __slots__ = ("_clock", "_known", "_reading", "_stored")

    def __init__(self, stored: StoredLog, clock: Clock) -> None:
        self._stored = stored
        self._clock = clock
        self._known: KnownKeys | None = None
        """None until the log is read."""
        self._reading: _Reading | None = None
        self._begin()

    def close(self) -> None:
        """This node does not lead any more, or the topic does without."""
        self._known = self._reading = None

    def configured(self) -> None:
        """The settings of the topic have changed."""
        config = self._stored.log.config
        known = self._known if self._reading is None else self._reading.known
        if known is not None:
            known.configure(config.dedup_window_ms, config.dedup_keys_max)

    def truncated(self, end_offset: int) -> None:
        """The log ends at this offset, because a write failed or it was truncated."""
        if self._known is not None:
            self._known.truncate(end_offset)
        if self._reading is not None and end_offset < self._reading.end_offset:
            # What was read may be gone.
            self._reading = None

    def stage(
        self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> Staged:
        """`PartitionLog.stage`; a duplicate gets the offset of the first record with its key."""
        log = self._stored.log
        record = keyed_record(records) if origin is Origin.CLIENT else None
        if record is None:
            return log.stage(records, leader_epoch, now_ms, origin)
        known = self._known
        if known is None:
            self._begin()
            known = self._known
        if known is None:
            why = f"{self._stored.name}: its idempotency keys are being read"
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, why)
        steady_ms = self._clock.monotonic_ms()
        first = known.find(record, steady_ms)
        if first is not None:
            offset, start_offset = first.offset, log.log_start_offset
            return Staged(offset, offset, first.append_time_ms, start_offset, duplicate=True)
        staged = log.stage(records, leader_epoch, now_ms, Origin.KEYED)
        known.add(record, staged.base_offset, staged.log_append_time_ms, steady_ms)
        return staged

    def stage_all(
        self, batches: Sequence[memoryview], leader_epoch: int, now_ms: int
    ) -> list[Staged | ApiError]:
        """`stage` for several batches; a rejected one does not affect the others."""
        outcomes: list[Staged | ApiError] = []
        for records in batches:
            try:
                outcomes.append(self.stage(records, leader_epoch, now_ms))
            except ApiError as error:
                outcomes.append(error)
        return outcomes

    # -- reading the log

    def _begin(self) -> None:
        """Read the keys of the log, unless that has begun."""
        log, clock = self._stored.log, self._clock
        end_offset = log.end_offset
        if self._reading is not None or log.written_offset < end_offset:
            # What is not written yet cannot be read, and may have keys.
            return
        config = log.config
        known = KnownKeys(config.dedup_window_ms, config.dedup_keys_max)
        if log.log_start_offset >= end_offset:
            self._known = known
            return
        reading = self._reading = _Reading(known, end_offset, clock.now_ms(), clock.monotonic_ms())
        since_ms = reading.now_ms - config.dedup_window_ms - DEDUP_CLOCK_TOLERANCE_MS
        start = self._stored.find_timestamp(max(since_ms, 0), end_offset)
        start.on_settled(partial(self._found_start, reading))

    def _found_start(self, reading: _Reading, found: TimestampedOffset | Exception | None) -> None:
        if self._reading is not reading:
            return
        if isinstance(found, Exception):
            self._failed(found)
            return
        reading.offset = reading.end_offset if found is None else found.offset
        self._read_on(reading)

    def _read_on(self, reading: _Reading) -> None:
        log = self._stored.log
        offset = max(reading.offset, log.log_start_offset)
        if offset >= reading.end_offset:
            self._known, self._reading = reading.known, None
            return
        try:
            part = self._stored.load(log.find_keys(offset, READ_BYTES, reading.end_offset))
        except ApiError as error:
            self._failed(error)
        else:
            part.on_settled(partial(self._found_keys, reading))

    def _found_keys(self, reading: _Reading, found: FoundKeys | Exception) -> None:
        if self._reading is not reading:
            return
        if isinstance(found, Exception):
            self._failed(found)
            return
        for stored in found.keys:
            # Rather remembered for too long than not long enough.
            age_ms = max(reading.now_ms - stored.append_time_ms - DEDUP_CLOCK_TOLERANCE_MS, 0)
            reading.known.add(stored.record, stored.offset, stored.append_time_ms, reading.steady_ms - age_ms)
        reading.offset = found.next_offset
        self._read_on(reading)

    def _failed(self, error: Exception) -> None:
        """The next record with a key begins again."""
        self._reading = None
        logger.warning("%s: its idempotency keys could not be read: %s", self._stored.name, error)
