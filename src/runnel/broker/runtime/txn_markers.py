"""Transaction markers: written here, for a coordinator anywhere, and sent to leaders on other brokers.

    shard ──▶ send ──▶ a partition led here: `write_marker`
                  └──▶ elsewhere: WriteTxnMarkers, batched per broker ──▶ `write_marker` there

A marker is reported for each partition, once: as written, or with the error after which the shard tries again
with the leader that is known by then.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.broker.runtime.node_queues import REQUEST_TIMEOUT_MS, NodeQueues
from runnel.controller.values import CONSUMER_OFFSETS
from runnel.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER, TopicPartition
from runnel.ports.clock import TimerHandle, Timers

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

OnMarked = Callable[[TopicPartition, ErrorCode], None]
"""Called for each partition with the outcome of its marker."""

MARKERS_PER_REQUEST = 1000
"""Number of partitions in one request, which the receiver appends to one after the other."""

REPORTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""The outcomes that Kafka's coordinator expects. Any other one stops its process."""

_OTHER_ERRORS = {
    # The group coordinator writes the markers of its partitions.
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


@dataclass(slots=True)
class Marker:
    """The outcome of a producer's transaction, and the epoch of its coordinator."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


class _Awaited:
    """A marker that was appended and waits for its commit, for a limited time."""

    __slots__ = ("_name", "_on_marked", "_timer", "end_offset")

    def __init__(self, end_offset: int, name: TopicPartition, on_marked: OnMarked, timers: Timers) -> None:
        self.end_offset = end_offset
        self._name = name
        self._on_marked = on_marked
        self._timer: TimerHandle | None = timers.call_later(REQUEST_TIMEOUT_MS, self._expired)

    def committed(self) -> None:
        self._report(ErrorCode.NONE)

    def failed(self, error: ApiError) -> None:
        self._report(error.error)

    def _expired(self) -> None:
        # It may be committed later; a marker may be repeated.
        self._report(ErrorCode.REQUEST_TIMED_OUT)

    def _report(self, error: ErrorCode) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._on_marked(self._name, _reported(error))


def write_marker(broker: "Broker", marker: Marker, name: TopicPartition, on_marked: OnMarked) -> None:
    """Write a marker to a partition that this node leads; `on_marked` gets one of REPORTED."""
    try:
        partition = broker.partition(*name)
        staged = partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.is_commit,
            broker.clock.now_ms(),
            marker.transaction_version,
        )
        if name.topic == CONSUMER_OFFSETS:
            broker.groups.transaction_ended(
                name.partition, marker.producer_id, marker.producer_epoch, marker.is_commit
            )
    except ApiError as error:
        on_marked(name, _reported(error.error))
        return
    except Exception as bug:  # noqa: BLE001 - reported; other markers of the request are written
        broker.bugs.report(bug, "%s: a transaction marker was not written", name)
        on_marked(name, ErrorCode.KAFKA_STORAGE_ERROR)
        return
    partition.when_committed(_Awaited(staged.last_offset + 1, name, on_marked, broker.timers))


def _reported(error: ErrorCode) -> ErrorCode:
    if error in REPORTED:
        return error
    return _OTHER_ERRORS.get(error, ErrorCode.KAFKA_STORAGE_ERROR)


@dataclass(slots=True)
class _Remote:
    """A marker for one partition that another broker leads."""

    marker: Marker
    partition: TopicPartition
    is_wanted: Callable[[], bool]
    on_marked: OnMarked


class MarkerSender(NodeQueues[_Remote]):
    """Sends the markers of the transaction coordinator to the leaders of their partitions."""

    purpose = "markers"

    def send(
        self,
        marker: Marker,
        partitions: Iterable[TopicPartition],
        is_wanted: Callable[[], bool],
        on_marked: OnMarked,
    ) -> None:
        """Write a marker to these partitions; `on_marked` is called for each, now or later.

        Markers that are not on their way when `is_wanted` returns False are dropped.
        """
        remote: dict[int, list[_Remote]] = {}
        for name in partitions:
            leader = self._leader(name)
            if leader is None:
                # Deleted: the image is at least as new as when the partition was added to the transaction.
                on_marked(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif leader == self._broker.node_id:
                write_marker(self._broker, marker, name, on_marked)
            elif leader == NO_LEADER:
                on_marked(name, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                remote.setdefault(leader, []).append(_Remote(marker, name, is_wanted, on_marked))
        for leader, items in remote.items():
            self.add(leader, *items)

    def _leader(self, name: TopicPartition) -> int | None:
        state = self._broker.metadata.image.partition(*name)
        return None if state is None else state.leader

    def _responsible(self, item: _Remote) -> int:
        leader = self._leader(item.partition)
        return NO_LEADER if leader is None or not item.is_wanted() else leader

    def _take(self, waiting: deque[_Remote]) -> list[_Remote]:
        # Outcomes are reported by producer id: two markers of one producer need two requests.
        markers: dict[int, Marker] = {}
        taken: list[_Remote] = []
        while waiting and len(taken) < MARKERS_PER_REQUEST:
            item = waiting[0]
            if item.is_wanted():
                marker = markers.setdefault(item.marker.producer_id, item.marker)
                if marker != item.marker:
                    break
                taken.append(item)
            waiting.popleft()
        return taken

    def _request(self, items: list[_Remote]) -> WriteTxnMarkersRequest:
        topics: dict[int, dict[str, list[int]]] = {}
        markers: dict[int, Marker] = {}
        for item in items:
            producer_id = item.marker.producer_id
            markers[producer_id] = item.marker
            topic, index = item.partition
            topics.setdefault(producer_id, {}).setdefault(topic, []).append(index)
        return WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    producer_id,
                    marker.producer_epoch,
                    marker.is_commit,
                    [WritableTxnMarkerTopic(*topic) for topic in topics[producer_id].items()],
                    marker.coordinator_epoch,
                    marker.transaction_version,
                )
                for producer_id, marker in markers.items()
            ]
        )

    def _answered(self, items: list[_Remote], response: WriteTxnMarkersResponse) -> None:
        outcomes = {
            (result.producer_id, topic.name, part.partition_index): part.error_code
            for result in response.markers
            for topic in result.topics
            for part in topic.partitions
        }
        missing = ErrorCode.REQUEST_TIMED_OUT.code
        for item in items:
            code = outcomes.get((item.marker.producer_id, *item.partition), missing)
            error = ErrorCode.from_code(code)
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # The leader's metadata may be behind: only the own image shows that a topic was deleted.
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            item.on_marked(item.partition, error)

    def _failed(self, items: list[_Remote], error: Exception) -> None:
        for item in items:
            item.on_marked(item.partition, ErrorCode.NETWORK_EXCEPTION)
