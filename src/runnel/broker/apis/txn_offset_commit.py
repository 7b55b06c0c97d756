"""TxnOffsetCommit: commit offsets of a group within a transaction."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.group_coordinator import GroupDriver
from runnel.broker.runtime.promise import MaybePromise, chain
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.image import MetadataImage
from runnel.coordinator.contract import CoordinatorResult
from runnel.log.producers import Guard
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_ID, TopicPartition

_LOADING_VERSION = 2
_ABORTABLE_VERSION = 4
_ADD_GROUP_VERSION = 5
_NO_SEQUENCE = -1

_VERIFICATION_ERRORS = {
    # All producers handle INVALID_PRODUCER_EPOCH.
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # The transaction coordinator was not reached: the client retries here, without looking for another one.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


@handles(TxnOffsetCommitRequest)
def txn_offset_commit(request: TxnOffsetCommitRequest, ctx: Context) -> MaybePromise[TxnOffsetCommitResponse]:
    """Store offsets of existing partitions as pending until the transaction completes.

    v2 leader epoch, COORDINATOR_LOAD_IN_PROGRESS · v3 flexible, member and generation ·
    v4 TRANSACTION_ABORTABLE · v5 adds the group to the transaction (KIP-890)
    """
    image = ctx.broker.metadata.image
    refused = [_split(topic, image) for topic in request.topics]
    ids = {topic.name: image.topics[topic.name].id for topic in request.topics if topic.partitions}

    def refuse(error: ErrorCode) -> TxnOffsetCommitResponse:
        seen = _client_error(error, ctx.api_version)
        topics = [TxnOffsetCommitResponseTopic(topic.name, _answers(topic, seen)) for topic in request.topics]
        return _merged(TxnOffsetCommitResponse(topics=topics), refused)

    if not any(topic.partitions for topic in request.topics):
        return refuse(ErrorCode.NONE)
    if not request.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    try:
        driver = ctx.broker.groups.driver_of(request.group_id)
    except ApiError as api_error:
        return refuse(api_error.error)
    partition = driver.partition
    identity = request.producer_id, request.producer_epoch
    guard: Guard | None = None
    adds = ctx.api_version >= _ADD_GROUP_VERSION

    def verified(errors: dict[TopicPartition, ErrorCode]) -> MaybePromise[TxnOffsetCommitResponse]:
        error = errors.get(partition.name, ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            return refuse(_VERIFICATION_ERRORS.get(error, error))
        return ctx.broker.groups.write(request.group_id, decide, refuse)

    def decide(current: GroupDriver) -> CoordinatorResult[TxnOffsetCommitResponse]:
        _check_guard(current.partition, identity, guard, adds_group=adds)
        decision = current.shard.commit_in_transaction(
            request, ctx.api_version, lambda name: ids.get(name, NO_ID), current.now()
        )
        if decision.response is not None:
            _merged(decision.response, refused)
        return decision

    errors: MaybePromise[dict[TopicPartition, ErrorCode]] = {}
    if not partition.log.has_open_transaction(*identity):
        guard = partition.log.guard_transaction(*identity, _NO_SEQUENCE)
        errors = ctx.broker.transactions.verify(request.transactional_id, *identity, [partition.name], adds)
    return chain(errors, verified)


def _check_guard(
    partition: ReplicatedLog, identity: tuple[int, int], guard: Guard | None, *, adds_group: bool
) -> None:
    """Reject a batch whose transaction completed during verification: it would start a hanging one."""
    if guard is None or partition.log.has_open_transaction(*identity):
        return
    if adds_group and not partition.log.is_guarded(guard):
        # Probably the marker of the previous transaction, which has another epoch: verify it again.
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "a transaction of the producer completed")
    partition.log.check_guard(guard, _NO_SEQUENCE, needs_start=False)


def _client_error(error: ErrorCode, api_version: int) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < _LOADING_VERSION:
        # Producers of older versions treat COORDINATOR_LOAD_IN_PROGRESS as fatal.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _split(
    topic: TxnOffsetCommitRequestTopic, image: MetadataImage
) -> list[TxnOffsetCommitResponsePartition]:
    """Remove partitions that do not exist from the request; returns their error responses."""
    known = image.topics.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers = [
        TxnOffsetCommitResponsePartition(index, error.code)
        for part in topic.partitions
        if not 0 <= (index := part.partition_index) < count
    ]
    if answers:
        topic.partitions = [part for part in topic.partitions if 0 <= part.partition_index < count]
    return answers


def _answers(topic: TxnOffsetCommitRequestTopic, error: ErrorCode) -> list[TxnOffsetCommitResponsePartition]:
    return [TxnOffsetCommitResponsePartition(part.partition_index, error.code) for part in topic.partitions]


def _merged(
    response: TxnOffsetCommitResponse, refused: list[list[TxnOffsetCommitResponsePartition]]
) -> TxnOffsetCommitResponse:
    for topic, answers in zip(response.topics, refused, strict=True):
        topic.partitions += answers
    return response
