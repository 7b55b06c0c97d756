"""Periodic work of the active controller: it takes over, checks sessions, elects leaders.

    elected ──► writes what a new cluster or an interrupted change needs ──► watches sessions until it resigns

Sessions are not in the log: a new controller gives every broker time to find it. A broker that may have
ended, because its connection was closed or it was the previous controller, is probed (`probes`).
"""

import logging
from functools import partial
from typing import TYPE_CHECKING

from runnel.broker.runtime.probes import Probe, probe_silent
from runnel.controller.bootstrap import bootstrap_records, takeover_records
from runnel.controller.broker_heartbeats import fence_expired_broker
from runnel.controller.broker_sessions import BrokerSessions
from runnel.controller.elections import balance_leaders, elect_unclean_leaders
from runnel.controller.features import METADATA_VERSION
from runnel.model.errors import ApiError, NotController
from runnel.ports.clock import TimerHandle
from runnel.ports.service import Session
from runnel.schemas.metadata import NoOpRecord

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

PREDECESSOR_TIMEOUT_MS = 300
"""How long the node of the previous controller may be silent: it was probably lost with its leadership, and
otherwise sends its next heartbeat as soon as it knows the new leader."""

LATE_MS = 100
"""If this node itself paused for longer, heartbeats that arrived meanwhile are processed first."""

RETRY_DELAY_MS = 100


