"""Periodic checks of the partitions that this node leads: those whose ISR or acknowledgements may change.

    partitions with records that a follower has not stored      of all sessions      ┐
    all partitions of a session that is silent                                       ├─► examined in steps
    watched: a follower without a session that may be in sync,                       │
             or one in a session that may join; acknowledgements wait                ┘

A follower in sync stays so while its session fetches, and is not examined: an idle partition costs nothing
but its share of a slow round over all partitions.
"""

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from runnel.model.ids import TopicPartition
from runnel.ports.clock import TimerHandle

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

TICK_MS = 250
ROUND_TICKS = 4
"""Ticks between two examinations of a partition, if there are more."""
FEW_PARTITIONS = 500
"""Up to this many are examined with every tick."""
STEP_PARTITIONS = 500
"""Partitions that are examined in one step of the event loop, some 2 ms."""
SLOW_ROUND_MS = 30_000
"""The time in which all partitions are examined."""


class FollowerChecks:
    """Calls `check` for partitions that may need it, again as long as it returns True."""

    def __init__(
        self,
        broker: "Broker",
        check: "Callable[[ReplicatedLog, int], bool]",
        ticked: Callable[[int], None],
    ) -> None:
        self._broker = broker
        self._check = check
        self._ticked = ticked
        """Called with the time of every tick."""
        self._led: dict[TopicPartition, ReplicatedLog] = {}
        """The partitions that this node leads and others follow."""
        self._watched: dict[ReplicatedLog, None] = {}
        self._due: list[ReplicatedLog] = []
        """The rest of this round."""
        self._slow_round: list[ReplicatedLog] = []
        self._timer: TimerHandle | None = None
        self._step_timer: TimerHandle | None = None
        self._ticked_ms = 0
        self._ticks = 0

    def add(self, partition: "ReplicatedLog") -> None:
        """This node leads the partition, or what is known of its followers changed."""
        self._led[partition.name] = partition
        self._watched[partition] = None
        if self._timer is None:
            self._ticked_ms = self._broker.clock.monotonic_ms()
            self._timer = self._broker.timers.call_later(TICK_MS, self._tick)

    def remove(self, name: TopicPartition) -> None:
        """This node no longer leads the partition."""
        partition = self._led.pop(name, None)
        if partition is not None:
            self._watched.pop(partition, None)

    def watch(self, partition: "ReplicatedLog") -> None:
        """Examine this partition until nothing is to be expected."""
        if self._led.get(partition.name) is partition:
            self._watched[partition] = None

    def watch_all(self) -> None:
        """Other brokers are active: some may be in sync from now on."""
        self._watched.update(dict.fromkeys(self._led.values()))

    def close(self) -> None:
        """Stop."""
        for timer in (self._timer, self._step_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._step_timer = None

    def _tick(self) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        passed_ms, self._ticked_ms = now_ms - self._ticked_ms, now_ms
        self._timer = self._broker.timers.call_later(TICK_MS, self._tick) if self._led else None
        if passed_ms > 2 * TICK_MS:
            # This process was paused. The fetches of followers are waiting to be read, and come first.
            return
        self._ticked(now_ms)
        if self._due:
            # The last round is not over.
            return
        self._ticks += 1
        due = self._candidates(now_ms)
        if len(due) > FEW_PARTITIONS and self._ticks % ROUND_TICKS:
            due = {}
        due.update(dict.fromkeys(self._next_of_slow_round()))
        self._due = list(due)
        self._step()

    def _candidates(self, now_ms: int) -> "dict[ReplicatedLog, None]":
        settings = self._broker.settings
        silent_ms = min(settings["broker.session.timeout.ms"], settings["replica.lag.time.max.ms"]) // 2
        found = dict(self._watched)
        for session in self._broker.follower_sessions:
            is_silent = now_ms - session.fetch_time.ms > silent_ms
            # In an order that does not depend on addresses, for simulations.
            behind = chain(session.dirty, session.unacknowledged)
            for cursor in session.cursors.values() if is_silent else behind:
                if cursor.partition is not None:
                    found[cursor.partition] = None
        return found

    def _next_of_slow_round(self) -> "list[ReplicatedLog]":
        if not self._slow_round:
            self._slow_round = list(self._led.values())
        count = len(self._led) * TICK_MS // SLOW_ROUND_MS + 1
        some = self._slow_round[-count:]
        del self._slow_round[-count:]
        return some

    def _step(self) -> None:
        self._step_timer = None
        some = self._due[-STEP_PARTITIONS:]
        del self._due[-STEP_PARTITIONS:]
        if self._due:
            # Before the checks, so that a failed one does not end all.
            self._step_timer = self._broker.timers.call_later(1, self._step)
        now_ms = self._broker.clock.monotonic_ms()
        for partition in some:
            if self._led.get(partition.name) is not partition or not partition.is_leader:
                self._watched.pop(partition, None)
            elif self._check(partition, now_ms):
                self._watched[partition] = None
            else:
                self._watched.pop(partition, None)
