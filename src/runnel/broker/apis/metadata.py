"""Metadata: brokers, topics and partition leaders."""

from copy import copy

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context, Encoded
from runnel.broker.runtime.mutation_charge import MutationCharge
from runnel.broker.runtime.promise import Promise, settled
from runnel.broker.runtime.topic_metadata import TopicMetadataCache
from runnel.controller.topic_names import check_topic_name
from runnel.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_ID, NO_LEADER
from runnel.wire import encoded

# All operations, as bit fields of Kafka's AclOperation codes; `access.py` removes those that are denied.
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096

Answer = MetadataResponse | Encoded | Promise[MetadataResponse]


@handles(MetadataRequest)
def metadata(request: MetadataRequest, ctx: Context) -> Answer | Promise[MetadataResponse | Encoded]:
    """Describe brokers and the requested topics; auto-create missing topics if allowed.

    v1 controller, rack, empty list for no topics · v2 cluster id · v4 allow auto topic creation ·
    v5 offline replicas · v7 leader epoch · v8 authorized operations · v9 flexible · v10 topic ids ·
    v12 topics by id · v13 top-level error
    """
    if ctx.broker.suspects and _asks_for_suspects(request, ctx):
        return ctx.broker.run(_answer_when_decided(request, ctx))
    return _describe(request, ctx)


def _asks_for_suspects(request: MetadataRequest, ctx: Context) -> bool:
    """Does a requested partition have a leader that has probably failed?"""
    suspects, image = ctx.broker.suspects, ctx.broker.metadata.image
    if request.topics is None or _is_for_all_topics(request, ctx):
        return bool(suspects)
    names = {asked.name or ctx.broker.topic_name(asked.topic_id) for asked in request.topics}
    topics = (image.topics.get(name) for name in names if name is not None)
    return any(state.leader in suspects for topic in topics if topic for state in topic.partitions)


async def _answer_when_decided(request: MetadataRequest, ctx: Context) -> MetadataResponse | Encoded:
    """Wait briefly for the controller, which has probably detected the failure as well."""
    await ctx.broker.suspects.decided(lambda: not _asks_for_suspects(request, ctx))
    described = _describe(request, ctx)
    if not isinstance(described, Promise):
        return described
    created = await settled(described)
    return created


def _describe(request: MetadataRequest, ctx: Context) -> Answer:
    ctx.broker.topic_metadata.refresh(ctx.broker.metadata.image)
    if _is_for_all_topics(request, ctx):
        return _listing(request, ctx)
    missing = _to_create(request, ctx)
    if missing:
        return ctx.broker.run(_create_and_answer(missing, request, ctx))
    return _answer(request, ctx, {})


def _is_for_all_topics(request: MetadataRequest, ctx: Context) -> bool:
    return request.topics is None or (ctx.api_version == 0 and not request.topics)


def _listing(request: MetadataRequest, ctx: Context) -> MetadataResponse | Encoded:
    """All topics: encoded once per image, since there may be thousands, unless some will be hidden."""
    if ctx.shows_topic is not None:
        return _answer(request, ctx, {})
    listings = ctx.broker.topic_metadata.listings
    key = (
        ctx.api_version,
        ctx.listener,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
        *ctx.broker.suspects,
    )
    body = listings.get(key)
    if body is None:
        body = listings[key] = encoded(_answer(request, ctx, {}), ctx.api_version)
    return Encoded(body)


def _to_create(request: MetadataRequest, ctx: Context) -> list[str]:
    """Missing topics that may be auto-created."""
    if not request.topics or not request.allow_auto_topic_creation:
        return []
    known = ctx.broker.metadata.image.topics
    missing = [
        asked.name
        for asked in request.topics
        if asked.name is not None and asked.name not in known and asked.topic_id == NO_ID
    ]
    if not missing or not ctx.broker.settings["auto.create.topics.enable"]:
        return []
    return [name for name in missing if _is_valid_name(name)]


async def _create_and_answer(names: list[str], request: MetadataRequest, ctx: Context) -> MetadataResponse:
    charge = MutationCharge(ctx, is_strict=False)
    for name in names:
        charge(name, ctx.broker.settings["num.partitions"])
    return _answer(request, ctx, await ctx.broker.auto_creation.create(names))


def _answer(request: MetadataRequest, ctx: Context, failures: dict[str, ErrorCode]) -> MetadataResponse:
    response = MetadataResponse(
        brokers=_brokers(ctx), cluster_id=ctx.broker.cluster_id, controller_id=ctx.broker.node_id
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    response.topics = _topics(request, ctx, failures)
    if request.include_topic_authorized_operations:
        response.topics = [_with_operations(topic) for topic in response.topics]
    return response


def _brokers(ctx: Context) -> list[MetadataResponseBroker]:
    own, address = ctx.broker, ctx.broker.endpoint(ctx.listener)
    brokers = [MetadataResponseBroker(own.node_id, address.host, address.port, own.rack)]
    for other in own.suspects.listed_brokers():
        for endpoint in other.endpoints:
            if endpoint.name == ctx.listener and other.id != own.node_id:
                brokers.append(MetadataResponseBroker(other.id, endpoint.host, endpoint.port, other.rack))
    return brokers


def _topics(
    request: MetadataRequest, ctx: Context, failures: dict[str, ErrorCode]
) -> list[MetadataResponseTopic]:
    cache = ctx.broker.topic_metadata
    # The image may have changed while topics were created.
    cache.refresh(ctx.broker.metadata.image)
    if request.topics is None or _is_for_all_topics(request, ctx):
        return [_without_lost_leaders(topic, ctx) for topic in cache.all()]
    # Each topic once: repeating a short name must not inflate the response.
    different = {(asked.topic_id, asked.name): asked for asked in request.topics}
    return [_topic(asked, cache, ctx, failures) for asked in different.values()]


def _topic(
    asked: MetadataRequestTopic, cache: TopicMetadataCache, ctx: Context, failures: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    name, topic_id = asked.name, asked.topic_id
    if ctx.api_version < 12 and (name is None or topic_id != NO_ID):
        return MetadataResponseTopic(ErrorCode.INVALID_REQUEST.code, name or "", topic_id)
    if name is None or topic_id != NO_ID:
        name = ctx.broker.topic_name(topic_id)
        if name is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID.code, None, topic_id)
    cached = cache.named(name)
    if cached is not None:
        return _without_lost_leaders(cached, ctx)
    error = failures.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not _is_valid_name(name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error.code, name)


def _without_lost_leaders(topic: MetadataResponseTopic, ctx: Context) -> MetadataResponseTopic:
    """The topic without leaders that have probably failed, or may have been replaced: this node itself."""
    suspects, isolated = ctx.broker.suspects, ctx.broker.replication.isolated
    if not suspects and not isolated:
        return topic
    lost = {
        partition.partition_index
        for partition in topic.partitions
        if partition.leader_id in suspects or (topic.name, partition.partition_index) in isolated
    }
    if not lost:
        return topic
    # Cached entries are shared by all responses.
    topic, partitions = copy(topic), [copy(partition) for partition in topic.partitions]
    for partition in partitions:
        if partition.partition_index in lost:
            partition.error_code, partition.leader_id = ErrorCode.LEADER_NOT_AVAILABLE.code, NO_LEADER
    topic.partitions = partitions
    return topic


def _is_valid_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    # Cached entries are shared by all responses: copy before adding operations. An unknown id has no name.
    if topic.name is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID.code:
        return topic
    return MetadataResponseTopic(
        topic.error_code, topic.name, topic.topic_id, topic.is_internal, topic.partitions, TOPIC_OPERATIONS
    )
