"""One topic: its partitions, its settings, its groups; and the dialogs that change it."""

import asyncio
from typing import Any

from runnel.client.admin import Setting
from runnel.client.cluster import TopicView
from runnel.client.errors import BrokerError, ClientError
from runnel.gateway.cluster_data import Sizes
from runnel.gateway.console.dialogs import Done, Form, confirmed, required, whole
from runnel.gateway.console.pages import Content, Refused, Visit
from runnel.gateway.console.topics import is_internal, optional_sizes
from runnel.model.configs import AlterOperation, ConfigSource, ResourceType
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition, id_text

READERS_MAX = 1000
"""Groups whose commits are read to find the consumers of a topic."""

PARTITIONS_SHOWN = 500


async def find_topic(visit: Visit) -> TopicView:
    """The topic of the address. Not found is an error, as the cluster reports it."""
    name = visit.path("topic")
    topic = (await visit.data.catalogue.get()).by_name.get(name)
    if topic is None:
        # Created a moment ago, perhaps.
        topic = await visit.data.admin.topic(name)
    return topic


async def partitions(visit: Visit) -> Content:
    """The partitions of a topic."""
    topic = await find_topic(visit)
    names = [TopicPartition(topic.name, view.partition) for view in topic.partitions][:PARTITIONS_SHOWN]
    (starts, ends), sizes, moving = await asyncio.gather(
        visit.data.bounds(names), optional_sizes(visit), _moving(visit)
    )
    rows = [
        {
            "view": view,
            "start": starts.get(name),
            "end": ends.get(name),
            "size": None if sizes is None else sizes.by_partition.get(name, 0),
            "moving": moving.get(name),
        }
        for name, view in zip(names, topic.partitions, strict=False)
    ]
    values = {
        "topic": topic,
        "topic_id": id_text(topic.topic_id),
        "rows": rows,
        "records": sum(ends[name] - starts[name] for name in ends),
        "size": _size_of(topic, sizes),
        "under": sum(len(view.in_sync) < len(view.replicas) for view in topic.partitions),
        "offline": sum(view.leader < 0 for view in topic.partitions),
        "rate": visit.data.throughput.by_topic.get(topic.name),
    }
    visit.data.throughput.use()
    return Content("topic.html", values)


def _size_of(topic: TopicView, sizes: Sizes | None) -> int | None:
    return None if sizes is None else sizes.by_topic.get(topic.name, 0)


async def _moving(visit: Visit) -> dict[TopicPartition, list[int]]:
    try:
        return await visit.data.reassignments.get()
    except ClientError:
        return {}


async def settings(visit: Visit) -> Content:
    """The settings of a topic."""
    name = visit.path("topic")
    found = await visit.data.admin.settings(ResourceType.TOPIC, name, documentation=True)
    return Content("topic_settings.html", {"name": name, "rows": ordered(found), "kind": "topic"})


def ordered(found: list[Setting]) -> list[dict[str, Any]]:
    """Settings that were changed come first."""
    rows = [
        {
            "setting": each,
            "is_own": each.source not in (ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER),
            "source": each.source.name.lower().replace("_", " "),
        }
        for each in found
    ]
    return sorted(rows, key=lambda row: (not row["is_own"], row["setting"].name))


async def readers(visit: Visit) -> Content:
    """The groups that have committed offsets of a topic."""
    topic = await find_topic(visit)
    groups, summaries = await asyncio.gather(visit.data.groups.get(), visit.data.lag_summaries.get())
    rows = []
    for group in groups[:READERS_MAX]:
        try:
            lag = await visit.data.lags.get(group.group_id)
        except BrokerError:
            # Not permitted, or deleted meanwhile.
            continue
        own = [each for each in lag.partitions if each.partition.topic == topic.name]
        if own:
            rows.append(
                {
                    "group": group,
                    "lag": sum(each.lag or 0 for each in own),
                    "partitions": len(own),
                    "summary": summaries.get(group.group_id),
                }
            )
    rows.sort(key=lambda row: (-int(str(row["lag"])), str(row["group"])))
    return Content("topic_groups.html", {"topic": topic, "rows": rows})


# Dialogs.


async def show_delete(visit: Visit, form: Form) -> dict[str, Any]:
    """What the deletion of a topic would delete."""
    topic = await find_topic(visit)
    names = [TopicPartition(topic.name, view.partition) for view in topic.partitions]
    (starts, ends), sizes = await asyncio.gather(visit.data.bounds(names), optional_sizes(visit))
    content = await readers(visit)
    return {
        "name": topic.name,
        "records": sum(ends[name] - starts[name] for name in ends),
        "size": _size_of(topic, sizes),
        "groups": [row["group"].group_id for row in content.values["rows"]],
    }


