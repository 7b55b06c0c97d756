"""Loading shards: replay their logs in the background, a slice at a time, so that requests go between."""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import read_header
from runnel.batch.records import iterate_records
from runnel.broker.shard_driver import ShardDriver
from runnel.ports.clock import TimerHandle, Timers
from runnel.schemas.coordinator import CoordinatorRecord, read_record
from runnel.wire import MalformedMessage

_RECORDS_PER_SLICE = 1000
"""About five milliseconds."""

log = logging.getLogger("runnel.broker")

AnyDriver = TypeVar("AnyDriver", bound=ShardDriver[Any])


class ShardLoading:
    """Shards that wait for their turn to be loaded, one after the other."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._queue: deque[tuple[Iterator[int], Callable[[], None]]] = deque()
        self._next: TimerHandle | None = None

    def load(self, driver: AnyDriver, loaded: Callable[[AnyDriver], None]) -> None:
        """Load a shard, then call `loaded`: at once if its log is empty, from the background otherwise."""
        stored = driver.partition.log
        if stored.end_offset == stored.log_start_offset:
            loaded(driver)
            return
        self._queue.append((_replay(driver), partial(loaded, driver)))
        if self._next is None:
            self._next = self._timers.call_later(0, self._go_on)

    def stop(self) -> None:
        """Forget what is not loaded yet."""
        self._queue.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _go_on(self) -> None:
        budget = _RECORDS_PER_SLICE
        while self._queue and budget > 0:
            batches, loaded = self._queue[0]
            replayed = next(batches, None)
            if replayed is None:
                self._queue.popleft()
                loaded()
            else:
                budget -= replayed
        self._next = self._timers.call_later(0, self._go_on) if self._queue else None


def _replay(driver: ShardDriver[Any]) -> Iterator[int]:
    """Replay a shard's log batch by batch; yields the number of records in each."""
    stored = driver.partition.log
    for batch in stored.batches(stored.log_start_offset, stored.end_offset):
        header = read_header(batch)
        if not header.is_control:
            try:
                for record in iterate_records(batch):
                    _replay_record(driver, record.offset, record.key, record.value)
            except CorruptBatch as damage:
                log.error(
                    "%s: the batch at %d is skipped: %s", driver.partition.name, header.base_offset, damage
                )
        yield header.record_count


def _replay_record(driver: ShardDriver[Any], offset: int, key: bytes | None, value: bytes | None) -> None:
    if key is None:
        return
    try:
        record = read_record(driver.shard.record_types, key, value)
    except MalformedMessage as damage:
        # One record that cannot be read must not make every group of the partition unavailable.
        log.error("%s: the record at %d is skipped: %s", driver.partition.name, offset, damage)
        return
    if isinstance(record, CoordinatorRecord):
        driver.shard.replay(record.key, record.value)
    else:
        log.warning("%s: the record at %d is of a newer release: %s", driver.partition.name, offset, record)