class ControllerDuties:
    """The periodic work of this node while it is the active controller."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._sessions: BrokerSessions | None = None
        self._timer: TimerHandle | None = None
        self._timer_ms = 0.0
        self._electing: TimerHandle | None = None
        self._idling: TimerHandle | None = None
        self._sweeping: TimerHandle | None = None
        self._idle_since = 0
        """The end of the metadata log at the last check."""
        self._is_fencing = False
        self._connections: dict[int, int] = {}
        """Broker → the id of the connection of its last heartbeat."""
        self._probed: set[int] = set()
        metadata = broker.metadata
        metadata.on_elected = self._elected
        metadata.on_resigned = self.close

    @property
    def sessions(self) -> BrokerSessions:
        """The sessions of all brokers. Raises NotController."""
        if self._sessions is None:
            raise NotController("this node is not the active controller")
        return self._sessions

    def connected(self, broker_id: int, connection: Session) -> None:
        """A broker sends its heartbeats over this connection."""
        self._connections[broker_id] = connection.connection_id
        connection.on_closed = partial(self._connection_lost, broker_id, connection.connection_id)

    def _connection_lost(self, broker_id: int, connection_id: int) -> None:
        if self._connections.get(broker_id) != connection_id:
            # The broker has another one by now.
            return
        del self._connections[broker_id]
        if self._sessions is not None:
            within_ms = self._broker.settings.int("broker.reconnect.timeout.ms")
            self._sessions.connection_lost(broker_id, self._now_ms(), within_ms)
            self.watch()
            self._probe(broker_id, within_ms)

    def _probe(self, broker_id: int, within_ms: int) -> None:
        if broker_id not in self._probed:
            self._probed.add(broker_id)
            self._broker.run(self._probe_session(broker_id, within_ms))

    async def _probe_session(self, broker_id: int, within_ms: int) -> None:
        sessions, since_ms = self._sessions, self._now_ms()

        def is_silent() -> bool:
            return (
                sessions is not None
                and sessions is self._sessions
                and sessions.is_silent(broker_id, since_ms)
                and self._now_ms() < since_ms + within_ms
            )

        try:
            if sessions is None:
                return
            match await probe_silent(self._broker, broker_id, is_silent):
                case Probe.ANSWERS:
                    # It is busy, or has not found this controller yet.
                    sessions.answered(broker_id)
                case Probe.REFUSES:
                    sessions.refused(broker_id, since_ms, self._now_ms())
                    self.watch()
        finally:
            self._probed.discard(broker_id)

    def watch(self) -> None:
        """Check for expired sessions when the next one ends."""
        ends_ms = self._sessions.next_expiry_ms() if self._sessions else None
        if ends_ms is None or self._is_fencing:
            return
        if self._timer is not None:
            if self._timer_ms <= ends_ms:
                # It is checked again then.
                return
            self._timer.cancel()
        self._timer_ms = ends_ms
        delay_ms = max(0, int(ends_ms) - self._now_ms() + 1)
        self._timer = self._broker.timers.call_later(delay_ms, self._check)

    def close(self) -> None:
        """This node is no longer the active controller."""
        for timer in (self._timer, self._electing, self._idling, self._sweeping):
            if timer is not None:
                timer.cancel()
        self._timer = self._electing = self._idling = self._sweeping = self._sessions = None
        self._is_fencing = False

    def _now_ms(self) -> int:
        return self._broker.clock.monotonic_ms()

    def _elected(self, predecessor_id: int) -> None:
        broker, metadata = self._broker, self._broker.metadata
        assert metadata.controller is not None
        records = takeover_records(metadata.image, metadata.has_open_transaction)
        if METADATA_VERSION not in metadata.image.features:
            records += bootstrap_records(broker.settings, broker.formatted)
        if records:
            metadata.controller.append(records)
        timeout_ms = broker.settings.int("broker.session.timeout.ms")
        self._sessions = BrokerSessions(timeout_ms)
        now_ms = self._now_ms()
        contact_ms = now_ms - max(0, timeout_ms - PREDECESSOR_TIMEOUT_MS)
        last_contact_ms = {} if predecessor_id == broker.node_id else {predecessor_id: contact_ms}
        self._sessions.activated(metadata.image.brokers.values(), now_ms, last_contact_ms)
        self.watch()
        for broker_id in last_contact_ms:
            self._probe(broker_id, PREDECESSOR_TIMEOUT_MS)
        self._elect_later()
        self._idle_later()
        if broker.settings.text("delegation.token.secret.key"):
            self._sweep_later()

    def _check(self) -> None:
        self._timer = None
        late_ms = self._now_ms() - self._timer_ms
        if late_ms > LATE_MS:
            self._timer_ms = self._now_ms() + LATE_MS
            self._timer = self._broker.timers.call_later(LATE_MS, self._check)
        elif self._sessions is not None and self._sessions.expired(self._now_ms()) is not None:
            self._is_fencing = True
            self._broker.run(self._fence())
        else:
            self.watch()

    async def _fence(self) -> None:
        """Fence one broker whose session has expired.

        This node may be paused meanwhile, so the next one is fenced only after heartbeats that arrived.
        """
        sessions, settings = self._sessions, self._broker.settings
        if sessions is None:
            return
        delay_ms = RETRY_DELAY_MS
        contact_ms = sessions.first_expired_contact_ms(self._now_ms())
        try:
            fenced = await self._broker.metadata.change_in_steps(
                lambda image: fence_expired_broker(image, settings, sessions, self._now_ms())
            )
            delay_ms = 0
            if fenced is not None:
                if contact_ms is not None:
                    self._broker.events.failovers.add((self._now_ms() - contact_ms) / 1000)
                log.warning("broker %d was fenced: its session has expired", fenced)
        except NotController:
            return
        except ApiError as error:
            log.error("a broker whose session has expired could not be fenced, which is retried: %s", error)
        finally:
            if sessions is self._sessions:
                # Only this timer starts the next fencing.
                self._timer = self._broker.timers.call_later(delay_ms, self._fence_again)

    def _fence_again(self) -> None:
        self._timer, self._is_fencing = None, False
        self.watch()

    def _idle_later(self) -> None:
        delay_ms = self._broker.settings.int("metadata.max.idle.interval.ms")
        if delay_ms > 0:
            self._idling = self._broker.timers.call_later(delay_ms, self._idle)

    def _idle(self) -> None:
        """Write a record if there was none: other nodes measure by its age how far they are behind (KIP-835).

        A single node has no such lag, and does not write.
        """
        self._idle_later()
        broker, controller = self._broker, self._broker.metadata.controller
        end_offset = broker.quorum.end_offset
        is_idle, self._idle_since = end_offset == self._idle_since, end_offset
        others = {*broker.quorum.voters.ids, *broker.metadata.image.brokers} - {broker.node_id}
        if is_idle and others and controller is not None and not controller.has_pending:
            try:
                self._idle_since = controller.append([NoOpRecord()]).end_offset
            except ApiError as error:
                log.warning("the metadata log could not be written: %s", error)

    def _elect_later(self) -> None:
        delay_ms = self._broker.settings.int("leader.imbalance.check.interval.seconds") * 1000
        self._electing = self._broker.timers.call_later(delay_ms, self._elect)

    def _elect(self) -> None:
        self._elect_later()
        self._broker.run(self._elect_leaders())

    async def _elect_leaders(self) -> None:
        """Elect preferred leaders, and unclean ones where the topic allows them."""
        metadata, settings = self._broker.metadata, self._broker.settings
        try:
            if settings.bool("auto.leader.rebalance.enable"):
                await metadata.change_in_steps(lambda image: balance_leaders(image, settings))
            await metadata.change_in_steps(lambda image: elect_unclean_leaders(image, settings))
        except NotController:
            return
        except ApiError as error:
            log.warning("leaders could not be elected, which is retried: %s", error)

    def _sweep_later(self) -> None:
        delay_ms = self._broker.settings.int("delegation.token.expiry.check.interval.ms")
        self._sweeping = self._broker.timers.call_later(delay_ms, self._sweep)

    def _sweep(self) -> None:
        self._sweep_later()
        self._broker.run(self._remove_expired_tokens())

    async def _remove_expired_tokens(self) -> None:
        # Imported here: most clusters have no tokens.
        from runnel.controller.tokens import decide_remove_expired_tokens

        now_ms = self._broker.clock.now_ms()
        try:
            await self._broker.metadata.change(lambda image: decide_remove_expired_tokens(image, now_ms))
        except NotController:
            return
        except ApiError as error:
            log.warning("expired delegation tokens could not be removed, which is retried: %s", error)
