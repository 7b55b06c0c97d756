"""A group shard in a world of plain values: a list for a log, a number for a clock."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runnel.coordinator.contract import (
    Answer,
    CancelTimer,
    Decision,
    Moment,
    Place,
    SetTimer,
    Timer,
    client_error,
)
from runnel.coordinator.group.caller import Caller
from runnel.coordinator.group.group import Group
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.shard import GroupShard
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID
from runnel.schemas.coordinator import CoordinatorRecord, encode_key, encode_value, read_record
from runnel.schemas.group import GroupMetadataKey

START_MS = 1_000_000
"""The wall clock at the beginning; the steady clock begins at 0."""

LogRecord = tuple[bytes, bytes | None]


def durable(group: Group) -> object:
    """What of a group must survive: its last stored generation and its offsets."""
    members = [
        (
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.metadata(group.protocol),
            member.assignment,
        )
        for member in group.members.values()
    ]
    head = (
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        group.state_since_ms,
    )
    return head, members, group.offsets


def load(shard: GroupShard, log: list[LogRecord], first_offset: int = 0) -> GroupShard:
    """Replay a log, or a part of it, into a shard."""
    for offset, (key, value) in enumerate(log, first_offset):
        record = read_record(shard.record_types, key, value)
        assert isinstance(record, CoordinatorRecord)
        shard.replay(record.key, record.value, Place(offset))
    return shard


@dataclass
class World:
    """One shard, driven by hand."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    now_ms: int = 0
    log: list[LogRecord] = field(default_factory=list)
    log_refuses: ErrorCode | None = None
    answers: dict[int, Any] = field(default_factory=dict)
    """Waiter → the response that it got."""
    on_record: Callable[[CoordinatorRecord], None] = lambda record: None
    last_waiter: int = 0
    last_unique: int = 0

    def __post_init__(self) -> None:
        self.shard = GroupShard(self.settings)
        self.twin = GroupShard(self.settings)
        self.timers: dict[Timer, int] = {}
        self.queue: list[tuple[int, int, Timer]] = []
        self.order = 0
        self.carry_out(self.shard.loaded(self.now()))

    def now(self) -> Moment:
        return Moment(START_MS + self.now_ms, self.now_ms)

    def caller(self, client: str = "c", version: int = 9) -> Caller:
        self.last_waiter += 1
        self.last_unique += 1
        return Caller(client, f"/{client}.host", version, self.last_waiter, str(self.last_unique))

    def carry_out(self, decision: Decision[Any]) -> ErrorCode | None:
        """Do what a driver does; the error that the caller would hear of."""
        for effect in decision.effects:
            match effect:
                case SetTimer(timer, delay_ms):
                    assert delay_ms >= 0, "a timer cannot have run out before it is set"
                    self.order += 1
                    self.timers[timer] = self.order
                    heapq.heappush(self.queue, (self.now_ms + delay_ms, self.order, timer))
                case CancelTimer(timer):
                    self.timers.pop(timer, None)
                case Answer(waiter, response):
                    assert waiter not in self.answers, f"#{waiter} is answered twice"
                    self.answers[waiter] = response
        error = None
        if decision.records and self.log_refuses is not None:
            error = client_error(self.log_refuses)
        elif decision.records:
            self._append(decision)
        if decision.then is not None:
            self.carry_out(self.shard.resume(decision.then, error, self.now()))
        return error

    def decide(self, decision: Decision[Any]) -> Any:
        """The reply to a request, or the error code that replaces it; None if it is parked."""
        error = self.carry_out(decision)
        return decision.reply if error is None else error

    def wait(self, duration_ms: int) -> None:
        """Let time pass, firing what is due on the way."""
        end_ms = self.now_ms + duration_ms
        while self.queue and self.queue[0][0] <= end_ms:
            due_ms, order, timer = heapq.heappop(self.queue)
            if self.timers.get(timer) == order:
                del self.timers[timer]
                self.now_ms = due_ms
                self.carry_out(self.shard.fired(timer, self.now()))
        self.now_ms = end_ms

    def reload(self) -> None:
        """The coordinator dies; another one takes up its log. Whoever waits hears of it."""
        for effect in self.shard.unloaded().effects:
            assert isinstance(effect, Answer)
            self.answers[effect.waiter] = effect.response
        self.timers.clear()
        self.shard = load(GroupShard(self.settings), self.log)
        self.twin = load(GroupShard(self.settings), self.log)
        self.carry_out(self.shard.loaded(self.now()))

    def id_of(self, topic: str) -> bytes:
        return NO_ID

    def _append(self, decision: Decision[Any]) -> None:
        written: list[LogRecord] = []
        first_offset = len(self.log)
        for offset, record in enumerate(decision.records, first_offset):
            value = None if record.value is None else encode_value(record.value, record.version)
            written.append((encode_key(record.key), value))
            self.shard.replay(record.key, record.value, Place(offset))
            self.on_record(CoordinatorRecord(record.key, record.value))
        self.log += written
        load(self.twin, written, first_offset)
        for record in decision.records:
            self._compare(record.key)

    def _compare(self, key: Any) -> None:
        """A shard that loads the log knows all that the one which wrote it must not forget."""
        live, stored = self.shard.groups.get(key.group), self.twin.groups.get(key.group)
        assert (live is None) == (stored is None), f"{key.group} lives in one shard only"
        if live is None or stored is None:
            return
        assert live.offsets == stored.offsets
        if isinstance(key, GroupMetadataKey):
            assert durable(live) == durable(stored)
