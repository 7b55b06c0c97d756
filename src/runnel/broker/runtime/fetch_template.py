"""Repeated fetch requests: a consumer of one partition requests the next offset, and nothing else changes.

The bytes around the session epoch and the offset are compared with the last request's. If they are the same,
the request is equivalent, and neither request nor response is decoded or encoded field by field. A request
that finds no records waits without being decoded.

Requests are decoded if they have several partitions, begin or change a fetch session, or belong to a
connection with a quota, and if the response has an error, aborted transactions, or data that is not in the
page cache.
"""

from copy import copy
from functools import partial
from struct import Struct as Layout

from runnel.broker.apis.fetch import READ_COMMITTED
from runnel.broker.apis.replica_requests import is_replica
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.call import Call
from runnel.broker.runtime.context import Encoded
from runnel.broker.runtime.fetch_sessions import FINAL_EPOCH, NO_SESSION
from runnel.broker.runtime.preferred_replicas import selects_by_rack
from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.waiting import LongPoll
from runnel.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from runnel.model.errors import ApiError
from runnel.model.limits import FETCH_WAIT_MS_MAX
from runnel.observe.counters import TopicTraffic
from runnel.ports.disk import FileSlice, NotResident, Slice
from runnel.ports.service import Parts, Reply, Session
from runnel.wire import decode, encoded, is_flexible
from runnel.wire.primitives import VARINTS, varint

API_KEY = 1
VERSION_MIN = 7
"""Older requests have no session epoch, which is one of the two numbers that vary."""

TEMPLATES_MAX = 10_000
"""Distinct requests that are remembered over all connections."""

RUN_BYTES_MAX = 64 * 1024
"""Responses in memory that are sent together."""

HEAD_BYTES = 8
"""API key, version and correlation id."""

_API = Layout(">hh").pack
_SIZE = Layout(">i").pack
_READ_SIZE = Layout(">i").unpack_from
_OFFSETS = Layout(">qqq")
_SAMPLE_OFFSETS = (0x6A6B6C6D6E6F, 0x5A5B5C5D5E5F, 0x4A4B4C4D4E4F)
_SAMPLE_RECORDS = b"\xa5\x5a" * 32


