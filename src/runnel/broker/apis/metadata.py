"""Metadata: brokers, topics and partition leaders."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context, Encoded
from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.topic_creation import create_missing_topics
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
from runnel.model.ids import NO_ID
from runnel.wire import encoded

# Operations allowed without an authorizer, as bit fields of Kafka's AclOperation codes.
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096

Answer = MetadataResponse | Encoded | Promise[MetadataResponse]


@handles(MetadataRequest)
def metadata(request: MetadataRequest, ctx: Context) -> Answer:
    """Describe brokers and the requested topics; auto-create missing topics if allowed.

    v1 controller, rack, empty list for no topics · v2 cluster id · v4 allow auto topic creation ·
    v5 offline replicas · v7 leader epoch · v8 authorized operations · v9 flexible · v10 topic ids ·
    v12 topics by id · v13 top-level error
    """
    ctx.broker.topic_metadata.refresh(ctx.broker.metadata.image)
    if _is_for_all_topics(request, ctx):
        return _listing(request, ctx)
    missing = _to_create(request, ctx)
    if missing:
        return ctx.broker.run(_create_and_answer(missing, request, ctx))
    return _answer(request, ctx, {})


def _is_for_all_topics(request: MetadataRequest, ctx: Context) -> bool:
    return request.topics is None or (ctx.api_version == 0 and not request.topics)


def _listing(request: MetadataRequest, ctx: Context) -> Encoded:
    """All topics: encoded once per image, since there may be thousands."""
    listings = ctx.broker.topic_metadata.listings
    key = (
        ctx.api_version,
        ctx.listener,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
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
    return _answer(request, ctx, await create_missing_topics(ctx.broker, names))


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
    own = ctx.broker
    brokers = [MetadataResponseBroker(own.node_id, own.host, own.port, own.rack)]
    for other in own.metadata.image.live_brokers():
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
        return cache.all()
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
        return cached
    error = failures.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not _is_valid_name(name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error.code, name)


def _is_valid_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    # Cached entries are shared by all responses: copy before adding operations.
    if topic.error_code:
        return topic
    return MetadataResponseTopic(
        topic.error_code, topic.name, topic.topic_id, topic.is_internal, topic.partitions, TOPIC_OPERATIONS
    )
