"""The lifecycle of this broker in the cluster: registration, heartbeats, controlled shutdown.

    register ──► fenced: opens its logs ──► ready ──► unfenced: serves ──► shutting down ──► stopped
       ▲                                                 │
       └── its epoch is stale, or it lost records ───────┘

The controller fences a broker whose heartbeats fail to arrive, and unfences it once it has applied its own
registration. A heartbeat is sent on a connection of its own: if the process ends, the controller notices at
once that the connection is closed.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.broker.runtime.controller_channel import ControllerChannel
from runnel.broker.runtime.probes import majority_has_ended
from runnel.controller.features import CONTROLLERS_LEVEL, SUPPORTED_FEATURES
from runnel.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from runnel.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from runnel.messages.controller_registration import ControllerRegistrationRequest
from runnel.messages.controller_registration import Feature as ControllerFeature
from runnel.messages.controller_registration import Listener as ControllerListener
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

RETRY_DELAY_MS = 100
"""How long to wait after a refused registration or heartbeat."""

SHUTDOWN_TIMEOUT_MS = 30_000
"""How long a controlled shutdown may take; then the broker stops anyway, and its partitions fail over."""

DUPLICATE_DELAY_S = 10
"""How long a controller waits before it replaces the registration of another one with the same id."""

CONTROLLER_SILENCE_MS = 100
"""A broker that stops probes the voters after this time without an answer."""

_RETRIED = (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)
"""Temporary errors of a registration: the session of the previous process expires."""


class RegistrationRefused(Exception):
    """The controller does not accept this broker; the message states why."""


class BrokerLifecycle:
    """The registration and the session of this broker."""

    def __init__(self, broker: "Broker", incarnation_id: bytes, previous_epoch: int) -> None:
        self._broker = broker
        self._channel = ControllerChannel(broker)
        self._incarnation_id = incarnation_id
        self._previous_epoch = previous_epoch
        """The epoch of the last run if it ended with a clean shutdown, else -1."""
        self._is_ready = False
        self._is_registering = False
        """The next heartbeat is preceded by a registration."""
        self._is_stopping = False
        self._contact_ms = 0
        """When the controller last answered."""
        self._may_stop = asyncio.Event()
        self._is_urgent = asyncio.Event()
        """The next heartbeat is sent at once."""
        self._beating: asyncio.Task[None] | None = None
        # The controller fences a broker that does not reconnect.
        self._channel.on_lost = self._is_urgent.set

    async def register(self) -> None:
        """Register with the controller; returns when the registration is applied here.

        Raises RegistrationRefused.
        """
        broker = self._broker
        known = broker.metadata.image.brokers.get(broker.node_id)
        if known is not None and known.incarnation_id == self._incarnation_id:
            # The registration is still valid; if it has to be changed, that can wait.
            broker.epoch = broker.disk.broker_epoch = known.epoch
            self._is_registering = True
        else:
            await self._register()
        while (known := broker.metadata.image.brokers.get(broker.node_id)) is None or (
            known.epoch != broker.epoch
        ):
            await broker.metadata.changed()
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def unfence(self) -> None:
        """All logs are open: returns when the controller has unfenced this broker, as seen in the image."""
        self._is_ready = True
        self._is_urgent.set()
        image = self._broker.metadata.image
        while image.brokers[self._broker.node_id].is_fenced:
            await self._broker.metadata.changed()

    async def shut_down(self) -> None:
        """Request the controlled shutdown; returns when this broker no longer leads any partition."""
        if self._beating is None:
            return
        self._is_stopping = True
        self._is_urgent.set()
        clock, session_ms = self._broker.clock, self._broker.settings.int("broker.session.timeout.ms")
        begun_ms = self._contact_ms = clock.monotonic_ms()
        while not self._may_stop.is_set():
            now_ms = clock.monotonic_ms()
            is_over = now_ms >= begun_ms + SHUTDOWN_TIMEOUT_MS or now_ms >= self._contact_ms + session_ms
            if is_over or (
                now_ms >= self._contact_ms + CONTROLLER_SILENCE_MS and await majority_has_ended(self._broker)
            ):
                # Without a controller, no other broker can take over anyway.
                log.warning("the controller did not finish the controlled shutdown: this broker stops anyway")
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(CONTROLLER_SILENCE_MS / 1000):
                    await self._may_stop.wait()
        await self.close()

    async def close(self) -> None:
        """Stop sending heartbeats."""
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
            self._beating = None
        self._channel.close()

    def lost_records(self, name: TopicPartition) -> None:
        """A log may have lost committed records: leave all ISRs and ELRs before this broker leads again.

        The registration of a new incarnation after an unclean stop does that.
        """
        self._incarnation_id = self._broker.entropy.id_bytes()
        self._previous_epoch = -1
        self._is_registering = True
        self._is_urgent.set()

    async def _register(self) -> None:
        has_warned = False
        while True:
            error, broker_epoch = await self._ask_for_registration()
            if error is ErrorCode.NONE:
                self._broker.epoch = self._broker.disk.broker_epoch = broker_epoch
                return
            if error not in _RETRIED and not error.retriable:
                raise RegistrationRefused(_refusal(self._broker.node_id, error))
            if not has_warned and error is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                log.warning(
                    "another broker with id %d is registered; waiting for its session to expire",
                    self._broker.node_id,
                )
                has_warned = True
            await asyncio.sleep(RETRY_DELAY_MS / 1000)

    async def _ask_for_registration(self) -> tuple[ErrorCode, int]:
        broker = self._broker
        request = BrokerRegistrationRequest(
            broker_id=broker.node_id,
            cluster_id=broker.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(endpoint.name, endpoint.host, endpoint.port, endpoint.security_protocol)
                for endpoint in broker.endpoints or (broker.endpoint(broker.listener),)
            ],
            features=[Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            rack=broker.rack,
            log_dirs=[broker.disk.directory_id()],
            previous_broker_epoch=self._previous_epoch,
        )
        try:
            response = await self._channel.request(request)
        except ApiError as error:
            return error.error, -1
        return ErrorCode.from_code(response.error_code), response.broker_epoch

    async def _beat(self) -> None:
        settings, is_connected = self._broker.settings, True
        while not self._may_stop.is_set():
            interval_ms = settings.int("broker.heartbeat.interval.ms")
            try:
                await self._heartbeat()
                is_connected = True
            except ApiError as error:
                if is_connected:
                    log.warning("no heartbeat reaches the controller, will retry: %s", error)
                is_connected = False
            except RegistrationRefused as error:
                log.error("%s", error)
                await asyncio.sleep(1)
            self._is_urgent.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_ms / 1000):
                    await self._is_urgent.wait()

    async def _heartbeat(self) -> None:
        broker = self._broker
        if self._is_registering:
            self._is_registering = False
            try:
                await self._register()
            except BaseException:
                self._is_registering = True
                raise
        request = BrokerHeartbeatRequest(
            broker_id=broker.node_id,
            broker_epoch=broker.epoch,
            current_metadata_offset=broker.metadata.image.version - 1,
            # Without current metadata it does not know which partitions it leads.
            want_fence=not self._is_ready or broker.metadata.is_unreadable,
            want_shut_down=self._is_stopping,
        )
        timeout_ms = broker.settings.int("broker.session.timeout.ms")
        sent_ms = broker.clock.monotonic_ms()
        response: BrokerHeartbeatResponse = await self._channel.request(request, timeout_ms=timeout_ms)
        self._contact_ms = broker.clock.monotonic_ms()
        error = ErrorCode.from_code(response.error_code)
        if error is ErrorCode.NONE:
            broker.contact_ms = broker.quorum.valid_ms(sent_ms)
        if error in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            # The controller knows another registration of this id.
            await self._register()
        elif error is not ErrorCode.NONE:
            log.warning("the controller refused a heartbeat: %s", error.name)
        elif response.should_shut_down and self._is_stopping:
            self._may_stop.set()


async def register_controller(broker: "Broker") -> None:
    """Report the listeners and features of this controller to the active one, until the image has them."""
    metadata, incarnation_id = broker.metadata, broker.entropy.id_bytes()
    request = ControllerRegistrationRequest(
        controller_id=broker.node_id,
        incarnation_id=incarnation_id,
        listeners=[
            ControllerListener(endpoint.name, endpoint.host, endpoint.port, endpoint.security_protocol)
            for endpoint in broker.controller_endpoints
        ],
        features=[ControllerFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
    )
    was_known = False
    while True:
        known = metadata.image.controllers.get(broker.node_id)
        is_known = known is not None and known.incarnation_id == incarnation_id
        was_known |= is_known
        if not is_known and metadata.image.metadata_level >= CONTROLLERS_LEVEL:
            if known is not None and was_known:
                where = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in known.endpoints)
                log.error(
                    "another controller has registered with node.id %d, at %s: stop the wrong one, or give "
                    "it a node.id of its own and an empty data directory",
                    broker.node_id,
                    where,
                )
                # Both would replace each other's registration without end.
                await asyncio.sleep(DUPLICATE_DELAY_S)
            try:
                await broker.controller.request(request)
            except ApiError as error:
                log.warning("this controller could not register: %s", error)
        await metadata.changed()


def _refusal(node_id: int, error: ErrorCode) -> str:
    advice = {
        ErrorCode.INCONSISTENT_CLUSTER_ID: "its data directory belongs to another cluster",
        ErrorCode.UNSUPPORTED_VERSION: "the cluster uses a feature level that this release does not support",
        ErrorCode.INVALID_REGISTRATION: "another broker has registered the same log directory",
    }
    reason = advice.get(error, "the controller did not accept it")
    return f"broker {node_id} cannot join the cluster: {reason} ({error.name})"