class FetchTemplate:
    """The constant part of a consumer's requests for one partition."""

    api_key = API_KEY

    __slots__ = (
        "_after",
        "_api",
        "_before",
        "_body_position",
        "_broker",
        "_client_id",
        "_constant",
        "_epoch",
        "_fixed_bytes",
        "_index",
        "_is_committed_only",
        "_is_flexible",
        "_max_bytes",
        "_max_wait_ms",
        "_middle",
        "_min_bytes",
        "_pack",
        "_route",
        "_session_id",
        "_session_key",
        "_size",
        "_topic",
        "_topic_id",
        "_unpack",
        "_waits_for_any",
        "_wanted",
        "version",
    )

    def __init__(
        self, request: FetchRequest, partition: ReplicatedLog, call: Call, layout: "RequestLayout"
    ) -> None:
        broker, version = call.broker, call.api_version
        topic = request.topics[0]
        wanted = topic.partitions[0]
        self.version = version
        self._broker = broker
        self._route = call.route
        self._client_id = call.client_id
        self._api = _API(API_KEY, version)
        self._constant = layout.constant
        self._body_position = layout.body_position
        self._size = layout.size
        self._unpack = layout.unpack_from
        self._session_id = request.session_id
        self._session_key = (topic.topic, topic.topic_id, wanted.partition)
        self._wanted = copy(wanted)
        """The session's state of the partition, in which only the offset varies."""
        self._topic = partition.name.topic
        self._topic_id = partition.topic_id
        self._index = wanted.partition
        self._epoch = wanted.current_leader_epoch
        budget: int = broker.settings["fetch.max.bytes"]
        self._max_bytes = max(min(wanted.partition_max_bytes, request.max_bytes, budget), 0)
        self._min_bytes = request.min_bytes
        # A request with min.bytes 0 does not wait.
        is_any_enough = min(request.min_bytes, request.max_bytes, budget) == 1
        self._waits_for_any = is_any_enough and self._session_id == NO_SESSION
        self._max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MS_MAX)
        self._is_committed_only = request.isolation_level == READ_COMMITTED
        self._is_flexible = is_flexible(FetchRequest, version)
        aborted: list[AbortedTransaction] | None = [] if self._is_committed_only else None
        sample = PartitionData(
            self._index, 0, *_SAMPLE_OFFSETS, aborted_transactions=aborted, records=_SAMPLE_RECORDS
        )
        response = FetchResponse(
            session_id=self._session_id,
            responses=[FetchableTopicResponse(topic.topic, topic.topic_id, [sample])],
        )
        body = encoded(response, version)
        self._before, rest = body.split(_OFFSETS.pack(*_SAMPLE_OFFSETS))
        self._middle, self._after = rest.split(self._length(len(_SAMPLE_RECORDS)) + _SAMPLE_RECORDS)
        response_layout = Layout(f">ii{'x' * self._is_flexible}{len(self._before)}sqqq{len(self._middle)}s")
        self._pack = response_layout.pack
        self._fixed_bytes = response_layout.size - 4 + len(self._after)

    def _length(self, size_bytes: int) -> bytes:
        return varint(size_bytes + 1) if self._is_flexible else _SIZE(size_bytes)

    def is_of(self, partition: ReplicatedLog) -> bool:
        """Is this still the same topic, not a recreated one?"""
        return partition.topic_id == self._topic_id

    def is_repeated_by(self, frame: memoryview) -> bool:
        """Whether a frame differs in nothing but its correlation id, session epoch and offset.

        Not if the template cannot serve it, because its topic was recreated.
        """
        if len(frame) != self._size or self._partition() is None:
            return False
        api, _, before, _, middle, _, after = self._unpack(frame, 0)
        return api == self._api and (before, middle, after) == self._constant

    def serve(
        self,
        buffer: memoryview,
        start: int,
        after: int,
        end: int,
        session: Session,
        replies: list[Reply],
        count_max: int,
    ) -> int:
        """Answer the requests from `start` that repeat the template; returns the end of the last one.

        That is `start` if the first one does not.
        """
        size = self._size
        partition = self._partition()
        if after - start != size or partition is None or self._broker.gates.quotas.limits(session):
            return start
        run = FetchRun(partition.traffic)
        limits = self._limits(partition)
        match, read, head, tail = self._match, self._read, self._head, self._after
        in_session = self._session_id != NO_SESSION
        position = start
        while after <= end and run.count < count_max and run.memory_bytes < RUN_BYTES_MAX:
            if run.count and _READ_SIZE(buffer, position)[0] != size:
                break
            found = match(buffer, start)
            if found is None:
                break
            correlation_id, offset = found
            records = read(partition, offset, limits)
            if records is None:
                break
            if not records.parts:
                if self._waits_for_any:
                    run.add_to(replies, session, self)
                    frame = buffer[start:after]
                    replies.append(self._wait(frame, session, correlation_id, partition, offset))
                    return after
                break
            if in_session:
                self._advance_session(partition, offset)
            run.add(head(correlation_id, limits, records.size_bytes), records, tail)
            position = after
            start = after + 4
            after = start + size
        run.add_to(replies, session, self)
        return position

    def _partition(self) -> ReplicatedLog | None:
        """The partition to read; None if the request must be decoded."""
        partition = self._broker.partition_at.get((self._topic, self._index))
        if partition is None or partition.topic_id != self._topic_id or not partition.is_leader:
            return None
        return partition if self._epoch in (-1, partition.epoch) else None

    def _match(self, buffer: memoryview, start: int) -> tuple[int, int] | None:
        """(correlation id, offset) if the request at `start` repeats the template."""
        api, correlation_id, before, epoch, middle, offset, after = self._unpack(buffer, start)
        own_before, own_middle, own_after = self._constant
        if before != own_before or middle != own_middle or after != own_after or api != self._api:
            return None
        if self._session_id == NO_SESSION:
            return (correlation_id, offset) if epoch == FINAL_EPOCH else None
        is_current = self._broker.fetch_sessions.is_current(self._session_id, epoch, self._session_key)
        return (correlation_id, offset) if is_current else None

    def _advance_session(self, partition: ReplicatedLog, offset: int) -> None:
        self._wanted.fetch_offset = offset
        self._broker.fetch_sessions.fetched(
            self._session_id, self._wanted, partition.high_watermark, partition.log.log_start_offset
        )

    def account(self, session: Session, count: int, response_bytes: int) -> None:
        """Account for the requests that were served."""
        accounting = self._broker.gates.accounting
        accounting.account(
            session, API_KEY, self.version, count, count * self._size, response_bytes, session.received
        )

    def _limits(self, partition: ReplicatedLog) -> tuple[int, int, int]:
        """High watermark, last stable offset and log start offset, which are constant in a run."""
        return partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset

    def _read(self, partition: ReplicatedLog, offset: int, limits: tuple[int, int, int]) -> Slice | None:
        """Read the records; None if the request must be decoded."""
        log = partition.log
        end_offset = limits[1] if self._is_committed_only else limits[0]
        try:
            found = log.read(offset, self._max_bytes, end_offset, at_least_one=True, may_block=False)
            if not found.parts:
                return found
            if found.size_bytes < self._min_bytes:
                return None
            if self._is_committed_only and log.aborted_transactions(
                offset, found.end_offset, may_block=False
            ):
                return None
        except (ApiError, NotResident):
            return None
        return found

    def _head(self, correlation_id: int, limits: tuple[int, int, int], size_bytes: int) -> bytes:
        """The response frame up to the records, of this size."""
        is_short = self._is_flexible and size_bytes < len(VARINTS) - 1
        length = VARINTS[size_bytes + 1] if is_short else self._length(size_bytes)
        frame_bytes = self._fixed_bytes + len(length) + size_bytes
        return self._pack(frame_bytes, correlation_id, self._before, *limits, self._middle) + length

    def _wait(
        self, frame: memoryview, session: Session, correlation_id: int, partition: ReplicatedLog, offset: int
    ) -> Reply:
        """Wait for records, or until max.wait.ms."""
        reply = Reply()
        reply.mutes_connection = True
        call = Call(
            self._broker,
            session,
            self.version,
            self._client_id,
            correlation_id,
            self._route,
            reply,
            len(frame),
            session.received,
            authorizer_version=session.template_version,
        )
        session.pending.add(call)
        poll: LongPoll[Encoded | Undecided] = LongPoll(
            self._broker.waiting, session, partial(self._attempt, call, partition, offset)
        )
        poll.on_settled(partial(self._settled, call, bytes(frame)))
        poll.start([partition], self._max_wait_ms)
        if self._max_wait_ms <= 0:
            poll.expire()
        return reply

    def _attempt(
        self, call: Call, partition: ReplicatedLog, offset: int, is_last: bool
    ) -> "Encoded | Undecided | None":
        """A response, None to keep waiting, or a sign that the request must be decoded."""
        if self._partition() is not partition:
            return UNDECIDED
        limits = self._limits(partition)
        if call.is_permission_current:
            found = self._read(partition, offset, limits)
        else:
            # It may be revoked: the next request is authorized again.
            found, is_last = Slice([], 0), True
        if found is None or len(found.parts) > 1 or (found.parts and type(found.parts[0]) is not bytes):
            return UNDECIDED
        if not found.parts and not is_last:
            return None
        partition.traffic.fetches += 1
        partition.traffic.bytes_out += found.size_bytes
        if found.parts:
            first = found.parts[0]
            assert isinstance(first, bytes)
            self._broker.events.delivered(first, self._broker.clock.now_ms())
        body = self._head(0, limits, found.size_bytes)[9 if self._is_flexible else 8 :]
        return Encoded(b"".join((body, *found.parts, self._after)))  # type: ignore[arg-type]

    def _settled(self, call: Call, frame: bytes, outcome: "Encoded | Undecided | Exception") -> None:
        if not isinstance(outcome, Undecided):
            call.answer(outcome)
            return
        if not call.is_permission_current:
            call.answer(FetchResponse())
            return
        try:
            request = decode(FetchRequest, self.version, frame, self._body_position)
            # It has waited.
            request.max_wait_ms = 0
            result = self._route.handler(request, call)
        except Exception as error:  # noqa: BLE001 - the call logs it
            call.answer(error)
            return
        if isinstance(result, Promise):
            result.on_settled(call.answer)
        elif result is not None:
            call.answer(result)


