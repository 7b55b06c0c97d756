"""Loading shards: replay their logs in the background, a slice at a time, so that requests go between."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from runnel.batch.control import read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import NO_PRODUCER, BatchHeader, crc_is_valid, read_header
from runnel.batch.records import iterate_records
from runnel.broker.runtime.shard_driver import ShardDriver
from runnel.coordinator.contract import ReplayContext
from runnel.model.errors import ApiError
from runnel.ports.clock import TimerHandle, Timers
from runnel.schemas.coordinator import CoordinatorRecord, read_record
from runnel.wire import MalformedMessage

_RECORDS_PER_SLICE = 500
"""About five milliseconds."""

_RETRY_MS = 1000
"""How long until a disk that would not give the log is asked again."""

log = logging.getLogger("runnel.broker")

AnyDriver = TypeVar("AnyDriver", bound=ShardDriver[Any])


@dataclass(slots=True)
class _Load:
    """A shard that is being loaded, and how far."""

    driver: ShardDriver[Any]
    loaded: Callable[[], None]
    offset: int

    def go_on(self) -> bool:
        """Replay one slice; whether that was the last. Raises what the disk says if it will not give it."""
        stored = self.driver.partition.log
        # Asked for anew each time, since between two slices the log may be compacted under our feet.
        count = 0
        for batch in stored.batches(max(self.offset, stored.log_start_offset), stored.end_offset):
            header = read_header(batch)
            _replay(self.driver, header, batch)
            self.offset = header.next_offset
            count += header.record_count
            if count >= _RECORDS_PER_SLICE:
                return False
        return True


class ShardLoading:
    """Shards that wait for their turn to be loaded, one after the other."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._queue: deque[_Load] = deque()
        self._next: TimerHandle | None = None

    def load(self, driver: AnyDriver, loaded: Callable[[AnyDriver], None]) -> None:
        """Load a shard, then call `loaded`: at once if its log is empty, from the background otherwise."""
        stored = driver.partition.log
        if stored.end_offset == stored.log_start_offset:
            loaded(driver)
            return
        self._queue.append(_Load(driver, lambda: loaded(driver), stored.log_start_offset))
        if self._next is None:
            self._next = self._timers.call_later(0, self._go_on)

    def forget(self, driver: ShardDriver[Any]) -> None:
        """The shard's partition is gone: do not go on with it."""
        self._queue = deque(load for load in self._queue if load.driver is not driver)

    def stop(self) -> None:
        """Forget what is not loaded yet."""
        self._queue.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _go_on(self) -> None:
        self._next = None
        if not self._queue:
            return
        load, delay_ms = self._queue[0], 0
        try:
            if load.go_on():
                self._queue.popleft()
                load.loaded()
        except (ApiError, OSError, CorruptBatch) as failure:
            # One half would answer as if the other had never been: better that none answers.
            log.error("%s: the coordinator cannot load it: %s", load.driver.partition.name, failure)
            self._queue.rotate(-1)
            delay_ms = _RETRY_MS
        if self._queue:
            self._next = self._timers.call_later(delay_ms, self._go_on)


def _replay(driver: ShardDriver[Any], header: BatchHeader, batch: memoryview) -> None:
    """Replay a batch. A damaged one may be skipped where later ones tell most of what it told again."""
    try:
        if not crc_is_valid(batch, 0, header):
            raise CorruptBatch("its checksum is wrong")
        _replay_sound(driver, header, batch)
    except (CorruptBatch, MalformedMessage) as damage:
        where = f"the batch at {header.base_offset} is damaged: {damage}"
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
    for stored in iterate_records(batch):
        if stored.key is None:
            continue
        record = read_record(shard.record_types, stored.key, stored.value)
        if isinstance(record, CoordinatorRecord):
            place = ReplayContext(stored.offset, producer_id, producer_epoch)
            shard.replay(record.key, record.value, place)
        elif record.version is not None and not shard.can_skip_corrupt_batches:
            raise CorruptBatch(f"its record at {stored.offset} is of another release: {record}")
        else:
            name = driver.partition.name
            log.warning("%s: the record at %d is of another release: %s", name, stored.offset, record)