async def delete(visit: Visit, form: Form) -> Done:
    """Delete a topic."""
    name = visit.path("topic")
    refuse_internal(await find_topic(visit))
    confirmed(form, name)
    await visit.data.admin.delete_topic(name)
    return Done(f"deleted topic {name}", "/console/topics")


def refuse_internal(topic: TopicView) -> None:
    """The cluster itself writes internal topics."""
    if is_internal(topic):
        raise Refused(f"{topic.name} is an internal topic: use the command line if you are sure")


async def show_partitions(visit: Visit, form: Form) -> dict[str, Any]:
    """How many partitions there are."""
    topic = await find_topic(visit)
    return {"name": topic.name, "count": len(topic.partitions)}


async def add_partitions(visit: Visit, form: Form) -> Done:
    """Add partitions."""
    name = visit.path("topic")
    total = whole(form, "total", "the number of partitions", least=1, most=100_000)
    if total is None:
        raise Refused("enter the number of partitions")
    await visit.data.admin.add_partitions(name, total)
    return Done(f"{name} has {total} partitions")


async def show_purge(visit: Visit, form: Form) -> dict[str, Any]:
    """What is lost by deleting records."""
    return await show_delete(visit, form)


async def purge(visit: Visit, form: Form) -> Done:
    """Delete all records of a topic."""
    topic = await find_topic(visit)
    refuse_internal(topic)
    confirmed(form, topic.name)
    await visit.data.admin.delete_records(
        {TopicPartition(topic.name, view.partition): -1 for view in topic.partitions}
    )
    return Done(f"deleted all records of {topic.name}")


async def show_setting(visit: Visit, form: Form) -> dict[str, Any]:
    """One setting of a topic, broker or the cluster."""
    kind, name = setting_owner(visit)
    key = visit.query.get("key", form.get("key", ""))
    found = await visit.data.admin.settings(kind, name, keys=[key] if key else None, documentation=True)
    setting = next((each for each in found if each.name == key), None)
    if setting is None and kind is not ResourceType.BROKER:
        raise Refused(f"there is no setting {key}", 404)
    return {"owner": kind.name.lower(), "name": name, "key": key, "setting": setting}


async def change_setting(visit: Visit, form: Form) -> Done:
    """Set or reset one setting."""
    kind, name = setting_owner(visit)
    key = required(form, "key", "the name of a setting")
    change: tuple[str, AlterOperation, str | None]
    if "reset" in form:
        change = (key, AlterOperation.DELETE, None)
    else:
        change = (key, AlterOperation.SET, form.get("value", ""))
    await visit.data.admin.alter_settings(kind, name, [change])
    verb = "reset" if "reset" in form else "set"
    return Done(f"{verb} {key} of {kind.name.lower()} {name or 'default'}")


def setting_owner(visit: Visit) -> tuple[ResourceType, str]:
    """The resource whose settings an address names."""
    if "topic" in visit.request.path_params:
        return ResourceType.TOPIC, visit.path("topic")
    broker = visit.path("broker")
    return ResourceType.BROKER, "" if broker == "default" else broker


async def show_reassign(visit: Visit, form: Form) -> dict[str, Any]:
    """The replicas of one partition."""
    topic = await find_topic(visit)
    number = int(visit.path("partition"))
    if number >= len(topic.partitions):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{number}")
    partition = TopicPartition(topic.name, number)
    moving = await _moving(visit)
    return {
        "partition": partition,
        "view": topic.partitions[number],
        "target": moving.get(partition),
        "brokers": (await visit.data.brokers.get()).brokers,
    }


async def reassign(visit: Visit, form: Form) -> Done:
    """Reassign the replicas of a partition, or cancel its reassignment."""
    topic = await find_topic(visit)
    partition = TopicPartition(topic.name, int(visit.path("partition")))
    if "cancel" in form:
        await visit.data.cluster_admin.reassign({partition: None})
        return Done(f"cancelled the reassignment of {partition}")
    words = required(form, "replicas", "the ids of brokers").replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise Refused("replicas are ids of brokers, separated by commas; the first one leads")
    await visit.data.cluster_admin.reassign({partition: [int(word) for word in words]})
    return Done(f"reassigning {partition} to {', '.join(words)}")