class Undecided:
    """Decode a request that has waited."""


UNDECIDED = Undecided()


class FetchRun:
    """Consecutive responses of one connection, sent together."""

    __slots__ = ("_file_bytes", "_parts", "_records_bytes", "_traffic", "count", "memory_bytes")

    def __init__(self, traffic: TopicTraffic) -> None:
        self._traffic = traffic
        self._records_bytes = 0
        self.count = 0
        self.memory_bytes = 0
        self._file_bytes = 0
        self._parts: Parts = []

    def add(self, head: bytes, found: Slice, tail: bytes) -> None:
        """Add a response."""
        self.count += 1
        self._parts += (head, *found.parts, tail)
        self._records_bytes += found.size_bytes
        self.memory_bytes += len(head) + found.size_bytes + len(tail)
        if type(found.parts[0]) is not bytes:
            file_bytes = sum(part.length for part in found.parts if isinstance(part, FileSlice))
            self._file_bytes += file_bytes
            self.memory_bytes -= file_bytes

    def add_to(self, replies: list[Reply], session: Session, template: FetchTemplate) -> None:
        """The run ends here."""
        if not self.count:
            return
        reply = Reply()
        reply.count = self.count
        parts = self._parts
        if not self._file_bytes:
            # Each is below SENDFILE_BYTES_MIN: copying is cheaper than sending pieces.
            parts = [b"".join(parts)]  # type: ignore[arg-type]
        template.account(session, self.count, self.memory_bytes + self._file_bytes)
        self._traffic.fetches += self.count
        self._traffic.bytes_out += self._records_bytes
        reply.fill(parts, self.memory_bytes)
        replies.append(reply)


