"""Brokers that have probably failed, before the controller has decided about them.

    a connection to it was lost ───────────────────────┐
    a fetch from it is overdue, and it does not answer ┴► suspect ──► it answers · it is fenced · time is up

librdkafka requests metadata from another broker as soon as a leader fails, which may be before the election.
If the response names the failed leader, it retries only after a second. So the response waits briefly for the
controller, and then names no leader.

It also takes a second longer if the failed broker is no longer listed while its partitions fail over: so that
broker is listed for some time after it was fenced.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from runnel.broker.runtime.probes import Probe, broker_endpoint, probe_broker

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.controller.values import BrokerRegistration

SUSPECT_MS = 1_500
"""How long a broker may be a suspect. If the controller has not fenced it by then, it may be this broker that
others cannot reach."""

DECISION_INTERVAL_MS = 5

PAUSE_MS = 10_000
"""The time before it may become a suspect again."""

INTERVAL_MS = 50

DECISION_MS = 250
"""How long a response waits for the controller; later ones of its connection wait, too."""

LISTED_MS = 5_000
"""How long a fenced broker remains listed."""


class Suspects:
    """The suspects of this broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._suspects: set[int] = set()
        self._watched: set[int] = set()
        self._given_up_ms: dict[int, int] = {}
        """When a broker remained a suspect for too long."""
        self._fenced_ms: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._suspects) and any(map(self._may_lead, self._suspects))

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._suspects and self._may_lead(node_id)

    def __iter__(self) -> Iterator[int]:
        return filter(self._may_lead, sorted(self._suspects))

    def connection_lost(self, node_id: int) -> None:
        """A connection to this broker ended, which only it, or the network, can have closed."""
        if self._watch(node_id):
            self._suspects.add(node_id)

    def overdue(self, node_id: int) -> None:
        """A response of this broker is overdue: it becomes a suspect if it does not answer a probe either."""
        self._watch(node_id)

    async def decided(self, is_decided: Callable[[], bool]) -> None:
        """Wait until the controller has decided, or a suspect has answered, for DECISION_MS at most."""
        clock = self._broker.clock
        deadline_ms = clock.monotonic_ms() + DECISION_MS
        while not is_decided() and clock.monotonic_ms() < deadline_ms:
            await asyncio.sleep(DECISION_INTERVAL_MS / 1000)

    def fenced(self, node_id: int) -> None:
        """This broker was active until now."""
        self._fenced_ms[node_id] = self._broker.clock.monotonic_ms()
        self._broker.timers.call_later(LISTED_MS + 1, self._broker.topic_metadata.listings.clear)

    def listed_brokers(self) -> "Iterator[BrokerRegistration]":
        """All active brokers, and those that were fenced recently."""
        from_ms = self._broker.clock.monotonic_ms() - LISTED_MS
        for _, broker in sorted(self._broker.metadata.image.brokers.items()):
            if not broker.is_fenced or self._fenced_ms.get(broker.id, from_ms) > from_ms:
                yield broker

    def _watch(self, node_id: int) -> bool:
        now_ms = self._broker.clock.monotonic_ms()
        if (
            node_id in self._watched
            or not self._may_lead(node_id)
            or now_ms < self._given_up_ms.get(node_id, -PAUSE_MS) + PAUSE_MS
        ):
            return False
        self._watched.add(node_id)
        self._broker.run(self._probe(node_id, now_ms + SUSPECT_MS))
        return True

    def _may_lead(self, node_id: int) -> bool:
        return node_id in self._broker.replication.active

    async def _probe(self, node_id: int, until_ms: int) -> None:
        """Probe the broker until it answers, is fenced, or the time is over."""
        clock, endpoint = self._broker.clock, broker_endpoint(self._broker, node_id)
        try:
            while endpoint is not None and self._may_lead(node_id):
                if clock.monotonic_ms() >= until_ms:
                    self._given_up_ms[node_id] = clock.monotonic_ms()
                    return
                if await probe_broker(self._broker, endpoint) is Probe.ANSWERS:
                    return
                self._suspects.add(node_id)
                await asyncio.sleep(INTERVAL_MS / 1000)
        finally:
            self._suspects.discard(node_id)
            self._watched.discard(node_id)
