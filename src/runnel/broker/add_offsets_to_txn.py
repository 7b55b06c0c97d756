"""AddOffsetsToTxn: a transaction is about to commit offsets of this group."""

from typing import Any

from runnel.broker.context import Context
from runnel.broker.handlers import handles
from runnel.broker.shards import gather
from runnel.broker.transactions import told_as
from runnel.controller.values import CONSUMER_OFFSETS
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from runnel.model.errors import ErrorCode, Refusal
from runnel.model.ids import TopicPartition

_FENCED_FROM = 2


@handles(AddOffsetsToTxnRequest)
def add_offsets_to_txn(request: AddOffsetsToTxnRequest, ctx: Context) -> Any:
    """Make the partition that keeps the group's offsets a part of the transaction.

    v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE
    """
    try:
        index = ctx.broker.groups.partition_of(request.group_id)
    except Refusal:
        # Clients look for the coordinator of transactions again, and find the group's on the way.
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE.code)
    partition = TopicPartition(CONSUMER_OFFSETS, index)
    added = ctx.broker.transactions.add(
        request.transactional_id, request.producer_id, request.producer_epoch, [partition]
    )

    def answer(outcomes: list[dict[TopicPartition, ErrorCode]]) -> AddOffsetsToTxnResponse:
        error = told_as(outcomes[0][partition], ctx.api_version, _FENCED_FROM)
        return AddOffsetsToTxnResponse(error_code=error.code)

    return gather([added], answer)
