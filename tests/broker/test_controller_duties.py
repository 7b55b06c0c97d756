"""What the active controller does without being asked."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.broker.runtime import controller_duties
from runnel.broker.runtime.controller_duties import LATE_MS, RETRY_DELAY_MS, ControllerDuties
from runnel.broker.runtime.probes import Probe
from runnel.controller.broker_sessions import BrokerSessions
from runnel.model.errors import StorageFailed
from runnel.observe.counters import EventCounts


class FakeBroker:
    """Changes of metadata with an outcome that the test selects; timers run when it says so."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.begun = 0
        self.attempts: list[int] = []
        self.fenced: list[int | None] = []
        """The results of the next changes; without one, the disk is full."""
        self.due: dict[int, tuple[int, Callable[[], None]]] = {}
        self.clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.timers = SimpleNamespace(call_later=self.call_later)
        self.metadata = SimpleNamespace(change_in_steps=self.change)
        self.settings = None
        self.events = EventCounts()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        self.begun += 1
        number = self.begun
        self.due[number] = self.now_ms + delay_ms, callback
        return SimpleNamespace(cancel=lambda: self.due.pop(number, None))

    async def change(self, begin: object) -> int | None:
        self.attempts.append(self.now_ms)
        if not self.fenced:
            raise StorageFailed("the disk is full")
        return self.fenced.pop(0)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(work)

    def run_timers(self, until_ms: int) -> None:
        for _ in range(100):
            if not self.due:
                break
            number = min(self.due, key=lambda each: self.due[each][0])
            due_ms, callback = self.due[number]
            if due_ms > until_ms:
                break
            del self.due[number]
            self.now_ms = max(self.now_ms, due_ms)
            callback()
        self.now_ms = max(self.now_ms, until_ms)


def activate(
    duties: ControllerDuties, timeout_ms: int = 1000, contacts_ms: Mapping[int, int] | None = None
) -> BrokerSessions:
    """The controller is elected, and knows one broker, or those of which the last contact is given."""
    duties._sessions = BrokerSessions(timeout_ms)
    contacts_ms = contacts_ms or {1: 0}
    known: Any = [SimpleNamespace(id=broker_id, epoch=1, is_fenced=False) for broker_id in contacts_ms]
    duties._sessions.activated(known, 0, contacts_ms)
    duties.watch()
    return duties._sessions


def test_a_broker_that_cannot_be_fenced_is_fenced_after_a_delay() -> None:
    broker: Any = FakeBroker()
    duties = ControllerDuties(broker)
    activate(duties)
    broker.run_timers(1001)
    assert len(broker.attempts) == 1
    # Heartbeats of other brokers do not begin it sooner.
    duties.watch()
    broker.run_timers(1001 + 3 * RETRY_DELAY_MS)
    assert 2 <= len(broker.attempts) <= 4
    assert len(broker.due) == 1
    broker.fenced = [1]
    broker.run_timers(broker.now_ms + RETRY_DELAY_MS)
    assert broker.fenced == []


def test_a_controller_that_is_elected_again_fences_again() -> None:
    broker: Any = FakeBroker()
    duties = ControllerDuties(broker)
    activate(duties)
    broker.run_timers(1001)
    duties.close()
    assert not broker.due
    broker.now_ms = 0
    activate(duties)
    broker.run_timers(1001)
    assert len(broker.attempts) == 2


def test_a_controller_that_was_paused_while_it_fenced_processes_heartbeats_first() -> None:
    broker: Any = FakeBroker()
    duties = ControllerDuties(broker)
    sessions = activate(duties, contacts_ms={1: 0, 2: 900})
    fenced: list[int] = []

    async def fence(begin: object) -> int:
        expired = sessions.expired(broker.now_ms)
        assert expired is not None
        sessions.ended(expired)
        fenced.append(expired)
        broker.now_ms += 5000
        return expired

    broker.metadata.change_in_steps = fence
    broker.run_timers(1001)
    assert broker.now_ms > 2000, "the session of the other one has expired"
    broker.run_timers(broker.now_ms + 1)
    sessions.contacted(2, 1, broker.now_ms)
    broker.run_timers(broker.now_ms + 2 * LATE_MS)
    assert fenced == [1]
    # If it stays silent, it is fenced, too.
    broker.run_timers(broker.now_ms + 10_000)
    assert fenced == [1, 2]


@pytest.mark.parametrize(
    ("found", "ends_ms"), [(Probe.ANSWERS, 1900), (Probe.REFUSES, 1000), (Probe.UNKNOWN, 1300)]
)
def test_a_broker_whose_connection_is_lost_is_probed(
    monkeypatch: pytest.MonkeyPatch, found: Probe, ends_ms: int
) -> None:
    """One that is alive may be too busy to connect again at once."""

    async def probed(*_: object) -> Probe:
        return found

    monkeypatch.setattr(controller_duties, "probe_silent", probed)
    broker: Any = FakeBroker()
    broker.settings = SimpleNamespace(int=lambda name: 300)
    duties = ControllerDuties(broker)
    sessions = activate(duties)
    for now_ms in range(0, 901, 300):
        sessions.heartbeat(SimpleNamespace(id=1, epoch=1), 0, now_ms)  # type: ignore[arg-type]
    broker.now_ms = 1000
    connection: Any = SimpleNamespace(connection_id=7)
    duties.connected(1, connection)
    connection.on_closed()
    assert sessions.next_expiry_ms() == ends_ms
