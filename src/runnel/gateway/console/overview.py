"""The overview: the health of the cluster, its throughput, and what needs attention."""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.responses import JSONResponse, Response

from runnel.client.cluster_admin import QuorumView
from runnel.client.errors import ClientError
from runnel.gateway.cluster_data import Brokers, Catalogue, ClusterData
from runnel.gateway.console.pages import NO_STORE, Content, Visit
from runnel.gateway.console.text import plural
from runnel.gateway.console.topics import is_internal

SHOWN = 8
"""Rows of a list on the overview."""

QUORUM_PATIENCE_S = 1.0
LAGGING_GROUPS_MAX = 50
"""Groups of which the lag is read if brokers do not report it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the cluster in one line."""

    level: str
    headline: str
    detail: str


async def overview(visit: Visit) -> Content:
    """The content of the overview."""
    data = visit.data
    data.throughput.use()
    catalogue, brokers = await asyncio.gather(data.catalogue.get(), data.brokers.get())
    quorum, sizes, groups, moving = await asyncio.gather(
        _optional(data.quorum.get()),
        _optional(data.sizes.get()),
        _optional(data.groups.get()),
        _optional(data.reassignments.get()),
    )
    own = [topic for topic in catalogue.topics if not is_internal(topic)]
    values: dict[str, Any] = {
        "health": health_of(catalogue, brokers, quorum),
        "brokers": brokers,
        "catalogue": catalogue,
        "own_topics": own,
        "sizes": sizes,
        "groups": groups,
        "quorum": quorum,
        "moving": moving or {},
        "latest": data.throughput.latest,
        "troubled": troubled_topics(catalogue),
        "busiest": _busiest(data, catalogue),
        "lagging": await _optional(_lagging(data, [group.group_id for group in groups or ()])) or [],
    }
    return Content("overview.html", values)


def health_of(catalogue: Catalogue, brokers: Brokers, quorum: QuorumView | None) -> Health:
    """The most severe problem comes first."""
    offline, under = catalogue.offline, catalogue.under_replicated
    fenced = ", ".join(str(broker.node_id) for broker in brokers.fenced)
    if offline:
        detail = "They can be neither read nor written until a broker with an in-sync replica returns."
        return Health("bad", f"{plural(len(offline), 'partition')} without a leader", detail)
    if quorum is None or quorum.leader_id < 0:
        detail = "Topics and settings cannot be changed until a majority of the controllers is up."
        return Health("bad", "The metadata quorum has no leader", detail)
    if brokers.fenced:
        detail = f"Broker {fenced} does not send heartbeats. Partitions are led by the others."
        return Health("warn", f"{plural(len(brokers.fenced), 'broker')} down", detail)
    if under:
        detail = "Replicas are catching up. If this lasts, look at the brokers that are behind."
        return Health("warn", f"{plural(len(under), 'partition')} under-replicated", detail)
    count = len(brokers.brokers)
    headline = "The broker is up" if count == 1 else f"All {count} brokers are up"
    return Health("good", headline, "Every partition has a leader, and all replicas are in sync.")


def troubled_topics(catalogue: Catalogue) -> list[tuple[str, int, int]]:
    """(topic, partitions offline, partitions under-replicated) of topics that need attention."""
    offline = Counter(partition.topic for partition in catalogue.offline)
    under = Counter(partition.topic for partition in catalogue.under_replicated)
    names = sorted(offline | under, key=lambda name: (-offline[name], -under[name], name))
    return [(name, offline[name], under[name]) for name in names[:SHOWN]]


def _busiest(data: ClusterData, catalogue: Catalogue) -> list[tuple[str, float]]:
    rates = [
        (name, rate)
        for name, rate in data.throughput.by_topic.items()
        if (topic := catalogue.by_name.get(name)) is not None and not is_internal(topic)
    ]
    return sorted(rates, key=lambda each: (-each[1], each[0]))[:SHOWN]


async def _lagging(data: ClusterData, names: list[str]) -> list[dict[str, Any]]:
    """The groups with the highest lag."""
    reported = await data.lag_summaries.get()
    rows: list[dict[str, Any]] = [
        {"group": name, "lag": found.lag, "seconds": found.seconds, "verdict": found.verdict}
        for name in names
        if (found := reported.get(name)) is not None
    ]
    if not rows and len(names) <= LAGGING_GROUPS_MAX:
        lags = await asyncio.gather(*(_optional(data.lags.get(name)) for name in names))
        rows = [
            {"group": name, "lag": lag.total, "seconds": None, "verdict": ""}
            for name, lag in zip(names, lags, strict=True)
            if lag is not None
        ]
    behind = [row for row in rows if row["lag"] or row["verdict"] not in ("", "ok", "unknown")]
    return sorted(behind, key=lambda row: (-(row["seconds"] or 0), -row["lag"], row["group"]))[:SHOWN]


async def throughput(visit: Visit) -> Response:
    """The series of the chart as JSON: columns, as the chart library takes them."""
    series = visit.data.throughput
    series.use()
    rates = list(series.rates)
    columns: dict[str, list[float | None]] = {
        "at": [round(each.at_s, 1) for each in rates],
        "records": [_short(each.records) for each in rates],
        "bytes_in": [_short(each.bytes_in) for each in rates],
        "bytes_out": [_short(each.bytes_out) for each in rates],
    }
    return JSONResponse(columns, headers=NO_STORE)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


async def _optional(reading: Awaitable[T]) -> T | None:
    """Omits what the user is not permitted to see, and what the cluster cannot report now."""
    try:
        async with asyncio.timeout(QUORUM_PATIENCE_S * 3):
            return await reading
    except (ClientError, TimeoutError):
        return None
