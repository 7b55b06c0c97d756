"""Produce, again: the next request of a producer mostly differs from its last one in the records only.

What lies between the correlation id and the partition's index is compared as bytes with the last request's.
If it is the same, so is its meaning, and neither request nor response has to be taken apart: that halves the
cost. Requests for more than one partition, first batches of transactions, and everything unusual, go the long
way.
"""

from struct import Struct as Layout
from typing import Any

from runnel.broker.apis.produce import ATTRIBUTES, TRANSACTIONAL, checked_records, refuse
from runnel.broker.apis.produce_transactional import is_verified
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.partition import Partition
from runnel.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from runnel.model.errors import ApiError
from runnel.ports.disk import Staged
from runnel.ports.service import Reply, Session
from runnel.wire import encoded, is_flexible
from runnel.wire.frame import response_frame

VERSION_MIN = 5
"""Older responses have no log start offset, and their producers are no longer in a hurry."""

SHAPES_MAX = 10_000
"""Distinct beginnings of requests that are remembered over all connections."""

TOPIC_IDS_FROM = 13

PREFIX_START = 8
"""Behind API key, version and correlation id."""

_INDEX_AND_LENGTH = Layout(">iB").unpack_from
_INDEX_AND_SIZE = Layout(">ii").unpack_from
_RESULT = Layout(">ihqqq")
_TAGS = b"\x00\x00\x00"