class RequestLayout:
    """The positions of the session epoch and the offset in a request."""

    __slots__ = ("body_position", "constant", "size", "unpack_from")

    def __init__(self, frame: memoryview, body_position: int, epoch: int, offset: int) -> None:
        self.size = len(frame)
        self.body_position = body_position
        self.constant = (
            bytes(frame[HEAD_BYTES:epoch]),
            bytes(frame[epoch + 4 : offset]),
            bytes(frame[offset + 8 :]),
        )
        before, middle, after = map(len, self.constant)
        self.unpack_from = Layout(f">4si{before}si{middle}sq{after}s").unpack_from


class FetchTemplates:
    """The templates of all readers; each connection keeps the one it used last."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[tuple[int, bytes, bytes, bytes], FetchTemplate] = {}

    def remember(
        self, request: FetchRequest, frame: memoryview, call: Call, body_position: int, is_permitted: bool
    ) -> None:
        """Remember a decoded request as the template of its connection, if nothing of it was denied."""
        session = call.session
        template = session.template
        is_simple = is_permitted and _is_simple(request, call.api_version)
        if not is_simple or (request.rack_id and selects_by_rack(self._broker)):
            session.template = None
            return
        session.template_version = call.authorizer_version
        if isinstance(template, FetchTemplate) and template.is_repeated_by(frame):
            return
        session.template = None
        (topic,) = request.topics
        name = topic.topic or self._broker.topic_name(topic.topic_id) or ""
        partition = self._broker.partition_at.get((name, topic.partitions[0].partition))
        if partition is None:
            return
        layout = _layout_of(request, call.api_version, frame, body_position)
        if layout is None:
            return
        key = (call.api_version, *layout.constant)
        template = self._known.get(key)
        if template is None or not template.is_of(partition):
            if len(self._known) >= TEMPLATES_MAX:
                self._known.clear()
            template = self._known[key] = FetchTemplate(request, partition, call, layout)
        session.template = template


def _is_simple(request: FetchRequest, version: int) -> bool:
    """Can this request be a template: one partition, an unchanged session, no last fetched epoch?"""
    if request.session_epoch == FINAL_EPOCH:
        is_repeatable = request.session_id == NO_SESSION
    else:
        is_repeatable = request.session_epoch > 0
    return (
        version >= VERSION_MIN
        and is_repeatable
        and not request.forgotten_topics_data
        and not is_replica(request)
        and len(request.topics) == 1
        and len(request.topics[0].partitions) == 1
        and request.topics[0].partitions[0].last_fetched_epoch < 0
    )


def _layout_of(
    request: FetchRequest, version: int, frame: memoryview, body_position: int
) -> RequestLayout | None:
    """The varying positions, if the request has the canonical encoding."""
    body = frame[body_position:]
    if body != encoded(request, version):
        return None
    wanted = request.topics[0].partitions[0]
    epoch, offset = request.session_epoch, wanted.fetch_offset
    # The complement differs from the number in each of its bytes, and in nothing else.
    request.session_epoch = ~epoch
    epoch_position = _first_difference(body, encoded(request, version))
    request.session_epoch = epoch
    wanted.fetch_offset = ~offset
    offset_position = _first_difference(body, encoded(request, version))
    wanted.fetch_offset = offset
    return RequestLayout(
        frame, body_position, body_position + epoch_position, body_position + offset_position
    )


def _first_difference(one: memoryview, other: bytes) -> int:
    return next(index for index, byte in enumerate(other) if byte != one[index])
