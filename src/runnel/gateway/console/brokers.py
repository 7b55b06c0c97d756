"""Brokers, the quorum, the placement of partitions, and reassignments; settings of brokers."""

import asyncio
from typing import Any

from runnel.client.cluster_admin import QuorumView
from runnel.client.errors import ClientError
from runnel.gateway.console.dialogs import Done, Form
from runnel.gateway.console.overview import health_of
from runnel.gateway.console.pages import Content, Refused, Visit
from runnel.gateway.console.paging import Pager
from runnel.gateway.console.topic import ordered
from runnel.model.configs import ResourceType
from runnel.model.ids import TopicPartition, id_text

ROWS = 60
MOVES_SHOWN = 50


async def brokers(visit: Visit) -> Content:
    """Brokers, quorum and reassignments."""
    data = visit.data
    catalogue, found = await asyncio.gather(data.catalogue.get(), data.brokers.get())
    quorum: QuorumView | None = None
    moving: dict[TopicPartition, list[int]] = {}
    try:
        async with asyncio.timeout(3):
            quorum, moving = await asyncio.gather(data.quorum.get(), data.reassignments.get())
    except (ClientError, TimeoutError):
        # Without a leader of the quorum, the rest is shown.
        pass
    by_node = {each.node_id: each for each in quorum.voters + quorum.observers} if quorum else {}
    voters = {each.node_id for each in quorum.voters} if quorum else set()
    rows = [
        {
            "broker": broker,
            "leaders": catalogue.leaders[broker.node_id],
            "replicas": catalogue.replicas[broker.node_id],
            "quorum": by_node.get(broker.node_id),
            "role": _role(broker.node_id, voters, quorum.leader_id if quorum else -1),
        }
        for broker in found.brokers
    ]
    values = {
        "rows": rows,
        "cluster_id": found.cluster_id,
        "quorum": quorum,
        "health": health_of(catalogue, found, quorum),
        "moves": await _moves(visit, moving),
        "more_moves": max(0, len(moving) - MOVES_SHOWN),
        "directories": {node: id_text(each.directory_id) for node, each in by_node.items()},
        "most": max([1, *catalogue.leaders.values()]),
        "unbalanced": _unbalanced(catalogue.topics),
    }
    return Content("brokers.html", values)


def _role(node: int, voters: set[int], leader: int) -> str:
    return "leader" if node == leader else "voter" if node in voters else "observer"


def _unbalanced(topics: list[Any]) -> int:
    """Partitions that their preferred replica does not lead, though it is in sync."""
    return sum(
        view.leader != view.replicas[0] and view.replicas[0] in view.in_sync
        for topic in topics
        for view in topic.partitions
        if view.replicas
    )


async def _moves(visit: Visit, moving: dict[TopicPartition, list[int]]) -> list[dict[str, Any]]:
    """Reassignments, with how much of the log the new replicas have."""
    shown = dict(sorted(moving.items())[:MOVES_SHOWN])
    if not shown:
        return []
    catalogue = await visit.data.catalogue.get()
    starts, ends = await visit.data.bounds(shown)
    rows = []
    for partition, target in shown.items():
        topic = catalogue.by_name.get(partition.topic)
        view = topic.partitions[partition.partition] if topic is not None else None
        adding = [node for node in target if view is None or node not in view.in_sync]
        done = [await _progress(visit, node, partition, starts, ends) for node in adding]
        known = [each for each in done if each is not None]
        rows.append(
            {
                "partition": partition,
                "replicas": [] if view is None else view.replicas,
                "target": target,
                "adding": adding,
                "percent": min(known) if known else None,
            }
        )
    return rows


async def _progress(
    visit: Visit,
    node: int,
    partition: TopicPartition,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> float | None:
    if partition not in ends:
        return None
    try:
        own = (await visit.data.cluster_admin.end_offsets(node, [partition])).get(partition)
    except (ClientError, OSError):
        return None
    length = ends[partition] - starts[partition]
    if own is None or length <= 0:
        return None
    return max(0.0, min(100.0, 100.0 * (own - starts[partition]) / length))


async def partition_map(visit: Visit) -> Content:
    """Which broker has which replica: one row for each partition, one column for each broker."""
    catalogue, found = await asyncio.gather(visit.data.catalogue.get(), visit.data.brokers.get())
    text, show = visit.query.get("q", "").strip().lower(), visit.query.get("show", "")
    rows = [
        (topic, view)
        # Those of users first.
        for topic in sorted(catalogue.topics, key=lambda each: each.is_internal)
        if text in topic.name.lower()
        for view in topic.partitions
        if show != "problems" or view.leader < 0 or len(view.in_sync) < len(view.replicas)
    ]
    pager = Pager(len(rows), ROWS, visit.number("page", 1))
    values = {
        "rows": pager.slice(rows),
        "pager": pager,
        "brokers": found.brokers,
        "text": text,
        "show": show,
        "q": visit.query,
    }
    return Content("partition_map.html", values)


async def settings(visit: Visit) -> Content:
    """The settings of one broker, or the dynamic defaults of all."""
    name = visit.path("broker")
    if name != "default" and not name.isdecimal():
        raise Refused(f"{name!r} is not a broker id", 404)
    owner = "" if name == "default" else name
    found = await visit.data.admin.settings(ResourceType.BROKER, owner, documentation=True)
    text = visit.query.get("q", "").strip().lower()
    rows = [
        row
        for row in ordered(found)
        if text in row["setting"].name.lower() or text in (row["setting"].value or "").lower()
    ]
    values = {"rows": rows, "broker": name, "total": len(found), "text": text}
    return Content("broker_settings.html", {**values, "brokers": (await visit.data.brokers.get()).brokers})


async def settings_start(visit: Visit) -> Content:
    """The settings of all brokers: which one?"""
    found = await visit.data.brokers.get()
    defaults = await visit.data.admin.settings(ResourceType.BROKER, "", documentation=True)
    return Content("settings.html", {"brokers": found.brokers, "rows": ordered(defaults)})


async def show_elect(visit: Visit, form: Form) -> dict[str, Any]:
    """How many leaders would change."""
    return {"count": _unbalanced((await visit.data.catalogue.get()).topics)}


async def elect(visit: Visit, form: Form) -> Done:
    """Elect the preferred replicas."""
    catalogue = await visit.data.catalogue.get()
    partitions = [
        TopicPartition(topic.name, view.partition)
        for topic in catalogue.topics
        for view in topic.partitions
        if view.replicas and view.leader != view.replicas[0] and view.replicas[0] in view.in_sync
    ]
    await visit.data.cluster_admin.elect_preferred(partitions)
    return Done(f"elected the preferred leaders of {len(partitions)} partitions")
