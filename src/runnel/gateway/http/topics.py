"""Topics: create, delete, list, describe."""

import asyncio
import uuid

from starlette.responses import Response

from runnel.client.admin import BROKER_DEFAULT, Admin
from runnel.client.cluster import Cluster, TopicView
from runnel.gateway.http.confluent import v2
from runnel.gateway.http.models import NewTopic, Topic
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.requests import NO_STORE, Call
from runnel.gateway.http.retention import to_policy, to_settings
from runnel.gateway.http.topic_names import check_may_change, check_no_system_topic, check_topic_name
from runnel.model.configs import ConfigSource, ResourceType

VISIBLE_S = 5.0
VISIBLE_INTERVAL_S = 0.02


async def create(call: Call) -> Response:
    """Create a topic; on return it can be used."""
    given = await call.json(NewTopic)
    check_topic_name(given.name)
    check_no_system_topic(given.name)
    policy = {} if given.retention_policy is None else to_settings(given.retention_policy)
    if both := sorted(policy.keys() & given.settings.keys()):
        raise Problem(422, f"{both[0]} is set both by retentionPolicy and by settings")
    await Admin(call.cluster).create_topic(
        given.name,
        partitions=given.partitions or BROKER_DEFAULT,
        replication_factor=given.replication_factor or BROKER_DEFAULT,
        settings={**policy, **given.settings},
    )
    call.principal.topics.invalidate()
    # Brokers learn of it at different times.
    view = await call.cluster.topic(given.name, missing_s=VISIBLE_S)
    headers = {"location": f"/topics/{given.name}"}
    return call.answer(await described(call.cluster, view), 201, headers)


async def delete(call: Call) -> Response:
    """Delete a topic with all its records; on return it no longer exists."""
    call.cluster.invalidate_topic(call.topic)
    check_may_change(await call.topic_view())
    await Admin(call.cluster).delete_topic(call.topic)
    await _until_gone(call.cluster, call.topic)
    call.principal.topics.invalidate()
    return Response(status_code=204, headers=NO_STORE)


async def _until_gone(cluster: Cluster, name: str) -> None:
    deadline_s = asyncio.get_running_loop().time() + VISIBLE_S
    while asyncio.get_running_loop().time() < deadline_s:
        response = await cluster.refresh([name])
        if response.topics[0].error_code:
            return
        await asyncio.sleep(VISIBLE_INTERVAL_S)
    cluster.invalidate_topic(name)


async def names(call: Call) -> Response:
    """The names of all topics."""
    return call.answer([view.name for view in await call.principal.topics.get()])


async def describe(call: Call) -> Response:
    """A topic and its settings."""
    view = await call.topic_view()
    if call.accepts(v2.MEDIA_TYPE):
        return await v2.topic(call, view)
    return call.answer(await described(call.cluster, view))


async def described(cluster: Cluster, view: TopicView) -> Topic:
    """What is known of a topic."""
    settings = await Admin(cluster).settings(ResourceType.TOPIC, view.name)
    in_force = {setting.name: setting.value for setting in settings if not setting.is_sensitive}
    return Topic(
        view.name,
        str(uuid.UUID(bytes=bytes(view.topic_id))),
        len(view.partitions),
        len(view.partitions[0].replicas) if view.partitions else 0,
        to_policy(in_force),
        view.is_internal,
        {setting.name: setting.value for setting in settings if setting.source is ConfigSource.TOPIC},
    )
