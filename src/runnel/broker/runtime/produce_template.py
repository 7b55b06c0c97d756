"""Repeated produce requests: most requests of a producer differ from the previous one in the records only.

The bytes between the correlation id and the partition index are compared with the last request's. If they are
the same, the request is equivalent, and neither request nor response is decoded or encoded field by field.
Consecutive requests for one partition are a run: they are staged one after the other, and their responses
are sent together once the last of them is committed.

Requests for several partitions, first batches of transactions, batches for topics that validate schemas,
requests of connections with a quota, and other exceptions are decoded.
"""

from struct import Struct as Layout

from runnel.broker.apis.produce import (
    ACKS_ALL,
    ATTRIBUTES,
    CURRENT_LEADER_VERSION,
    TRANSACTIONAL,
    add_leaders,
    checked_records,
    count_failure,
    set_error,
)
from runnel.broker.apis.produce_transactional import is_verified
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.call import Call
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.disk import Staged
from runnel.ports.gates import Accounting
from runnel.ports.service import Reply, Session
from runnel.wire import encoded, is_flexible
from runnel.wire.frame import response_frame
from runnel.wire.primitives import VARINTS, varint

API_KEY = 0
VERSION_MIN = 7
"""Whether an older request is allowed depends on the compression of its batch."""

TEMPLATES_MAX = 10_000
"""Distinct beginnings of requests that are remembered over all connections."""

TOPIC_IDS_FROM = 13

HEAD_BYTES = 8
"""API key, version and correlation id."""

_SIZE = Layout(">i").unpack_from
_API = Layout(">hh").pack
_RESULT = Layout(">ihqqq")
_SAMPLE = (0x7A7B7C7D, 0, 0x6A6B6C6D6E6F, 0x5A5B5C5D5E5F, 0x4A4B4C4D4E4F)
_TAGS = b"\x00\x00\x00"
_TAG_BYTES = Layout("3s").unpack_from


