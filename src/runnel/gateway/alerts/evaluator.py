"""The evaluator: one of those that run is active, evaluates the rules and notifies; others are on standby.

The active one writes a record with every evaluation. When that record is deleted, or was not renewed for a
few intervals, another takes over: it initializes the transactional id, which fences the former one, reads
what was stored, and continues. States are stored before notifications are delivered, and a delivery is stored
when it has succeeded: after a crash in between it is delivered again. While the cluster cannot be written to,
the active evaluator continues without storing: that a cluster is down must be reported.
"""

import asyncio
import json
import logging
import socket
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError
from runnel.gateway.alerts.delivery import Delivery
from runnel.gateway.alerts.receivers import Receiver
from runnel.gateway.alerts.scraper import Scraper
from runnel.gateway.alerts.state_topic import Fenced, StateTopic, object_of, prepare
from runnel.observe.alerts.alerting import Alerting
from runnel.observe.alerts.groups import Notification
from runnel.observe.alerts.settings import AlertSettings
from runnel.observe.alerts.silences import PREFIX as SILENCE
from runnel.observe.alerts.silences import BadSilence

HOLDER = "evaluator"
"""The key of the record of the active evaluator."""
REQUEST_TIMEOUT_S = 10.0
CONNECT_PAUSE_S = 2.0
LEASE_INTERVALS = 3
LEASE_MIN_S = 5.0
STORE_WAIT_S = 5.0
"""Notifications wait this long until the states are stored."""
STOP_WAIT_S = 5.0

log = logging.getLogger("runnel.alerts")


@dataclass(frozen=True, slots=True)
class EvaluatorOptions:
    """What an evaluator is started with."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Client properties, as `security.protocol`."""
    settings: AlertSettings = field(default_factory=AlertSettings)
    receivers: Mapping[str, Receiver] = field(default_factory=dict)


