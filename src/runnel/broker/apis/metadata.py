"""Metadata: who leads which partition, and where to find them."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context, Encoded
from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.topic_cards import TopicCards
from runnel.broker.runtime.topic_creation import create_missing_topics
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

# What everybody may do while there is no security: bits by Kafka's numbers of operations.
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096

Answer = MetadataResponse | Encoded | Promise[MetadataResponse]


@handles(MetadataRequest)
def metadata(request: MetadataRequest, ctx: Context) -> Answer:
    """Describe brokers and the topics that are asked for, and make the missing ones if that is wanted.

    v1 controller, rack, an empty list is no topic · v2 cluster id · v4 creation may be forbidden ·
    v5 offline replicas · v7 leader epoch · v8 authorized operations · v9 flexible · v10 topic ids ·
    v12 topics by id · v13 top-level error
    """
    ctx.broker.topic_cards.refresh(ctx.broker.metadata.image)
    if _wants_all(request, ctx):
        return _listing(request, ctx)
    missing = _to_create(request, ctx)
    if missing:
        return ctx.broker.run(_create_and_answer(missing, request, ctx))
    return _answer(request, ctx, {})


def _wants_all(request: MetadataRequest, ctx: Context) -> bool:
    return request.topics is None or (ctx.api_version == 0 and not request.topics)


def _listing(request: MetadataRequest, ctx: Context) -> Encoded:
    """All topics: with thousands of them, worth encoding only once per image."""
    listings = ctx.broker.topic_cards.listings
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
    """The topics that do not exist but may come into being by being asked for."""
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
    return [name for name in missing if _is_legal(name)]


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
    cards = ctx.broker.topic_cards
    # The image may have changed while topics were made.
    cards.refresh(ctx.broker.metadata.image)
    if request.topics is None or _wants_all(request, ctx):
        return cards.all()
    # Each topic once, however often it is named: an answer cannot be blown up by repeating a short name.
    different = {(asked.topic_id, asked.name): asked for asked in request.topics}
    return [_topic(asked, cards, ctx, failures) for asked in different.values()]


def _topic(
    asked: MetadataRequestTopic, cards: TopicCards, ctx: Context, failures: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    name, topic_id = asked.name, asked.topic_id
    if ctx.api_version < 12 and (name is None or topic_id != NO_ID):
        return MetadataResponseTopic(ErrorCode.INVALID_REQUEST.code, name or "", topic_id)
    if name is None or topic_id != NO_ID:
        topic = ctx.broker.metadata.image.topics_by_id.get(topic_id)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID.code, None, topic_id)
        name = topic.name
    card = cards.named(name)
    if card is not None:
        return card
    error = failures.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not _is_legal(name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error.code, name)


def _is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    # Cards are shared by all answers, so this one gets its own.
    if topic.error_code:
        return topic
    return MetadataResponseTopic(
        topic.error_code, topic.name, topic.topic_id, topic.is_internal, topic.partitions, TOPIC_OPERATIONS
    )
