"""Which permissions producers need for transactions and idempotence."""

from typing import Any

from runnel.broker.apis.denials import denied_item, denied_items, empty_response
from runnel.broker.apis.rules import Outcome, on_cluster, on_topic, on_transactional_id, whole
from runnel.broker.apis.txn_partitions import refused_partitions
from runnel.broker.runtime.check import Check
from runnel.broker.runtime.context import Context
from runnel.controller.values import INTERNAL_TOPICS
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.ports.gates import Operation

_BATCHED_VERSION = 4
_IDEMPOTENT_WRITE = on_cluster(Operation.IDEMPOTENT_WRITE)
_of_brokers = whole(lambda _: on_cluster(Operation.CLUSTER_ACTION))


def producer_id(request: Any, ctx: Context, check: Check) -> Outcome:
    """InitProducerId: of a transactional id, or of an idempotent producer (KIP-679)."""
    name = request.transactional_id
    if name is None:
        if check.alternative(_IDEMPOTENT_WRITE) or check.writes_to_some_topic() or check(_IDEMPOTENT_WRITE):
            return None
        return _no_producer_id(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    permissions = [on_transactional_id(Operation.WRITE, name)]
    if request.enable_2pc:
        permissions.append(on_transactional_id(Operation.TWO_PHASE_COMMIT, name))
    if all(check(permission) for permission in permissions):
        return None
    return _no_producer_id(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def begins_search(request: Any, check: Check) -> bool:
    """InitProducerId: look for a topic that the producer may write to; whether that takes more steps."""
    if request.transactional_id is not None or check.shows(_IDEMPOTENT_WRITE):
        return False
    return not check.begin_search()


def _no_producer_id(request: Any, error: ErrorCode) -> Outcome:
    return empty_response(request, error_code=error.code, producer_id=-1, producer_epoch=-1)


def added_partitions(request: Any, ctx: Context, check: Check) -> Outcome:
    """AddPartitionsToTxn: from clients up to v3, from brokers above. One denied topic rejects all."""
    if ctx.api_version >= _BATCHED_VERSION:
        return _of_brokers(request, ctx, check)
    array, into = "v3_and_below_topics", "results_by_topic_v3_and_below"
    if not check(on_transactional_id(Operation.WRITE, request.v3_and_below_transactional_id)):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return denied_items(array, into)(request, error)
    topics = request.v3_and_below_topics
    denied = {topic.name for topic in topics if not check(on_topic(Operation.WRITE, topic.name))}
    if not denied:
        return None
    named = (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)
    errors = refused_partitions(ctx.broker.metadata.image, named, denied | INTERNAL_TOPICS)
    answers = [denied_item(request, into, topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in topics]
    for answer in answers:
        for part in answer.results_by_partition:
            named_part = TopicPartition(answer.name, part.partition_index)
            part.partition_error_code = errors.get(named_part, ErrorCode.OPERATION_NOT_ATTEMPTED).code
    return empty_response(request, **{into: answers})
