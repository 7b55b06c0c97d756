"""WriteTxnMarkers: append transaction markers, sent by coordinators and by `runnel txn abort`."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, Promise, gather, settled
from runnel.broker.runtime.slices import weighs_more
from runnel.broker.runtime.txn_markers import Marker, write_marker
from runnel.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

MARKERS_PER_STEP = 100
"""Markers that are appended before other requests are served: each is a write to the log of a partition."""

Outcome = tuple[int, TopicPartition, ErrorCode]


@handles(WriteTxnMarkersRequest)
def write_txn_markers(request: WriteTxnMarkersRequest, ctx: Context) -> MaybePromise[WriteTxnMarkersResponse]:
    """Append markers to their partitions; the response is sent when all accepted markers are committed.

    v1 flexible · v2 transaction version
    """
    if weighs_more(request, ("markers", "topics", "partition_indexes"), MARKERS_PER_STEP):
        ctx.is_large = True
        return ctx.broker.run(_write_in_steps(request, ctx.broker))
    outcomes = [_write(ctx.broker, *wanted) for wanted in _markers(request)]
    return gather(outcomes, partial(_response, request))


async def _write_in_steps(request: WriteTxnMarkersRequest, broker: Broker) -> WriteTxnMarkersResponse:
    outcomes: list[Promise[Outcome]] = []
    for wanted in _markers(request):
        outcomes.append(_write(broker, *wanted))
        if len(outcomes) % MARKERS_PER_STEP == 0:
            await asyncio.sleep(0)
    return await settled(gather(outcomes, partial(_response, request)))


def _markers(request: WriteTxnMarkersRequest) -> Iterator[tuple[Marker, TopicPartition]]:
    for wanted in request.markers:
        marker = Marker(
            wanted.producer_id,
            wanted.producer_epoch,
            wanted.coordinator_epoch,
            wanted.transaction_result,
            wanted.transaction_version,
        )
        for topic in wanted.topics:
            for index in topic.partition_indexes:
                yield marker, TopicPartition(topic.name, index)


def _write(broker: Broker, marker: Marker, name: TopicPartition) -> Promise[Outcome]:
    outcome: Promise[Outcome] = Promise()
    write_marker(broker, marker, name, lambda name, error: outcome.resolve((marker.producer_id, name, error)))
    return outcome


def _response(request: WriteTxnMarkersRequest, outcomes: Iterable[Outcome]) -> WriteTxnMarkersResponse:
    # Kafka's coordinator looks up outcomes by producer id: each must be there, and once, even if the request
    # has several markers of a producer.
    results: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]]
    results = {wanted.producer_id: {} for wanted in request.markers}
    for producer_id, (topic, index), error in outcomes:
        result = WritableTxnMarkerPartitionResult(index, error.code)
        results[producer_id].setdefault(topic, []).append(result)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id, [WritableTxnMarkerTopicResult(*topic) for topic in topics.items()]
            )
            for producer_id, topics in results.items()
        ]
    )