class ProduceShape:
    """What a producer's requests for single partitions of one topic have in common."""

    __slots__ = (
        "_after",
        "_before",
        "_is_flexible",
        "_layout",
        "_size_bytes",
        "acks",
        "end",
        "has_transactional_id",
        "prefix",
        "topic",
        "topic_id",
        "version",
    )

    def __init__(self, request: ProduceRequest, partition: Partition, version: int, prefix: bytes) -> None:
        self.version = version
        self.prefix = prefix
        self.end = PREFIX_START + len(prefix)
        self.acks = request.acks
        self.has_transactional_id = request.transactional_id is not None
        self.topic = partition.name.topic
        self.topic_id = partition.topic_id
        self._is_flexible = is_flexible(ProduceRequest, version)
        sample = PartitionProduceResponse(0x7A7B7C7D, 0, 0x6A6B6C6D6E6F, 0x5A5B5C5D5E5F, 0x4A4B4C4D4E4F)
        body = encoded(self._response(sample), version)
        result = _RESULT.pack(0x7A7B7C7D, 0, 0x6A6B6C6D6E6F, 0x5A5B5C5D5E5F, 0x4A4B4C4D4E4F)
        self._before, self._after = body.split(result)
        header = "x" if self._is_flexible else ""
        self._layout = Layout(f">ii{header}{len(self._before)}sihqqq{len(self._after)}s")
        self._size_bytes = self._layout.size - 4

    def records(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """(partition, its records) of a request whose beginning is known to be the same."""
        end = self.end
        if not self._is_flexible:
            index, size_bytes = _INDEX_AND_SIZE(frame, end)
            start, stop = end + 8, len(frame)
        else:
            index, length = _INDEX_AND_LENGTH(frame, end)
            start, stop = end + 5, len(frame) - 3
            if length > 127:
                shift, length = 7, length & 127
                while True:
                    if start >= stop:
                        # The frame ends within the length: the codec refuses it.
                        return None
                    byte = frame[start]
                    start += 1
                    length |= (byte & 127) << shift
                    if byte < 128 or shift > 28:
                        break
                    shift += 7
            size_bytes = length - 1
            if frame[stop:] != _TAGS:
                return None
        if size_bytes <= 0 or start + size_bytes != stop:
            return None
        return index, frame[start:stop]

    def success(self, correlation_id: int, index: int, staged: Staged) -> bytes:
        """The whole response frame."""
        return self._layout.pack(
            self._size_bytes,
            correlation_id,
            self._before,
            index,
            0,
            staged.base_offset,
            staged.log_append_time_ms,
            staged.log_start_offset,
            self._after,
        )

    def failure(self, correlation_id: int, index: int, error: ApiError) -> list[Any]:
        """The response frame of a refusal."""
        result = PartitionProduceResponse(index)
        refuse(result, error)
        return response_frame(self._response(result), self.version, correlation_id)

    def _response(self, result: PartitionProduceResponse) -> ProduceResponse:
        return ProduceResponse([TopicProduceResponse(self.topic, self.topic_id, [result])])


class ShapedAck:
    """The commit of one batch, and the answer that it sends off."""

    __slots__ = ("correlation_id", "end_offset", "index", "reply", "shape", "staged")

    def __init__(
        self, shape: ProduceShape, reply: Reply, correlation_id: int, index: int, staged: Staged
    ) -> None:
        self.shape = shape
        self.reply = reply
        self.correlation_id = correlation_id
        self.index = index
        self.staged = staged
        self.end_offset = staged.last_offset + 1

    def committed(self) -> None:
        answer = self.shape.success(self.correlation_id, self.index, self.staged)
        self.reply.fill([answer], len(answer))

    def failed(self, error: ApiError) -> None:
        parts = self.shape.failure(self.correlation_id, self.index, error)
        self.reply.fill(parts, sum(map(len, parts)))


class ProduceShapes:
    """The shapes that producers' requests have had; each connection remembers the one it used last."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[tuple[int, bytes], ProduceShape] = {}

    def serve(self, frame: memoryview, session: Session, version: int, correlation_id: int) -> Reply | None:
        """Begin a request of the shape that this connection used last; None if it has to go the long way."""
        shape: ProduceShape | None = session.produce_shape
        if shape is None or shape.version != version or frame[PREFIX_START : shape.end] != shape.prefix:
            return None
        found = shape.records(frame)
        if found is None:
            return None
        index, records = found
        partition = self._broker.partition_at.get((shape.topic, index))
        if partition is None or partition.is_internal:
            return None
        if version >= TOPIC_IDS_FROM and partition.topic_id != shape.topic_id:
            return None
        reply = Reply()
        try:
            checked_records(records, partition, shape.acks, version)
            is_transactional = len(records) > ATTRIBUTES and records[ATTRIBUTES] & TRANSACTIONAL
            if is_transactional and not (shape.has_transactional_id and is_verified(records, partition)):
                return None
            staged = partition.stage(records, self._broker.clock.now_ms())
        except ApiError as error:
            parts = shape.failure(correlation_id, index, error)
            reply.fill(parts, sum(map(len, parts)))
        else:
            partition.when_committed(ShapedAck(shape, reply, correlation_id, index, staged))
        return reply

    def remember(self, request: ProduceRequest, frame: memoryview, session: Session, version: int) -> None:
        """A request went the long way: its connection's next one may be like it."""
        session.produce_shape = None
        if version < VERSION_MIN or request.acks not in (1, -1) or len(request.topic_data) != 1:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) != 1 or not topic.partition_data[0].records:
            return
        end = _prefix_end(len(frame), len(topic.partition_data[0].records), version)
        key = (version, bytes(frame[PREFIX_START:end]))
        shape = self._known.get(key)
        if shape is None:
            partition = _find(self._broker, topic, topic.partition_data[0].index)
            if partition is None:
                return
            shape = ProduceShape(request, partition, version, key[1])
            # Unknown tags would stand somewhere else than we counted: then this is not a shape.
            found = shape.records(frame) if end > PREFIX_START else None
            if found is None or found[0] != topic.partition_data[0].index:
                return
            if len(self._known) >= SHAPES_MAX:
                self._known.clear()
            self._known[key] = shape
        session.produce_shape = shape


def _prefix_end(frame_bytes: int, records_bytes: int, version: int) -> int:
    """Where the partition's index stands, counted from the end of a request for one partition."""
    if not is_flexible(ProduceRequest, version):
        return frame_bytes - records_bytes - 8
    length_bytes = ((records_bytes + 1).bit_length() + 6) // 7
    return frame_bytes - len(_TAGS) - records_bytes - length_bytes - 4


def _find(broker: Broker, topic: TopicProduceData, index: int) -> Partition | None:
    known = broker.metadata.image.topics_by_id.get(topic.topic_id)
    return broker.partition_at.get((topic.name or (known.name if known else ""), index))
