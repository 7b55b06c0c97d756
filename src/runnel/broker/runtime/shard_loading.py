"""Loading of shards: their logs are replayed in the background, in slices between requests."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from runnel.batch.control import read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import NO_PRODUCER, BatchHeader, crc_is_valid, read_header
from runnel.batch.records import read_pairs, unpack_records
from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.shard_driver import ShardDriver
from runnel.coordinator.contract import ReplayContext
from runnel.ports.clock import TimerHandle, Timers
from runnel.schemas.coordinator import CoordinatorRecord, read_record
from runnel.wire import MalformedMessage

_RECORDS_PER_SLICE = 2000
"""Records that are replayed before other requests are served: 10 to 20 ms. Where requests take
all of the time between two slices, larger ones load a shard sooner."""

_BATCH_RECORDS = 2
"""What a batch costs besides its records, in records."""

_READ_BYTES = 1 << 20
"""Bytes of a log that are read at once and held until they are replayed."""

_RETRY_MS = 1000
"""Retry interval after a failed read."""

log = logging.getLogger("runnel.broker")

AnyDriver = TypeVar("AnyDriver", bound=ShardDriver[Any])


@dataclass(slots=True)
class _Load:
    """A shard that is being loaded, and its position."""

    driver: ShardDriver[Any]
    loaded: Callable[[int], None]
    offset: int
    batches: deque[memoryview] = field(default_factory=deque)
    """Read, but not replayed yet."""

    def read(self) -> Promise[Sequence[memoryview]]:
        """Read the next batches in a thread; the log may be compacted between two reads."""
        partition = self.driver.partition
        return partition.read_batches(max(self.offset, partition.log.log_start_offset), _READ_BYTES)

    def replay_slice(self) -> None:
        """Replay some of the batches that were read. Raises CorruptBatch."""
        count = 0
        while self.batches and count < _RECORDS_PER_SLICE:
            batch = self.batches.popleft()
            header = read_header(batch)
            if header.next_offset <= self.offset:
                continue
            _replay(self.driver, header, batch)
            self.offset = header.next_offset
            count += _BATCH_RECORDS + header.record_count

    def replay_deferred(self) -> bool:
        """Replay some of the records that the shard kept; returns whether there are more."""
        try:
            has_more: bool = self.driver.shard.replay_deferred(_RECORDS_PER_SLICE)
        except MalformedMessage as damage:
            log.error("%s: a corrupt record is skipped: %s", self.driver.partition.name, damage)
            return True
        return has_more

    @property
    def is_at_end(self) -> bool:
        return self.offset >= self.driver.partition.log.written_offset


class ShardLoading:
    """Queue of shards to load, one after the other."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._queue: deque[_Load] = deque()
        self._next: TimerHandle | None = None
        self._is_reading = False

    def load(self, driver: AnyDriver, loaded: Callable[[AnyDriver, int], None]) -> None:
        """Load a shard, then call `loaded` with the offset up to which its log was replayed.

        Immediately if the log is empty, else in the background.
        """
        stored = driver.partition.log
        if stored.end_offset == stored.log_start_offset:
            loaded(driver, stored.end_offset)
            return
        self._queue.append(_Load(driver, partial(loaded, driver), stored.log_start_offset))
        self._schedule(0)

    def forget(self, driver: ShardDriver[Any]) -> None:
        """The shard is unloaded: stop loading it."""
        self._queue = deque(load for load in self._queue if load.driver is not driver)

    def stop(self) -> None:
        """Stop loading."""
        self._queue.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _schedule(self, delay_ms: int) -> None:
        if self._queue and self._next is None and not self._is_reading:
            self._next = self._timers.call_later(delay_ms, self._continue)

    def _continue(self) -> None:
        self._next = None
        if not self._queue:
            return
        load = self._queue[0]
        try:
            load.replay_slice()
        except CorruptBatch as failure:
            self._failed(load, failure)
            return
        if load.batches or (load.is_at_end and load.replay_deferred()):
            self._schedule(0)
        elif load.is_at_end:
            self._finish(load)
        else:
            self._is_reading = True
            load.read().on_settled(partial(self._was_read, load))

    def _was_read(self, load: _Load, outcome: Sequence[memoryview] | Exception) -> None:
        self._is_reading = False
        if not self._queue or self._queue[0] is not load:
            # Removed while a thread read its log.
            self._schedule(0)
        elif isinstance(outcome, Exception):
            self._failed(load, outcome)
        elif outcome:
            load.batches.extend(outcome)
            self._schedule(0)
        elif load.replay_deferred():
            self._schedule(0)
        else:
            self._finish(load)

    def _finish(self, load: _Load) -> None:
        self._queue.popleft()
        load.loaded(load.offset)
        self._schedule(0)

    def _failed(self, load: _Load, failure: Exception) -> None:
        # A partially loaded shard would return wrong results.
        log.error("%s: loading the coordinator failed: %s", load.driver.partition.name, failure)
        load.batches.clear()
        self._queue.rotate(-1)
        self._schedule(_RETRY_MS)


def _replay(driver: ShardDriver[Any], header: BatchHeader, batch: memoryview) -> None:
    """Replay a batch. A corrupt one may be skipped if later batches repeat most of its state."""
    try:
        if not crc_is_valid(batch, 0, header):
            # Another replica may have it: that one takes over.
            driver.partition.damaged(f"the batch at {header.base_offset} does not match its checksum")
            raise CorruptBatch("checksum mismatch")
        _replay_sound(driver, header, batch)
    except (CorruptBatch, MalformedMessage) as damage:
        where = f"the batch at {header.base_offset} is corrupt: {damage}"
        if not driver.shard.can_skip_corrupt_batches:
            raise CorruptBatch(where) from damage
        log.error("%s: %s; it is skipped", driver.partition.name, where)


def _replay_sound(driver: ShardDriver[Any], header: BatchHeader, batch: memoryview) -> None:
    shard = driver.shard
    producer_id, producer_epoch = NO_PRODUCER, -1
    if header.is_transactional:
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
    if header.is_control:
        marker = read_end_marker(batch)
        if marker is not None:
            shard.replay_end(producer_id, producer_epoch, marker.committed)
        return
    raw = unpack_records(batch, header)
    for delta, key, value in read_pairs(raw, header.record_count):
        offset = header.base_offset + delta
        if key is None or (producer_id == NO_PRODUCER and shard.defer(key, value, offset)):
            continue
        record = read_record(shard.record_types, key, value)
        if isinstance(record, CoordinatorRecord):
            shard.replay(record.key, record.value, ReplayContext(offset, producer_id, producer_epoch))
        elif record.version is not None and not shard.can_skip_corrupt_batches:
            raise CorruptBatch(f"record at {offset} has an unknown type or version: {record}")
        else:
            name = driver.partition.name
            log.warning("%s: the record at %d has an unknown type or version: %s", name, offset, record)
