"""Writing of transaction markers, for the local coordinator or on request."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.controller.values import CONSUMER_OFFSETS
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

OnMarked = Callable[[TopicPartition, ErrorCode], None]
"""Called for each partition with the outcome of its marker."""


@dataclass(slots=True)
class Marker:
    """The outcome of a producer's transaction, and the epoch of its coordinator."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


class _Awaited:
    """A marker that was appended and waits for its commit."""

    __slots__ = ("_name", "_on_marked", "end_offset")

    def __init__(self, end_offset: int, name: TopicPartition, on_marked: OnMarked) -> None:
        self.end_offset = end_offset
        self._name = name
        self._on_marked = on_marked

    def committed(self) -> None:
        self._on_marked(self._name, ErrorCode.NONE)

    def failed(self, error: ApiError) -> None:
        self._on_marked(self._name, error.error)


def send_markers(
    broker: "Broker", marker: Marker, partitions: Iterable[TopicPartition], on_marked: OnMarked
) -> None:
    """Write a marker to these partitions; `on_marked` is called for each, now or later."""
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for name in partitions:
        state = broker.metadata.image.partition(*name)
        if state is None:
            on_marked(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            by_leader[state.leader].append(name)
    for leader, names in by_leader.items():
        for name in names:
            if leader == broker.node_id:
                write_marker(broker, marker, name, on_marked)
            else:
                on_marked(name, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def write_marker(broker: "Broker", marker: Marker, name: TopicPartition, on_marked: OnMarked) -> None:
    """Write a marker to a partition that this node leads."""
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
    except ApiError as error:
        on_marked(name, error.error)
        return
    if name.topic == CONSUMER_OFFSETS:
        broker.groups.transaction_ended(
            name.partition, marker.producer_id, marker.producer_epoch, marker.is_commit
        )
    partition.when_committed(_Awaited(staged.last_offset + 1, name, on_marked))
