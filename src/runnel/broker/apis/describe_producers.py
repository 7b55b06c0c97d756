"""DescribeProducers: producer state of partitions."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from runnel.model.errors import ApiError


@handles(DescribeProducersRequest)
def describe_producers(request: DescribeProducersRequest, ctx: Context) -> DescribeProducersResponse:
    """Describe the active producers of partitions."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name, [_describe(topic.name, index, ctx) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, ctx: Context) -> PartitionResponse:
    try:
        log = ctx.broker.partition(topic, index).log
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
            for producer in log.producers()
        ],
    )
