"""AddOffsetsToTxn: add a group's offsets partition to a transaction."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, chain, settled
from runnel.broker.runtime.transaction_coordinator import error_for_version
from runnel.controller.values import CONSUMER_OFFSETS
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition

_FENCED_VERSION = 2


@handles(AddOffsetsToTxnRequest)
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, ctx: Context
) -> MaybePromise[AddOffsetsToTxnResponse]:
    """Add the partition of __consumer_offsets that stores the group's offsets.

    v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE
    """
    if CONSUMER_OFFSETS not in ctx.broker.metadata.image.topics:
        return ctx.broker.run(_add_to_new_topic(request, ctx))
    return _add(request, ctx)


async def _add_to_new_topic(request: AddOffsetsToTxnRequest, ctx: Context) -> AddOffsetsToTxnResponse:
    # Clients send FindCoordinator for the group only after this request, so the topic may not exist yet.
    try:
        await ctx.broker.auto_creation.ensure_internal(CONSUMER_OFFSETS)
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    return await settled(_add(request, ctx))


def _add(request: AddOffsetsToTxnRequest, ctx: Context) -> MaybePromise[AddOffsetsToTxnResponse]:
    try:
        index = ctx.broker.groups.partition_of(request.group_id)
    except ApiError as api_error:
        return AddOffsetsToTxnResponse(error_code=api_error.code)
    partition = TopicPartition(CONSUMER_OFFSETS, index)
    added = ctx.broker.transactions.add(
        request.transactional_id, request.producer_id, request.producer_epoch, [partition]
    )

    def answer(errors: dict[TopicPartition, ErrorCode]) -> AddOffsetsToTxnResponse:
        error = error_for_version(errors[partition], ctx.api_version, _FENCED_VERSION)
        return AddOffsetsToTxnResponse(error_code=error.code)

    return chain(added, answer)