class Evaluator:
    """Evaluates the rules of a cluster, or is on standby for the evaluator that does."""

    def __init__(self, options: EvaluatorOptions) -> None:
        self.options = options
        self.instance = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self.is_active = False
        self.alerting = self._new_alerting()
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        self._outcomes: list[tuple[Notification, str | None]] = []
        self._silences: list[tuple[str, str | None]] = []
        """Changes of silences that were read, and are not yet applied."""
        self._stored: dict[str, str] = {}
        self._storing: asyncio.Task[None] | None = None
        self._term = 0
        self._must_take = False
        self._evaluated_ms = 0
        self._renewed_s = 0.0
        self._clock = SteadyClock()

    def stop(self) -> None:
        """End `run`: what is being delivered is completed, another evaluator takes over at once."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Run until `stop` is called."""
        while not self._stop.is_set():
            try:
                await self._run_connected()
            except ClientError as error:
                if not error.retriable:
                    raise
                log.warning("alerts are not evaluated: %s", error)
                await self._sleep(CONNECT_PAUSE_S)

    async def _run_connected(self) -> None:
        options = self.options
        cluster = Cluster(
            options.bootstrap,
            client_id="runnel-alerts",
            timeout_s=REQUEST_TIMEOUT_S,
            properties=options.properties,
        )
        async with cluster:
            await prepare(cluster)
            topic = StateTopic(cluster)
            topic.changed, topic.failed = self._record_read, self._renewed
            needed = {need.metric for rule in options.settings.rules for need in rule.needs}
            given = {node_id: (host, port) for node_id, host, port in options.settings.admin_addresses}
            scraper = Scraper(cluster, needed, given)
            following = asyncio.create_task(topic.follow())
            try:
                while not self._stop.is_set():
                    await self._stand_by(topic)
                    if not self._stop.is_set():
                        await self._lead(topic, scraper)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    # On standby.

    async def _stand_by(self, topic: StateTopic) -> None:
        """Wait until no other evaluator is active."""
        await topic.caught_up()
        self._renewed()
        lease_s = max(self.options.settings.interval_ms / 1000 * LEASE_INTERVALS, LEASE_MIN_S)
        while not self._stop.is_set():
            holder = object_of(topic.records.get(HOLDER))
            left_s = self._renewed_s + lease_s - time.monotonic()
            # Its own record: a transaction timed out, but no other evaluator has been active since.
            if not holder or holder.get("instance") == self.instance or left_s <= 0:
                return
            await self._sleep(min(left_s, 1.0))

    def _renewed(self) -> None:
        self._renewed_s = time.monotonic()

    def _record_read(self, key: str, value: str | None) -> None:
        """A record was read from the topic."""
        if key == HOLDER:
            self._renewed()
        elif key.startswith(SILENCE) and self.is_active and self._stored.get(key) != value:
            self._apply({key: value})
            self._silences.append((key, value))
            self._wake.set()

    # Active.

    async def _lead(self, topic: StateTopic, scraper: Scraper) -> None:
        """Evaluate and notify until another evaluator takes over."""
        delivery = Delivery(self.options.receivers, self._delivered)
        try:
            await self._take(topic)
            log.info("evaluating alerts every %g s", self.options.settings.interval_ms / 1000)
            while not self._stop.is_set():
                await self._round(topic, scraper, delivery)
        except Fenced as error:
            log.info("another evaluator has taken over: %s", error)
        finally:
            await delivery.close(STOP_WAIT_S if self._stop.is_set() else 0)
            await self._resign(topic)

    async def _take(self, topic: StateTopic) -> None:
        """Fence other evaluators, and continue from what they have stored."""
        await topic.take()
        self._stored = dict(topic.records)
        self.alerting = self._new_alerting()
        for key in self.alerting.restore(self._stored):
            log.warning("the record %s is not valid, and is deleted", key)
        self._term = _term(self._stored) + 1
        self._outcomes, self._silences, self._must_take = [], [], False
        self._clock.at_least(self.alerting.history.at_ms)
        self._evaluated_ms = self._clock.now_ms() - self.options.settings.interval_ms
        self.is_active = True

    async def _round(self, topic: StateTopic, scraper: Scraper, delivery: Delivery) -> None:
        self._wake.clear()
        interval_ms = self.options.settings.interval_ms
        if self._clock.now_ms() >= self._evaluated_ms + interval_ms:
            snapshot = await scraper.snapshot(self._clock.now_ms())
            self._evaluated_ms = snapshot.at_ms
            # Thousands of series take a while: not on the event loop, which may be shared.
            await asyncio.to_thread(self.alerting.evaluate, snapshot)
        self._take_in()
        due = self.alerting.due(self._clock.now_ms())
        await self._store(topic)
        for notification in due:
            delivery.start(notification)
        next_ms = min(self._evaluated_ms + interval_ms, self.alerting.next_due_ms() or 2**63)
        await self._sleep(max(next_ms - self._clock.now_ms(), 10) / 1000)

    def _take_in(self) -> None:
        """Apply what has happened since the last round."""
        outcomes, self._outcomes = self._outcomes, []
        for notification, error in outcomes:
            if error is None:
                self.alerting.delivered(notification, self._clock.now_ms())
            else:
                self.alerting.failed(notification, error, self._clock.now_ms())
        silences, self._silences = self._silences, []
        for key, value in silences:
            try:
                self.alerting.silence_changed(key, value)
            except BadSilence as bad:
                log.warning("%s", bad)

    def _delivered(self, notification: Notification, error: str | None) -> None:
        self._outcomes.append((notification, error))
        self._wake.set()

    async def _sleep(self, seconds: float) -> None:
        """Wait, unless there is something to do."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        if not self.is_active and not self._stop.is_set():
            self._wake.clear()

    # Storing.

    async def _store(self, topic: StateTopic) -> None:
        """Store what has changed. If the cluster is slow or down, continue meanwhile. Raises Fenced."""
        if self._storing is None:
            # A silence that is read from here on is not in the records, but must not be deleted.
            known = frozenset(self._stored)
            wanted = await asyncio.to_thread(self.alerting.records)
            wanted[HOLDER] = self._holder()
            self._storing = asyncio.create_task(self._write(topic, wanted, known))
        await asyncio.wait({self._storing}, timeout=STORE_WAIT_S)
        if self._storing.done():
            storing, self._storing = self._storing, None
            storing.result()

    async def _write(self, topic: StateTopic, wanted: Mapping[str, str], known: frozenset[str]) -> None:
        try:
            if self._must_take:
                await self._take_again(topic)
            changes = _changes(self._stored, wanted, known)
            if changes:
                await topic.store(changes)
                self._apply(changes)
        except ClientError as error:
            self._must_take = True
            log.warning("the states of alerts cannot be stored: %s", error)

    def _apply(self, changes: Mapping[str, str | None]) -> None:
        for key, text in changes.items():
            if text is None:
                self._stored.pop(key, None)
            else:
                self._stored[key] = text

    async def _take_again(self, topic: StateTopic) -> None:
        """Continue to write after a failure, unless another evaluator was active since. Raises Fenced."""
        await topic.caught_up()
        if not self._is_ours(topic):
            raise Fenced("while the states could not be stored")
        await topic.take()
        if not self._is_ours(topic):
            # Its states are newer; they are read by the next `_take`.
            raise Fenced("while the states could not be stored")
        self._stored = dict(topic.records)
        self._must_take = False

    def _is_ours(self, topic: StateTopic) -> bool:
        holder = object_of(topic.records.get(HOLDER))
        # The first transaction failed.
        is_first = not holder and topic.records == self._stored
        return is_first or (holder.get("instance"), holder.get("term")) == (self.instance, self._term)

    def _holder(self) -> str:
        missing = sorted(self.alerting.history.snapshot.missing)
        value = {
            "instance": self.instance,
            "term": self._term,
            "evaluated_ms": self._evaluated_ms,
            "interval_ms": self.options.settings.interval_ms,
            "missing": missing,
        }
        return json.dumps(value)

    async def _resign(self, topic: StateTopic) -> None:
        """Store the last outcomes and delete the record of the active evaluator."""
        self.is_active = False
        if self._storing is not None:
            await asyncio.wait({self._storing}, timeout=STORE_WAIT_S)
            if not self._storing.done():
                self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)
            self._storing = None
        with suppress(ClientError, Fenced, TimeoutError):
            if self._stop.is_set() and not self._must_take:
                self._take_in()
                changes = _changes(self._stored, self.alerting.records(), frozenset(self._stored))
                await topic.store({**changes, HOLDER: None})
        await topic.release()

    def _new_alerting(self) -> Alerting:
        routes = [receiver.route for receiver in self.options.receivers.values()]
        return Alerting(self.options.settings, routes)


async def run(evaluator: Evaluator) -> None:
    """Run an evaluator until it is stopped or the task is cancelled; for the process that hosts it."""
    try:
        await evaluator.run()
    finally:
        evaluator.stop()


def _changes(
    stored: Mapping[str, str], wanted: Mapping[str, str], known: frozenset[str]
) -> dict[str, str | None]:
    """The records to write: `wanted` ones that changed, and deletions of `known` ones that are not wanted.

    An expired silence is deleted, but silences are never written: users do that.
    """
    changes: dict[str, str | None] = {key: None for key in stored.keys() & known - wanted.keys()}
    for key, text in wanted.items():
        if stored.get(key) != text and not key.startswith(SILENCE):
            changes[key] = text
    return changes


def _term(records: Mapping[str, str]) -> int:
    term = object_of(records.get(HOLDER)).get("term", 0)
    return term if isinstance(term, int) else 0


class SteadyClock:
    """The time of day, but never going backwards: states and points have times of several processes."""

    def __init__(self) -> None:
        self._base_ms, self._base_s = 0, time.monotonic()

    def at_least(self, now_ms: int) -> None:
        """This time has been reached."""
        if now_ms > self.now_ms():
            self._base_ms, self._base_s = now_ms, time.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        steady_ms = self._base_ms + int((time.monotonic() - self._base_s) * 1000)
        wall_ms = time.time_ns() // 1_000_000
        if wall_ms >= steady_ms:
            self._base_ms, self._base_s = wall_ms, time.monotonic()
            return wall_ms
        return steady_ms
