"""Fetch, again: a reader of one partition asks for the next offset, and nothing else changes.

What lies before and behind the offset is compared as bytes with the last request's. If it is the same, so is
its meaning, and neither request nor response has to be taken apart. Whatever cannot be answered on the spot
goes the long way: too little to read, more than one partition, sessions, errors, aborted transactions.
"""

from struct import Struct as Layout

from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.partition import Partition
from runnel.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from runnel.model.errors import ApiError
from runnel.ports.disk import FileSlice, Slice
from runnel.ports.service import Parts, Reply, Session
from runnel.wire import encoded, is_flexible
from runnel.wire.primitives import varint

VERSION_MIN = 5
READ_COMMITTED = 1
NO_SESSION_EPOCH = -1
SHAPES_MAX = 10_000
"""Distinct requests that are remembered over all connections."""

PREFIX_START = 8
"""Behind API key, version and correlation id."""

_OFFSET = Layout(">q").unpack_from
_OFFSET_BYTES = 8
_PLACES = Layout(">qqq")
_SAMPLE_PLACES = (0x6A6B6C6D6E6F, 0x5A5B5C5D5E5F, 0x4A4B4C4D4E4F)
_SAMPLE_RECORDS = b"\xa5\x5a" * 32
_SIZE = Layout(">i").pack


class FetchShape:
    """What a reader's requests for one partition have in common."""

    __slots__ = (
        "_after",
        "_before",
        "_fixed_bytes",
        "_head",
        "_is_flexible",
        "_middle",
        "after",
        "before",
        "epoch",
        "index",
        "is_committed_only",
        "max_bytes",
        "min_bytes",
        "offset_position",
        "topic",
        "topic_id",
        "version",
    )

    def __init__(
        self,
        request: FetchRequest,
        partition: Partition,
        version: int,
        around: tuple[bytes, bytes],
        budget: int,
    ) -> None:
        asked = request.topics[0].partitions[0]
        self.version = version
        self.before, self.after = around
        self.offset_position = PREFIX_START + len(self.before)
        self.topic = partition.name.topic
        self.topic_id = partition.topic_id
        self.index = asked.partition
        self.epoch = asked.current_leader_epoch
        self.max_bytes = max(min(asked.partition_max_bytes, request.max_bytes, budget), 0)
        self.min_bytes = request.min_bytes
        self.is_committed_only = request.isolation_level == READ_COMMITTED
        self._is_flexible = is_flexible(FetchRequest, version)
        aborted: list[AbortedTransaction] | None = [] if self.is_committed_only else None
        sample = PartitionData(
            self.index, 0, *_SAMPLE_PLACES, aborted_transactions=aborted, records=_SAMPLE_RECORDS
        )
        topic = FetchableTopicResponse(request.topics[0].topic, request.topics[0].topic_id, [sample])
        body = encoded(FetchResponse(responses=[topic]), version)
        self._before, rest = body.split(_PLACES.pack(*_SAMPLE_PLACES))
        self._middle, self._after = rest.split(self._length(len(_SAMPLE_RECORDS)) + _SAMPLE_RECORDS)
        layout = Layout(f">ii{'x' if self._is_flexible else ''}{len(self._before)}sqqq{len(self._middle)}s")
        self._head = layout.pack
        self._fixed_bytes = layout.size - 4 + len(self._after)

    def _length(self, size_bytes: int) -> bytes:
        return varint(size_bytes + 1) if self._is_flexible else _SIZE(size_bytes)

    def answer(self, correlation_id: int, partition: Partition, found: Slice, stable_offset: int) -> Parts:
        """The whole response frame around the records."""
        length = self._length(found.size_bytes)
        head = self._head(
            self._fixed_bytes + len(length) + found.size_bytes,
            correlation_id,
            self._before,
            partition.leader.high_watermark,
            stable_offset,
            partition.log.log_start_offset,
            self._middle,
        )
        if len(found.parts) == 1 and not isinstance(found.parts[0], FileSlice):
            # Never above SENDFILE_BYTES_MIN, so copying is cheaper than sending it by pieces.
            return [b"".join((head, length, found.parts[0], self._after))]
        return [head + length, *found.parts, self._after]