class ProduceTemplate:
    """The constant part of a producer's requests for single partitions of one topic."""

    api_key = API_KEY

    __slots__ = (
        "_acks",
        "_after",
        "_api",
        "_before",
        "_broker",
        "_fixed_bytes",
        "_has_transactional_id",
        "_is_flexible",
        "_layouts",
        "_pack",
        "_prefix",
        "_response_bytes",
        "_timeout_ms",
        "_topic",
        "_topic_id",
        "version",
    )

    def __init__(
        self, broker: Broker, request: ProduceRequest, topic: str, call: Call, prefix: bytes
    ) -> None:
        version = call.api_version
        self.version = version
        self._broker = broker
        self._prefix = prefix
        self._api = _API(API_KEY, version)
        self._acks, self._timeout_ms = request.acks, request.timeout_ms
        self._has_transactional_id = request.transactional_id is not None
        self._topic = topic
        self._topic_id = request.topic_data[0].topic_id
        flexible = self._is_flexible = is_flexible(ProduceRequest, version)
        head = f">4si{len(prefix)}si"
        # By the length of the varint that precedes the records; older versions have an int32 there.
        lengths = range(1, 5) if flexible else (4,)
        self._layouts = {length: Layout(f"{head}{length}s").unpack_from for length in lengths}
        self._fixed_bytes = HEAD_BYTES + len(prefix) + 4 + (len(_TAGS) if flexible else 4)
        body = encoded(self._response(PartitionProduceResponse(*_SAMPLE)), version)
        self._before, self._after = body.split(_RESULT.pack(*_SAMPLE))
        layout = Layout(f">ii{'x' * flexible}{len(self._before)}sihqqq{len(self._after)}s")
        self._pack = layout.pack
        self._response_bytes = layout.size - 4

    @property
    def accounting(self) -> Accounting:
        return self._broker.gates.accounting

    def report(self, bug: Exception) -> None:
        """A response could not be encoded."""
        self._broker.bugs.report(bug, "%s v%d failed", ProduceRequest.__name__, self.version)

    def match(self, buffer: memoryview, start: int, size: int) -> tuple[int, int, int, int] | None:
        """(correlation id, partition, start and end of its records) if a frame repeats the template."""
        rest = size - self._fixed_bytes
        if not self._is_flexible:
            if rest <= 0:
                return None
            api, correlation_id, prefix, index, length = self._layouts[4](buffer, start)
            if int.from_bytes(length) != rest:
                return None
            records_end = start + size
            records_bytes = rest
        else:
            length_bytes = 1 if rest < 128 else 2 if rest < 16385 else 3 if rest < 2097154 else 4
            records_bytes = rest - length_bytes
            if records_bytes <= 0:
                return None
            api, correlation_id, prefix, index, length = self._layouts[length_bytes](buffer, start)
            count = records_bytes + 1
            if length != (VARINTS[count] if count < 4096 else varint(count)):
                return None
            records_end = start + size - 3
            if _TAG_BYTES(buffer, records_end)[0] != _TAGS:
                return None
        if prefix != self._prefix or api != self._api:
            return None
        return correlation_id, index, records_end - records_bytes, records_end

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
        """Begin the requests from `start` that repeat the template; returns the end of the last one.

        That is `start` if the first one does not. A run ends where another partition's begins.
        """
        found = self.match(buffer, start, after - start)
        if found is None:
            return start
        index = found[1]
        partition = self._partition(index)
        if partition is None or self._broker.gates.quotas.limits(session):
            return start
        if partition.log.config.inspects_records:
            # Such a batch is expensive for its size: other connections are served before the next one.
            count_max = 1
        position = start
        correlation_ids: list[int] = []
        batches: list[memoryview] = []
        request_bytes = 0
        while found is not None and found[1] == index:
            records = buffer[found[2] : found[3]]
            is_transactional = found[3] - found[2] > ATTRIBUTES and records[ATTRIBUTES] & TRANSACTIONAL
            if is_transactional and not self._is_verified(records, partition):
                break
            correlation_ids.append(found[0])
            batches.append(records)
            request_bytes += after - start
            position = after
            start = after + 4
            if start > end or len(batches) == count_max:
                break
            after = start + _SIZE(buffer, position)[0]
            if not start < after <= end:
                break
            found = self.match(buffer, start, after - start)
        if not batches:
            return position
        run = ProduceRun(self, session, partition, index, correlation_ids, request_bytes)
        replies.append(run.reply)
        run.begin(self._stage(partition, batches))
        return position

    def _partition(self, index: int) -> ReplicatedLog | None:
        partition = self._broker.partition_at.get((self._topic, index))
        if partition is None or partition.is_internal or partition.log.config.validates_schemas:
            return None
        if self.version >= TOPIC_IDS_FROM and partition.topic_id != self._topic_id:
            return None
        return partition

    def _is_verified(self, records: memoryview, partition: ReplicatedLog) -> bool:
        """Whether a transactional batch may be written without a check by the transaction coordinator."""
        return self._has_transactional_id and is_verified(records, partition)

    def _stage(self, partition: ReplicatedLog, batches: list[memoryview]) -> list[Staged | ApiError]:
        """The outcome of each batch; a rejected one does not affect the others."""
        try:
            # Checks that depend on the request alone have the same result for all of them.
            checked_records(batches[0], partition, self._acks, self.version)
        except ApiError as error:
            return [error] * len(batches)
        return partition.stage_all(batches, self._broker.clock.now_ms())

    def success(self, correlation_id: int, index: int, staged: Staged) -> bytes:
        """The response frame of a batch that is committed."""
        return self._pack(
            self._response_bytes,
            correlation_id,
            self._before,
            index,
            0,
            staged.base_offset,
            staged.log_append_time_ms,
            staged.log_start_offset,
            self._after,
        )

    def failure(self, correlation_id: int, index: int, error: ApiError, listener: str) -> bytes:
        """The response frame of a rejected batch."""
        count_failure(self._broker, self._topic, index, error.code)
        result = PartitionProduceResponse(index)
        set_error(result, error)
        response = self._response(result)
        if error.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and self.version >= CURRENT_LEADER_VERSION:
            add_leaders(response, self._broker, listener)
        return b"".join(response_frame(response, self.version, correlation_id))

    def wait(self, partition: ReplicatedLog, run: "ProduceRun") -> None:
        """Wait for the replicas that the producers asked for."""
        if self._acks == ACKS_ALL:
            partition.when_replicated(run, self._timeout_ms)
        else:
            partition.when_stored(run)

    def _response(self, result: PartitionProduceResponse) -> ProduceResponse:
        return ProduceResponse([TopicProduceResponse(self._topic, self._topic_id, [result])])


