"""The list of topics, and the dialogs that create one."""

import asyncio
from collections.abc import Mapping
from typing import Any

from runnel.client.admin import BROKER_DEFAULT
from runnel.client.cluster import TopicView
from runnel.client.errors import ClientError
from runnel.gateway.cluster_data import Sizes
from runnel.gateway.console.dialogs import Done, Form, required, whole
from runnel.gateway.console.pages import Content, Refused, Visit
from runnel.gateway.console.paging import Pager
from runnel.model.ids import TopicPartition

ROWS = 50
BOUNDS_MAX = 2000
"""Offsets of at most this many partitions are requested to show one page."""

BOUNDS_PATIENCE_S = 1.0
"""How long a list waits for offsets: it is shown without them, and read again soon."""

SETTING_FIELDS = ("cleanup.policy", "retention.ms", "min.insync.replicas")


async def topics(visit: Visit) -> Content:
    """One page of the list: only what it shows is requested."""
    data = visit.data
    data.throughput.use()
    catalogue = await data.catalogue.get()
    sizes = await optional_sizes(visit)
    shows_internal = visit.query.get("internal") == "1"
    text = visit.query.get("q", "").strip().lower()
    found = [
        topic
        for topic in catalogue.topics
        if (shows_internal or not is_internal(topic)) and text in topic.name.lower()
    ]
    sort = visit.query.get("sort", "name")
    rates = data.throughput.by_topic
    _sort(found, sort, sizes, rates)
    pager = Pager(len(found), ROWS, visit.number("page", 1))
    shown = pager.slice(found)
    records = await _records(visit, shown)
    rows = [
        {
            "topic": topic,
            "records": records.get(topic.name),
            "size": None if sizes is None else sizes.by_topic.get(topic.name, 0),
            "rate": rates.get(topic.name),
            "offline": sum(view.leader < 0 for view in topic.partitions),
            "is_internal": is_internal(topic),
            "under": sum(len(view.in_sync) < len(view.replicas) for view in topic.partitions),
        }
        for topic in shown
    ]
    hidden = sum(map(is_internal, catalogue.topics)) if not shows_internal else 0
    values = {"rows": rows, "pager": pager, "sort": sort, "text": text, "hidden": hidden}
    return Content("topics.html", {**values, "q": visit.query, "total": len(catalogue.topics) - hidden})


def is_internal(topic: TopicView) -> bool:
    """Is it a topic of the cluster itself, or of a tool that uses such a name?"""
    return topic.is_internal or topic.name.startswith("__")


def _sort(found: list[TopicView], sort: str, sizes: Sizes | None, rates: Mapping[str, float]) -> None:
    if sort == "partitions":
        found.sort(key=lambda topic: (-len(topic.partitions), topic.name))
    elif sort == "size" and sizes is not None:
        found.sort(key=lambda topic: (-sizes.by_topic.get(topic.name, 0), topic.name))
    elif sort == "rate":
        found.sort(key=lambda topic: (-rates.get(topic.name, 0.0), topic.name))


async def optional_sizes(visit: Visit) -> Sizes | None:
    """Sizes on disk; None if they are not permitted, or not there in a moment."""
    try:
        async with asyncio.timeout(2):
            return await visit.data.sizes.get()
    except (ClientError, TimeoutError):
        return None


async def _records(visit: Visit, shown: list[TopicView]) -> dict[str, int]:
    partitions = [TopicPartition(topic.name, view.partition) for topic in shown for view in topic.partitions]
    try:
        async with asyncio.timeout(BOUNDS_PATIENCE_S):
            starts, ends = await visit.data.bounds(partitions[:BOUNDS_MAX])
    except (ClientError, TimeoutError):
        # A topic of the page was deleted, or a leader has just changed: the next refresh shows it.
        return {}
    complete = {partition.topic for partition in partitions[:BOUNDS_MAX]}
    complete -= {partition.topic for partition in partitions[BOUNDS_MAX:]}
    records = dict.fromkeys(complete, 0)
    for partition, end in ends.items():
        if partition.topic in records:
            records[partition.topic] += end - starts[partition]
    return records


async def show_create(visit: Visit, form: Form) -> dict[str, Any]:
    """The form of a new topic."""
    brokers = await visit.data.brokers.get()
    return {"broker_count": len(brokers.brokers) - len(brokers.fenced)}


async def create(visit: Visit, form: Form) -> Done:
    """Create a topic."""
    name = required(form, "name", "a name")
    partitions = whole(form, "partitions", "the number of partitions", least=1, most=100_000)
    replicas = whole(form, "replicas", "the number of replicas", least=1, most=1000)
    settings = {key: value for key in SETTING_FIELDS if (value := form.get(key, "").strip())}
    settings.update(parse_more(form.get("more", "")))
    await visit.data.admin.create_topic(
        name,
        partitions=partitions or BROKER_DEFAULT,
        replication_factor=replicas or BROKER_DEFAULT,
        settings=settings,
    )
    return Done(f"created topic {name}", f"/console/topics/{name}")


def parse_more(text: str) -> dict[str, str]:
    """Settings as name=value, one per line."""
    settings = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise Refused(f"{line.strip()!r} is not of the form name=value")
        settings[name.strip()] = value.strip()
    return settings
