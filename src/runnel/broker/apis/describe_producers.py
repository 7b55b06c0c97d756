"""DescribeProducers: producer state of partitions."""

import asyncio

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import DESCRIBED_PRODUCERS_MAX, SLICE_ELEMENTS


@handles(DescribeProducersRequest)
async def describe_producers(request: DescribeProducersRequest, ctx: Context) -> DescribeProducersResponse:
    """Describe the active producers of partitions; other requests are served in between.

    Followers answer as well: `kafka-transactions.sh find-hanging` queries all replicas of one broker.
    """
    response = DescribeProducersResponse()
    described, room = 0, SLICE_ELEMENTS
    for topic in request.topics:
        results: list[PartitionResponse] = []
        response.topics.append(TopicResponse(topic.name, results))
        for index in topic.partition_indexes:
            if described > DESCRIBED_PRODUCERS_MAX:
                message = f"more than {DESCRIBED_PRODUCERS_MAX} producers in one response"
                results.append(PartitionResponse(index, ErrorCode.INVALID_REQUEST.code, message))
                continue
            results.append(_describe(topic.name, index, ctx))
            weight = 1 + len(results[-1].active_producers)
            described, room = described + weight, room - weight
            if room <= 0:
                ctx.is_large = True
                room = SLICE_ELEMENTS
                await asyncio.sleep(0)
    return response


def _describe(topic: str, index: int, ctx: Context) -> PartitionResponse:
    try:
        partition = ctx.broker.partition(topic, index)
    except ApiError as error:
        return PartitionResponse(index, error.code, str(error))
    return PartitionResponse(
        index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_transaction_start_offset,
            )
            for producer in partition.log.producers()
        ],
    )
