"""AddPartitionsToTxn: add partitions to a transaction."""

from itertools import groupby

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.broker.runtime.transaction_coordinator import error_for_version
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

_FENCED_VERSION = 2
_BATCHED_VERSION = 4

Errors = dict[TopicPartition, ErrorCode]


@handles(AddPartitionsToTxnRequest)
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, ctx: Context
) -> MaybePromise[AddPartitionsToTxnResponse]:
    """Add the partitions of each transaction atomically.

    v2 PRODUCER_FENCED · v3 flexible · v4 batched, for use by brokers · v5 TRANSACTION_ABORTABLE
    """
    if ctx.api_version >= _BATCHED_VERSION:
        return gather(
            [_add(transaction, ctx) for transaction in request.transactions],
            lambda outcomes: AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(transaction.transactional_id, _topics(errors, ctx))
                    for transaction, errors in zip(request.transactions, outcomes, strict=True)
                ]
            ),
        )
    transaction = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return gather(
        [_add(transaction, ctx)],
        lambda outcomes: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(outcomes[0], ctx)),
    )


def _add(transaction: AddPartitionsToTxnTransaction, ctx: Context) -> MaybePromise[Errors]:
    partitions = [
        TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions
    ]
    image = ctx.broker.metadata.image
    missing = {partition for partition in partitions if image.partition(*partition) is None}
    if missing:
        return {
            partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition in missing
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for partition in partitions
        }
    transactions = ctx.broker.transactions
    identity = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        return transactions.verify(*identity, partitions, adds=False)
    return transactions.add(*identity, partitions)


def _topics(errors: Errors, ctx: Context) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic,
            [
                AddPartitionsToTxnPartitionResult(
                    partition.partition,
                    error_for_version(errors[partition], ctx.api_version, _FENCED_VERSION).code,
                )
                for partition in group
            ],
        )
        for topic, group in groupby(errors, key=lambda partition: partition.topic)
    ]
