"""Reads the metrics of all nodes: of brokers at the admin listeners that their configs name.

A controller that is not a broker has no such configs: it is read at a configured address, or not at all.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from runnel.client.admin_listener import ADMIN_LISTENERS, Address, find, read
from runnel.client.cluster import Cluster
from runnel.client.cluster_admin import BrokerView, ClusterAdmin
from runnel.client.errors import ClientError
from runnel.client.http_get import GetFailed
from runnel.observe.alerts.series import BrokerState, Labels, Metrics, Snapshot
from runnel.observe.exposition import parse

METRICS_PATH = "/metrics"
DESCRIBE_TIMEOUT_S = 5.0
SCRAPES_AT_ONCE = 8
VOTERS_EVERY_S = 60.0
"""Controllers change rarely, and while there is no active one the question takes its whole timeout."""

log = logging.getLogger("runnel.alerts")


@dataclass(slots=True)
class _Known:
    """What is known about a broker from earlier rounds."""

    view: BrokerView
    address: Address | None = None
    is_unreachable: bool = False
    """It has no admin listener that can be reached from here."""
    is_broker: bool = True


class Scraper:
    """Takes snapshots of a cluster."""

    def __init__(
        self, cluster: Cluster, metrics: Collection[str], addresses: Mapping[int, Address] | None = None
    ) -> None:
        """`metrics` are the names that are kept; `addresses` take precedence over the brokers' configs."""
        self._given = addresses or {}
        self._cluster = cluster
        self._wanted = tuple(sorted(metrics))
        self._known: dict[int, _Known] = {}
        self._limit = asyncio.Semaphore(SCRAPES_AT_ONCE)
        self._voters: dict[int, _Known] = {}
        self._voters_due_s = 0.0

    async def snapshot(self, at_ms: int) -> Snapshot:
        """The metrics of all registered brokers; if the cluster does not answer, of those known before."""
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                _, views = await ClusterAdmin(self._cluster).describe()
            known = {view.node_id: self._known.get(view.node_id) or _Known(view) for view in views}
            for view in views:
                known[view.node_id].view = view
            self._known = known
        await self._find_voters()
        controllers = [known for node_id, known in self._voters.items() if node_id not in self._known]
        nodes = [*self._known.values(), *controllers]
        return Snapshot(at_ms, tuple(await asyncio.gather(*(self._broker(known) for known in nodes))))

    async def _find_voters(self) -> None:
        """Look up the controllers periodically; without an answer the last known ones stay."""
        if time.monotonic() < self._voters_due_s:
            return
        self._voters_due_s = time.monotonic() + VOTERS_EVERY_S
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                voters = (await ClusterAdmin(self._cluster).quorum()).voters
            self._voters = {
                voter.node_id: self._voters.get(voter.node_id)
                or _Known(BrokerView(voter.node_id, "", 0, None, is_fenced=False), is_broker=False)
                for voter in voters
            }

    async def _broker(self, known: _Known) -> BrokerState:
        async with self._limit:
            metrics = None if known.address is None else await self._scraped(known)
            if metrics is None:
                # Perhaps it has another address since its restart.
                await self._find(known)
                metrics = None if known.address is None else await self._scraped(known)
        view = known.view
        is_scraped = metrics is not None or not known.is_unreachable
        return BrokerState(view.node_id, metrics, is_fenced=view.is_fenced, is_scraped=is_scraped)

    async def _scraped(self, known: _Known) -> Metrics | None:
        assert known.address is not None
        host, port = known.address
        try:
            body = await read(known.address, METRICS_PATH)
            return await asyncio.to_thread(_selected, body, self._wanted)
        except (GetFailed, ValueError) as error:
            log.info(
                "the metrics of broker %d at %s:%d cannot be read: %s", known.view.node_id, host, port, error
            )
            return None

    async def _find(self, known: _Known) -> None:
        """Look up the admin listener; without an answer the last known one stays."""
        view = known.view
        if view.node_id in self._given:
            known.address = self._given[view.node_id]
            return
        if not known.is_broker:
            if not known.is_unreachable:
                log.warning(
                    "controller %d is not a broker: without its address in alerts.admin.addresses, "
                    "its metrics are not read",
                    view.node_id,
                )
            known.is_unreachable = True
            return
        try:
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                known.address = await find(self._cluster, view.node_id, view.host)
        except (ClientError, TimeoutError):
            return
        if known.address is None and not known.is_unreachable:
            log.warning(
                "broker %d has no admin listener that can be reached from here (%s): no metrics are read",
                view.node_id,
                ADMIN_LISTENERS,
            )
        known.is_unreachable = known.address is None


def _selected(body: bytes, wanted: tuple[str, ...]) -> Metrics:
    """The wanted metrics of a scrape."""
    text = "\n".join(line for line in body.decode().split("\n") if line.startswith(wanted))
    names = set(wanted)
    found: dict[str, list[tuple[Labels, float]]] = {}
    for name, labels, value in parse(text):
        if name in names:
            found.setdefault(name, []).append((tuple(sorted(labels)), value))
    return found
