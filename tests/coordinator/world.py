"""A driver for group shards in tests: the log is a list, the clock a number."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from runnel.coordinator.contract import (
    CancelTimer,
    CoordinatorResult,
    Moment,
    NewRecord,
    ProducerIdAndEpoch,
    ReplayContext,
    Respond,
    SetTimer,
    Timer,
    client_error,
)
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.records import CONSUMER_KEYS
from runnel.coordinator.group.context import RequestContext
from runnel.coordinator.group.group import Group
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.shard import GroupShard
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID
from runnel.schemas.coordinator import CoordinatorRecord, encode_key, encode_value, read_record
from runnel.schemas.group import GroupMetadataKey
from tests.coordinator.cluster import FakeCluster

START_MS = 1_000_000
"""The initial wall-clock time; monotonic time starts at 0."""


class Logged(NamedTuple):
    """A record of the log; without a key it is a transaction marker."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer: ProducerIdAndEpoch | None = None
    is_commit: bool = False


def logged(offset: int, record: NewRecord, producer: ProducerIdAndEpoch | None = None) -> Logged:
    value = None if record.value is None else encode_value(record.value, record.version)
    return Logged(offset, encode_key(record.key), value, producer)


def durable(shard: GroupShard, group_id: str) -> object:
    """The durable state of a group: its last stored generation and its offsets."""
    # A group with only tombstones may still exist, but has no durable state.
    group = shard.groups.get(group_id, Group(group_id))
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
    return head, members, shard.offsets.of(group_id)


def kept(group: ConsumerGroup | None) -> ConsumerGroup | None:
    """A consumer group without soft state."""
    return None if group is None else replace(group, checked_version=-1, rejoining=set())


def load(shard: GroupShard, log: list[Logged], *, defers: bool = False) -> GroupShard:
    """Replay a log, or a part of it, into a shard."""
    for entry in log:
        key = entry.key if defers and entry.producer is None else None
        if key is not None and shard.defer(key, entry.value, entry.offset):
            continue
        producer = entry.producer or ProducerIdAndEpoch(-1, -1)
        if entry.key is None:
            shard.replay_end(*producer, entry.is_commit)
            continue
        record = read_record(shard.record_types, entry.key, entry.value)
        assert isinstance(record, CoordinatorRecord)
        shard.replay(record.key, record.value, ReplayContext(entry.offset, *producer))
    while shard.replay_deferred(2):
        pass
    return shard


@dataclass
class World:
    """One shard and its driver."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    cluster: FakeCluster = field(default_factory=FakeCluster)
    now_ms: int = 0
    log: list[Logged] = field(default_factory=list)
    log_refuses: ErrorCode | None = None
    answers: dict[int, Any] = field(default_factory=dict)
    """Waiter → response."""
    on_record: Callable[[CoordinatorRecord], None] = lambda record: None
    last_waiter: int = 0
    last_unique: int = 0

    def __post_init__(self) -> None:
        self.shard = GroupShard(self.settings, self.cluster)
        self.twin = GroupShard(self.settings, self.cluster)
        self.timers: dict[Timer, int] = {}
        self.queue: list[tuple[int, int, Timer]] = []
        self.order = 0
        self.carry_out(self.shard.loaded(self.now()))

    def now(self) -> Moment:
        return Moment(START_MS + self.now_ms, self.now_ms)

    def caller(self, client: str = "c", version: int = 9) -> RequestContext:
        self.last_waiter += 1
        self.last_unique += 1
        return RequestContext(client, f"/{client}.host", version, self.last_waiter, str(self.last_unique))

    def carry_out(self, decision: CoordinatorResult[Any]) -> ErrorCode | None:
        """Carry out a result like a driver; returns the error for the caller."""
        for effect in decision.effects:
            match effect:
                case SetTimer(timer, delay_ms):
                    assert delay_ms >= 0, "the delay of a timer is negative"
                    self.order += 1
                    self.timers[timer] = self.order
                    heapq.heappush(self.queue, (self.now_ms + delay_ms, self.order, timer))
                case CancelTimer(timer):
                    self.timers.pop(timer, None)
                case Respond(waiter, response):
                    assert waiter not in self.answers, f"#{waiter} is answered twice"
                    self.answers[waiter] = response
        error = None
        if decision.records and self.log_refuses is not None:
            error = client_error(self.log_refuses)
        elif decision.records:
            self._append(decision)
        if decision.continuation is not None:
            self.carry_out(self.shard.resume(decision.continuation, error, self.now()))
        return error

    def decide(self, decision: CoordinatorResult[Any]) -> Any:
        """The response or error of a request; None if it is parked."""
        error = self.carry_out(decision)
        return decision.response if error is None else error

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

    def reload(self) -> None:
        """Fail over to another coordinator; parked requests fail."""
        for effect in self.shard.unloaded().effects:
            assert isinstance(effect, Respond)
            self.answers[effect.waiter] = effect.response
        self.timers.clear()
        self.shard = load(GroupShard(self.settings, self.cluster), self.log, defers=True)
        self.twin = load(GroupShard(self.settings, self.cluster), self.log)
        self.carry_out(self.shard.loaded(self.now()))

    def end_transaction(self, producer: ProducerIdAndEpoch, is_commit: bool) -> None:
        """Write a transaction marker to the shard's log."""
        self.log.append(Logged(len(self.log), None, None, producer, is_commit))
        self.shard.replay_end(*producer, is_commit)
        load(self.twin, self.log[-1:])

    def id_of(self, topic: str) -> bytes:
        known = self.cluster.topic(topic)
        return NO_ID if known is None else known.id

    def _append(self, decision: CoordinatorResult[Any]) -> None:
        first_offset = len(self.log)
        for offset, record in enumerate(decision.records, first_offset):
            self.log.append(logged(offset, record, decision.producer))
            self.shard.replay(
                record.key, record.value, ReplayContext(offset, *(decision.producer or (-1, -1)))
            )
            self.on_record(CoordinatorRecord(record.key, record.value))
        load(self.twin, self.log[first_offset:])
        for record in decision.records:
            self._compare(record.key)

    def _compare(self, key: Any) -> None:
        """Check that a shard that loads the log has the same durable state."""
        if isinstance(key, CONSUMER_KEYS):
            live, stored = self.shard.consumers.by_id, self.twin.consumers.by_id
            group_id: str = getattr(key, "group_id")  # noqa: B009 - the key's common base does not name it
            assert kept(live.get(group_id)) == kept(stored.get(group_id))
            return
        lives, is_stored = key.group in self.shard.groups, key.group in self.twin.groups
        assert lives == is_stored, f"{key.group} lives in one shard only"
        assert self.shard.offsets.of(key.group) == self.twin.offsets.of(key.group)
        if isinstance(key, GroupMetadataKey):
            assert durable(self.shard, key.group) == durable(self.twin, key.group)
