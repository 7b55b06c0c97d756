"""What the admin listener of a node serves: its metrics, the lag of its groups and its health.

/metrics            the Prometheus text format, rendered at most once a second
/lag                the lag of the groups that this node coordinates, as JSON
/livez              200 while the event loop runs
/readyz             200 while this node serves its clients; 503 with the reasons otherwise
/readyz?replicas    200 if no partition would fall below min.insync.replicas without this node
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from time import monotonic

from runnel.broker.metrics.cluster import ClusterMetrics
from runnel.broker.metrics.compression import CompressionMetrics
from runnel.broker.metrics.coordinators import CoordinatorMetrics
from runnel.broker.metrics.partitions import PartitionMetrics
from runnel.broker.metrics.traffic import TrafficMetrics
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.readiness import reasons_not_ready, reasons_to_stay
from runnel.controller.config_broker_node import ADMIN_LISTENERS, OFF
from runnel.controller.config_types import parse_host_port
from runnel.controller.settings import Settings
from runnel.observe.exposition import CONTENT_TYPE, render
from runnel.observe.http import TEXT
from runnel.observe.registry import Registry
from runnel.server.admin_listener import AdminListener, Handler, Page, Query, in_slices
from runnel.server.host_facts import HostFacts
from runnel.server.layers import BadSettings
from runnel.server.roles import NONROUTABLE, Roles

MAX_AGE_SECONDS = 1.0
"""How long the text of the metrics is cached."""
LIVE_SECONDS_MAX = 5.0
"""An event loop that paused for longer is not alive."""
TICK_SECONDS = 1.0

log = logging.getLogger("runnel.server")


class Admin:
    """The pages of the admin listener, and where it listens."""

    def __init__(self, settings: Settings, roles: Roles, broker: Broker, data_dir: str) -> None:
        self._settings, self._roles, self._broker = settings, roles, broker
        self.host = HostFacts(data_dir)
        self.registry = Registry(lambda bug: broker.bugs.report(bug, "a collector of metrics failed"))
        self.registry.add(TrafficMetrics(broker))
        self.routes: dict[str, Handler] = {
            "/metrics": self._metrics,
            "/livez": self._live,
            "/readyz": self._ready,
        }
        self.is_started = False
        """Has the node started?"""
        self.is_stopping = False
        self._listener = AdminListener(self.routes)
        self._made_at = -MAX_AGE_SECONDS
        self._text: list[bytes] = []
        self._making: asyncio.Task[list[bytes]] | None = None
        self._ticked_at = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        """Does it listen?"""
        return bool(self._broker.admin_addresses)

    async def start(self, stack: AsyncExitStack) -> None:
        """Listen, unless it is off. BadSettings if an address that was set cannot be bound."""
        wanted = [parse_host_port(text) for text in self._settings.words(ADMIN_LISTENERS) if text != OFF]
        is_explicit = self._settings.is_set(ADMIN_LISTENERS)
        stack.push_async_callback(self.close)
        bound = []
        for host, port in wanted:
            try:
                port = await self._listener.listen(host, port)
                # Others reach it at the address of the broker.
                bound.append(_shown(self._broker.host if host in ("", *NONROUTABLE) else host, port))
            except OSError as error:
                reason = f"cannot bind the admin listener to {_shown(host, port)}: {error.strerror or error}"
                if is_explicit:
                    raise BadSettings(f"{ADMIN_LISTENERS}: {reason}") from error
                log.warning("%s: there are no metrics of this node, set %s", reason, ADMIN_LISTENERS)
        self._broker.admin_addresses = tuple(bound)
        if bound:
            self._tick()

    def quorum_started(self) -> None:
        """The node has metadata."""
        self.registry.add(ClusterMetrics(self._broker))
        self.registry.add(PartitionMetrics(self._broker))

    def broker_started(self) -> None:
        """The node has partitions and coordinators."""
        self.registry.add(CoordinatorMetrics(self._broker))
        self.registry.add(CompressionMetrics(self._broker))
        lags = self._broker.groups.lags
        self.registry.add(lags.collect)
        self.routes["/lag"] = lambda query: Page(*lags.answer(query))

    def started(self) -> None:
        """The node serves."""
        self.is_started = True

    def stopping(self) -> None:
        """The node is about to stop: it is no longer ready."""
        self.is_stopping = True

    async def close(self) -> None:
        """Stop listening."""
        if self._timer is not None:
            self._timer.cancel()
        if self._making is not None:
            self._making.cancel()
        await self._listener.close()

    def abort(self) -> None:
        """Close everything at once, as if the process was killed."""
        if self._timer is not None:
            self._timer.cancel()
        self._listener.abort()

    def _tick(self) -> None:
        self._ticked_at = monotonic()
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _live(self, query: Query) -> Page:
        silent = monotonic() - self._ticked_at - TICK_SECONDS
        if silent > LIVE_SECONDS_MAX:
            return Page(503, TEXT, f"the event loop paused for {silent:.1f} s\n".encode())
        return Page(200, TEXT, b"ok\n")

    async def _ready(self, query: Query) -> Page:
        if self.is_stopping:
            return _unready(["this node is stopping"])
        if not self.is_started:
            return _unready(["this node is starting"])
        await self.host.refresh()
        reasons = reasons_not_ready(self._broker, is_broker=self._roles.is_broker)
        if self.host.disk_failure is not None:
            reasons.append(self.host.disk_failure)
        if "replicas" in query and self._roles.is_broker:
            reasons += await self._reasons_to_stay()
        return _unready(reasons) if reasons else Page(200, TEXT, b"ok\n")

    async def _reasons_to_stay(self) -> list[str]:
        reasons: list[str] = []
        for step in reasons_to_stay(self._broker):
            if step is None:
                await asyncio.sleep(0)
            else:
                reasons = step
        return reasons

    async def _metrics(self, query: Query) -> Page:
        if monotonic() - self._made_at >= MAX_AGE_SECONDS:
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make())
            # The text is for all that ask meanwhile, even if the first one goes away.
            await asyncio.shield(self._making)
        return Page(200, CONTENT_TYPE, self._text)

    async def _make(self) -> list[bytes]:
        try:
            await self.host.refresh()
            self._text = await in_slices(render(self.registry.families()))
            self._made_at = monotonic()
            return self._text
        finally:
            self._making = None


def _unready(reasons: list[str]) -> Page:
    return Page(503, TEXT, "".join(f"{reason}\n" for reason in reasons).encode())


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
