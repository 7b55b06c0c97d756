"""WriteTxnMarkers: append transaction markers, sent by coordinators and by `runnel txn abort`."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, Promise, gather, settled
from runnel.broker.runtime.slices import weighs_more
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
from runnel.model.limits import SLICE_ELEMENTS

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
    return gather(outcomes, partial(_answered, request))


def _answered(request: WriteTxnMarkersRequest, outcomes: Iterable[Outcome]) -> WriteTxnMarkersResponse:
    results = _Results()
    results.name(request.markers)
    results.add(outcomes)
    return WriteTxnMarkersResponse(markers=list(results.markers()))


async def _write_in_steps(request: WriteTxnMarkersRequest, broker: Broker) -> WriteTxnMarkersResponse:
    markers = _markers(request)
    steps: list[MaybePromise[list[Outcome]]] = []
    while wanted := list(islice(markers, MARKERS_PER_STEP)):
        steps.append(gather([_write(broker, *each) for each in wanted], list))
        await asyncio.sleep(0)
    results = _Results()
    for first in range(0, len(request.markers), SLICE_ELEMENTS):
        results.name(request.markers[first : first + SLICE_ELEMENTS])
        await asyncio.sleep(0)
    for step in steps:
        outcomes = await settled(step)
        results.add(outcomes)
        await asyncio.sleep(0)
    response, answered = WriteTxnMarkersResponse(), results.markers()
    while some := list(islice(answered, SLICE_ELEMENTS)):
        response.markers += some
        await asyncio.sleep(0)
    return response


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


class _Results:
    """The outcomes of a request, by producer id, topic and partition.

    Kafka's coordinator looks up outcomes by producer id: each must be there, and once, even if the request
    has several markers of a producer.
    """

    def __init__(self) -> None:
        self._results: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}

    def name(self, markers: Iterable[WritableTxnMarker]) -> None:
        """These markers have outcomes."""
        for wanted in markers:
            self._results.setdefault(wanted.producer_id, {})

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for producer_id, (topic, index), error in outcomes:
            result = WritableTxnMarkerPartitionResult(index, error.code)
            self._results[producer_id].setdefault(topic, []).append(result)

    def markers(self) -> Iterator[WritableTxnMarkerResult]:
        """The outcomes, by producer id."""
        for producer_id, topics in self._results.items():
            named = [WritableTxnMarkerTopicResult(*topic) for topic in topics.items()]
            yield WritableTxnMarkerResult(producer_id, named)
