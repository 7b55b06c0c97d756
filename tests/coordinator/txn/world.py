"""A driver for transaction shards in tests, with minimal partitions."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from runnel.coordinator.contract import (
    CoordinatorResult,
    Moment,
    NewRecord,
    ReplayContext,
    SetTimer,
    Timer,
    WhenCommitted,
    client_error,
)
from runnel.coordinator.txn.expiry import AllocateProducerId
from runnel.coordinator.txn.markers import WriteMarkers
from runnel.coordinator.txn.settings import TransactionSettings
from runnel.coordinator.txn.shard import TransactionShard
from runnel.coordinator.txn.store import ProducerIdRequired
from runnel.coordinator.txn.transaction import Transaction
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.schemas.coordinator import CoordinatorRecord, encode_key, encode_value, read_record

START_MS = 1_000_000
"""The initial wall-clock time; monotonic time starts at 0."""

LogRecord = tuple[bytes, bytes | None]


@dataclass
class ModelPartition:
    """A partition: its records, open transactions and producer epochs."""

    entries: list[tuple[int, str | bool]] = field(default_factory=list)
    """(producer, value) for data, (producer, is_commit) for a marker."""
    epochs: dict[int, int] = field(default_factory=dict)
    is_open: dict[int, int] = field(default_factory=dict)
    """Producer → first offset of its open transaction."""
    error: ErrorCode | None = None
    """The injected error for markers."""

    def is_open_for(self, producer_id: int, epoch: int) -> bool:
        return producer_id in self.is_open and self.epochs[producer_id] == epoch

    def write(self, producer_id: int, epoch: int, value: str) -> None:
        if epoch < self.epochs.get(producer_id, -1):
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if self.epochs.get(producer_id) == epoch and (producer_id, value) in self.entries:
            # Duplicates are detected by their sequence numbers.
            return
        self.epochs[producer_id] = epoch
        self.is_open.setdefault(producer_id, len(self.entries))
        self.entries.append((producer_id, value))

    def mark(self, producer_id: int, epoch: int, is_commit: bool) -> ErrorCode:
        if self.error is not None:
            return self.error
        if epoch < self.epochs.get(producer_id, -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[producer_id] = epoch
        self.is_open.pop(producer_id, None)
        self.entries.append((producer_id, is_commit))
        return ErrorCode.NONE

    def committed(self) -> list[str]:
        """The records that a read_committed consumer reads."""
        stable = min(self.is_open.values(), default=len(self.entries))
        pending: dict[int, list[tuple[int, str]]] = {}
        seen: list[tuple[int, str]] = []
        for place, (producer_id, entry) in enumerate(self.entries):
            if isinstance(entry, str):
                pending.setdefault(producer_id, []).append((place, entry))
            elif entry:
                seen += pending.pop(producer_id, [])
            else:
                pending.pop(producer_id, None)
        return [value for place, value in sorted(seen) if place < stable]


def stored(transaction: Transaction) -> Transaction:
    """A transaction without soft state."""
    return replace(transaction, last_epoch=-1)


def load(shard: TransactionShard, log: list[LogRecord], first_offset: int = 0) -> TransactionShard:
    """Replay a log, or a part of it, into a shard."""
    for offset, (key, value) in enumerate(log, first_offset):
        record = read_record(shard.record_types, key, value)
        assert isinstance(record, CoordinatorRecord)
        shard.replay(record.key, record.value, ReplayContext(offset))
    return shard


@dataclass
class World:
    """One shard and its driver."""

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    now_ms: int = 0
    jumped_ms: int = 0
    """How far the wall clock has jumped."""
    log: list[LogRecord] = field(default_factory=list)
    log_refuses: ErrorCode | None = None
    commits_wait: bool = False
    """Records are appended, but not committed."""
    markers_wait: bool = False
    partitions: dict[TopicPartition, ModelPartition] = field(default_factory=dict)
    on_record: Callable[[CoordinatorRecord], None] = lambda record: None
    last_producer_id: int = 0

    def __post_init__(self) -> None:
        self.shard = TransactionShard(self.settings)
        self.twin = TransactionShard(self.settings)
        self.timers: dict[Timer, int] = {}
        self.queue: list[tuple[int, int, Timer]] = []
        self.order = 0
        self.awaited: list[Any] = []
        self.committed_length = 0
        self.unsent: list[WriteMarkers] = []
        self.carry_out(self.shard.loaded(self.now()))

    def now(self) -> Moment:
        return Moment(START_MS + self.now_ms + self.jumped_ms, self.now_ms)

    def partition(self, name: TopicPartition) -> ModelPartition:
        return self.partitions.setdefault(name, ModelPartition())

    def ask(self, decide: Callable[[], CoordinatorResult[Any]]) -> Any:
        """The response or error of a request."""
        while True:
            try:
                decision = decide()
            except ProducerIdRequired:
                self.add_producer_id()
                continue
            error = self.carry_out(decision)
            return decision.response if error is None else error

    def add_producer_id(self) -> None:
        self.last_producer_id += 1
        self.shard.add_producer_id(self.last_producer_id)

    def carry_out(self, decision: CoordinatorResult[Any]) -> ErrorCode | None:
        """Carry out a result like a driver; returns the error for the caller."""
        tokens = [effect.token for effect in decision.effects if isinstance(effect, WhenCommitted)]
        for effect in decision.effects:
            match effect:
                case SetTimer(timer, delay_ms):
                    self.order += 1
                    self.timers[timer] = self.order
                    heapq.heappush(self.queue, (self.now_ms + delay_ms, self.order, timer))
                case WriteMarkers():
                    self.unsent.append(effect)
                case AllocateProducerId():
                    self.add_producer_id()
        error = None
        if decision.records and self.log_refuses is not None:
            error = client_error(self.log_refuses)
        elif decision.records:
            self._append(decision.records)
        if decision.continuation is not None:
            self.carry_out(self.shard.resume(decision.continuation, error, self.now()))
        if error is None:
            self.awaited += tokens
        self.go_on()
        return error

    def go_on(self) -> None:
        """Commit appended records and send markers, unless that is suspended."""
        if not self.commits_wait:
            self.committed_length = len(self.log)
        while not self.commits_wait and self.awaited:
            self.carry_out(self.shard.committed(self.awaited.pop(0), self.now()))
        while not self.markers_wait and self.unsent:
            order = self.unsent.pop(0)
            for name in order.partitions:
                self._mark(order, name)

    def wait(self, duration_ms: int) -> None:
        """Advance the time and fire due timers."""
        end_ms = self.now_ms + duration_ms
        while self.queue and self.queue[0][0] <= end_ms:
            due_ms, order, timer = heapq.heappop(self.queue)
            if self.timers.get(timer) == order:
                del self.timers[timer]
                self.now_ms = due_ms
                self.carry_out(self.shard.fired(timer, self.now()))
        self.now_ms = end_ms

    def reload(self, *, loses_tail: bool = False) -> None:
        """Fail over to another coordinator, optionally losing uncommitted records."""
        if loses_tail:
            del self.log[self.committed_length :]
        self.timers.clear()
        self.awaited.clear()
        self.unsent.clear()
        self.shard = load(TransactionShard(self.settings), self.log)
        self.twin = load(TransactionShard(self.settings), self.log)
        self.carry_out(self.shard.loaded(self.now()))

    def _mark(self, order: WriteMarkers, name: TopicPartition) -> None:
        ended = order.ended
        error = self.partition(name).mark(ended.producer_id, ended.epoch, order.is_commit)
        self.carry_out(self.shard.marked(ended, name, error, self.now()))

    def _append(self, records: list[NewRecord]) -> None:
        first_offset = len(self.log)
        for offset, record in enumerate(records, first_offset):
            value = None if record.value is None else encode_value(record.value, record.version)
            self.log.append((encode_key(record.key), value))
            self.shard.replay(record.key, record.value, ReplayContext(offset))
            self.on_record(CoordinatorRecord(record.key, record.value))
        load(self.twin, self.log[first_offset:], first_offset)
        live, twin = self.shard.store, self.twin.store
        # A shard that loads the log must have the same durable state.
        assert {name: stored(known) for name, known in live.transactions.items()} == {
            name: stored(known) for name, known in twin.transactions.items()
        }
        assert live.ongoing.keys() == twin.ongoing.keys()
        assert live.prepared.keys() == twin.prepared.keys()