class FetchShapes:
    """The shapes that readers' requests have had; each connection remembers the one it used last."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[tuple[int, bytes, bytes], FetchShape] = {}

    def serve(self, frame: memoryview, session: Session, version: int, correlation_id: int) -> Reply | None:
        """Answer a request of the shape that this connection used last; None if it has to go the long way."""
        shape: FetchShape | None = session.fetch_shape
        if shape is None or shape.version != version:
            return None
        position = shape.offset_position
        if frame[PREFIX_START:position] != shape.before or frame[position + _OFFSET_BYTES :] != shape.after:
            return None
        partition = self._broker.partition_at.get((shape.topic, shape.index))
        if partition is None or partition.topic_id != shape.topic_id:
            return None
        if shape.epoch not in (-1, partition.leader.epoch):
            return None
        (offset,) = _OFFSET(frame, position)
        try:
            stable_offset = partition.last_stable_offset
            end_offset = stable_offset if shape.is_committed_only else partition.leader.high_watermark
            found = partition.log.read(offset, shape.max_bytes, end_offset, at_least_one=True)
            if found.size_bytes < shape.min_bytes or not found.parts:
                return None
            if shape.is_committed_only and partition.log.aborted_transactions(offset, found.end_offset):
                return None
        except ApiError:
            return None
        parts = shape.answer(correlation_id, partition, found, stable_offset)
        reply = Reply()
        reply.fill(parts, sum(len(part) for part in parts if not isinstance(part, FileSlice)))
        return reply

    def remember(
        self, request: FetchRequest, frame: memoryview, session: Session, version: int, body_position: int
    ) -> None:
        """A request went the long way: its connection's next one may be like it."""
        session.fetch_shape = None
        if not _is_simple(request, version):
            return
        (topic,) = request.topics
        (asked,) = topic.partitions
        partition = _find(self._broker, topic, asked.partition)
        if partition is None:
            return
        position = _offset_position(request, version, frame[body_position:])
        if position is None:
            return
        position += body_position
        around = bytes(frame[PREFIX_START:position]), bytes(frame[position + _OFFSET_BYTES :])
        key = (version, *around)
        shape = self._known.get(key)
        if shape is None or shape.topic_id != partition.topic_id:
            if len(self._known) >= SHAPES_MAX:
                self._known.clear()
            budget = self._broker.settings["fetch.max.bytes"]
            shape = self._known[key] = FetchShape(request, partition, version, around, budget)
        session.fetch_shape = shape


def _is_simple(request: FetchRequest, version: int) -> bool:
    """One partition, no session, no question about epochs of the past."""
    return (
        version >= VERSION_MIN
        and request.session_epoch == NO_SESSION_EPOCH
        and len(request.topics) == 1
        and len(request.topics[0].partitions) == 1
        and request.topics[0].partitions[0].last_fetched_epoch < 0
    )


def _offset_position(request: FetchRequest, version: int, body: memoryview) -> int | None:
    """Where the offset stands in the request, if it is encoded as we would do it."""
    asked = request.topics[0].partitions[0]
    offset = asked.fetch_offset
    if body != encoded(request, version):
        return None
    # The complement differs from the number in each of its bytes, and in nothing else.
    asked.fetch_offset = ~offset
    other = encoded(request, version)
    asked.fetch_offset = offset
    return next(index for index, byte in enumerate(other) if byte != body[index])


def _find(broker: Broker, topic: FetchTopic, index: int) -> Partition | None:
    known = broker.metadata.image.topics_by_id.get(topic.topic_id)
    return broker.partition_at.get((topic.topic or (known.name if known else ""), index))