class ProduceRun:
    """Consecutive requests for one partition: one acknowledgement, one reply."""

    __slots__ = (
        "_began",
        "_correlation_ids",
        "_index",
        "_outcomes",
        "_partition",
        "_request_bytes",
        "_session",
        "_template",
        "end_offset",
        "reply",
    )

    def __init__(
        self,
        template: ProduceTemplate,
        session: Session,
        partition: ReplicatedLog,
        index: int,
        correlation_ids: list[int],
        request_bytes: int,
    ) -> None:
        self.reply = Reply()
        self.reply.count = len(correlation_ids)
        self.end_offset = -1
        """Everything below must be committed before the responses are sent."""
        self._template = template
        self._session = session
        self._began = session.received
        self._partition = partition
        self._index = index
        self._correlation_ids = correlation_ids
        self._outcomes: list[Staged | ApiError] = []
        self._request_bytes = request_bytes

    def begin(self, outcomes: list[Staged | ApiError]) -> None:
        """Wait for the commit of the staged batches."""
        self._outcomes = outcomes
        for outcome in outcomes:
            if isinstance(outcome, Staged) and outcome.last_offset >= self.end_offset:
                self.end_offset = outcome.last_offset + 1
        if self.end_offset < 0:
            self.committed()
        else:
            self._template.wait(self._partition, self)

    def committed(self) -> None:
        """All staged batches are committed."""
        template, index = self._template, self._index
        success = template.success
        try:
            frames = [
                success(correlation_id, index, outcome)
                if isinstance(outcome, Staged)
                else template.failure(correlation_id, index, outcome, self._session.listener)
                for correlation_id, outcome in zip(self._correlation_ids, self._outcomes, strict=True)
            ]
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            size_bytes = len(data)
            accounting = template.accounting
            accounting.account(
                self._session,
                API_KEY,
                template.version,
                len(frames),
                self._request_bytes,
                size_bytes,
                self._began,
            )
        except Exception as bug:  # noqa: BLE001 - reported
            template.report(bug)
            # Without parts the connection is closed; else it would wait forever.
            self.reply.fill([], 0)
        else:
            self.reply.fill([data], size_bytes)

    def failed(self, error: ApiError) -> None:
        """The staged batches failed; a duplicate of a committed batch is not affected."""
        committed = self._partition.high_watermark
        self._outcomes = [
            error if isinstance(outcome, Staged) and outcome.last_offset >= committed else outcome
            for outcome in self._outcomes
        ]
        self.committed()


class ProduceTemplates:
    """The templates of all producers; each connection keeps the one it used last."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[tuple[int, bytes], ProduceTemplate] = {}

    def remember(self, request: ProduceRequest, frame: memoryview, call: Call, is_permitted: bool) -> None:
        """Remember a decoded request as the template of its connection, if nothing of it was denied."""
        session, version = call.session, call.api_version
        session.template = None
        if not is_permitted or version < VERSION_MIN or request.acks not in (1, -1):
            return
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        if not data.records:
            return
        prefix = bytes(frame[HEAD_BYTES : _prefix_end(len(frame), len(data.records), version)])
        template = self._known.get((version, prefix))
        if template is None:
            name = topic.name or self._broker.topic_name(topic.topic_id)
            if not name or (name, data.index) not in self._broker.partition_at:
                return
            template = ProduceTemplate(self._broker, request, name, call, prefix)
            # Unknown tagged fields shift positions: such a request is not a template.
            found = template.match(frame, 0, len(frame))
            if found is None or found[1] != data.index:
                return
            if len(self._known) >= TEMPLATES_MAX:
                self._known.clear()
            self._known[version, prefix] = template
        session.template = template
        session.template_version = call.authorizer_version


def _prefix_end(frame_bytes: int, records_bytes: int, version: int) -> int:
    """The position of the partition's index, from the end of a request for one partition."""
    if not is_flexible(ProduceRequest, version):
        return frame_bytes - records_bytes - 8
    length_bytes = ((records_bytes + 1).bit_length() + 6) // 7
    return frame_bytes - len(_TAGS) - records_bytes - length_bytes - 4
