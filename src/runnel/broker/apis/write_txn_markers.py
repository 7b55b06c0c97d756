"""WriteTxnMarkers: append transaction markers, sent by coordinators and by `runnel txn abort`."""

from collections import defaultdict

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, Promise, gather
from runnel.broker.runtime.txn_markers import Marker, write_marker
from runnel.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

Outcome = tuple[TopicPartition, ErrorCode]


@handles(WriteTxnMarkersRequest)
def write_txn_markers(request: WriteTxnMarkersRequest, ctx: Context) -> MaybePromise[WriteTxnMarkersResponse]:
    """Append markers to their partitions; the response is sent when all accepted markers are committed.

    v1 flexible · v2 transaction version
    """

    def answer(results: list[list[Outcome]]) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(marker.producer_id, _topics(outcomes))
                for marker, outcomes in zip(request.markers, results, strict=True)
            ]
        )

    return gather([_write(marker, ctx) for marker in request.markers], answer)


def _write(wanted: WritableTxnMarker, ctx: Context) -> MaybePromise[list[Outcome]]:
    marker = Marker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.coordinator_epoch,
        wanted.transaction_result,
        wanted.transaction_version,
    )

    def write(name: TopicPartition) -> Promise[Outcome]:
        outcome: Promise[Outcome] = Promise()
        write_marker(ctx.broker, marker, name, lambda name, error: outcome.resolve((name, error)))
        return outcome

    names = [
        TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partition_indexes
    ]
    return gather([write(name) for name in names], list)


def _topics(outcomes: list[Outcome]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = defaultdict(list)
    for name, error in outcomes:
        topics[name.topic].append(WritableTxnMarkerPartitionResult(name.partition, error.code))
    return [WritableTxnMarkerTopicResult(topic, results) for topic, results in topics.items()]
