"""AddPartitionsToTxn: add partitions to a transaction."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import groupby

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.txn_partitions import refused_partitions
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, gather, settled
from runnel.broker.runtime.slices import weighs_more
from runnel.broker.runtime.transaction_coordinator import error_for_version
from runnel.controller.values import INTERNAL_TOPICS
from runnel.coordinator.txn.settings import TRANSACTION_V2
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
from runnel.model.limits import SLICE_ELEMENTS

_FENCED_VERSION = 2
_BATCHED_VERSION = 4

Errors = dict[TopicPartition, ErrorCode]


@handles(AddPartitionsToTxnRequest)
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, ctx: Context
) -> MaybePromise[AddPartitionsToTxnResponse]:
    """Add the partitions of each transaction atomically: all or none.

    v2 PRODUCER_FENCED · v3 flexible · v4 batched, for use by brokers · v5 TRANSACTION_ABORTABLE
    """
    if weighs_more(request, ("transactions", "topics", "partitions"), SLICE_ELEMENTS) or weighs_more(
        request, ("v3_and_below_topics", "partitions"), SLICE_ELEMENTS
    ):
        ctx.is_large = True
        return ctx.broker.run(_serve_large(request, ctx))
    if ctx.api_version >= _BATCHED_VERSION:
        return gather(
            [_add(transaction, _partitions(transaction), ctx) for transaction in request.transactions],
            lambda outcomes: AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(transaction.transactional_id, _topics(errors, ctx))
                    for transaction, errors in zip(request.transactions, outcomes, strict=True)
                ]
            ),
        )
    transaction = _single(request)
    return gather(
        [_add(transaction, _partitions(transaction), ctx)],
        lambda outcomes: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(outcomes[0], ctx)),
    )


async def _serve_large(request: AddPartitionsToTxnRequest, ctx: Context) -> AddPartitionsToTxnResponse:
    """Each transaction is decided as a whole; other requests are served before and after."""
    is_batched = ctx.api_version >= _BATCHED_VERSION
    response = AddPartitionsToTxnResponse()
    for transaction in request.transactions if is_batched else [_single(request)]:
        partitions = await _in_steps(_partitions(transaction))
        errors = await settled(_add(transaction, partitions, ctx))
        names = list(errors)
        results: list[AddPartitionsToTxnTopicResult] = []
        for first in range(0, len(names), SLICE_ELEMENTS):
            added = _topics({name: errors[name] for name in names[first : first + SLICE_ELEMENTS]}, ctx)
            if results and results[-1].name == added[0].name:
                results[-1].results_by_partition += added.pop(0).results_by_partition
            results += added
            await asyncio.sleep(0)
        if is_batched:
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(transaction.transactional_id, results)
            )
        else:
            response.results_by_topic_v3_and_below = results
    return response


async def _in_steps(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The different partitions of a transaction; other requests are served meanwhile."""
    different: dict[TopicPartition, None] = {}
    for count, partition in enumerate(partitions):
        different[partition] = None
        if count % SLICE_ELEMENTS == SLICE_ELEMENTS - 1:
            await asyncio.sleep(0)
    return list(different)


def _single(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _partitions(transaction: AddPartitionsToTxnTransaction) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions)


def _add(
    transaction: AddPartitionsToTxnTransaction, named: Iterable[TopicPartition], ctx: Context
) -> MaybePromise[Errors]:
    partitions = list(named)
    # Only coordinators write to internal topics, in transactions too.
    denied = INTERNAL_TOPICS if ctx.api_version < _BATCHED_VERSION else ()
    if errors := refused_partitions(ctx.broker.metadata.image, partitions, denied):
        return errors
    transactions = ctx.broker.transactions
    identity = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        return transactions.verify(*identity, partitions, adds=False)
    # Brokers add partitions for clients that bump the epoch with every transaction.
    client_version = TRANSACTION_V2 if ctx.api_version >= _BATCHED_VERSION else 0
    return transactions.add(*identity, partitions, client_version)


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
