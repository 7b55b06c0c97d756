"""Produce: stage each batch; the end of the turn writes and acknowledges them."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.produce_transactional import (
    ADD_PARTITIONS_VERSION,
    Unverified,
    Verification,
    is_verified,
)
from runnel.broker.apis.produce_validated import HeldBatches
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.current_leaders import current_leader, node_address
from runnel.broker.runtime.promise import Promise, forward
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from runnel.model.errors import ApiError, ErrorCode, RecordValidationError
from runnel.ports.disk import Staged
from runnel.ports.service import CloseConnection

ACKS_ALL = -1
CURRENT_LEADER_VERSION = 10
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that Kafka allows to produce to internal topics."""

ATTRIBUTES = 22
"""Position of the low byte of a batch's attributes: compression type and transactional flag."""
TRANSACTIONAL = 16
_ZSTD, _COMPRESSION_MASK = 4, 7


class DelayedProduce(Promise[ProduceResponse]):
    """A produce response that is complete when all of its partitions are committed."""

    __slots__ = ("_acks", "_ctx", "_has_failed", "_timeout_ms", "_unled", "outstanding", "response")

    mutes_connection = False

    def __init__(self, request: ProduceRequest, ctx: Context) -> None:
        super().__init__()
        self._acks, self._timeout_ms, self._ctx = request.acks, request.timeout_ms, ctx
        self._unled = False
        """Was a partition refused because this node does not lead it?"""
        self._has_failed = False
        self.response = ProduceResponse()
        # The handler itself counts as one, so that the response is not sent before all partitions are added.
        self.outstanding = 1

    def complete_one(self) -> None:
        self.outstanding -= 1
        if not self.outstanding:
            if self._has_failed:
                count_failures(self.response, self._ctx.broker)
            if self._unled and self._ctx.api_version >= CURRENT_LEADER_VERSION:
                add_leaders(self.response, self._ctx.broker, self._ctx.listener)
            self.resolve(self.response)

    def reject(self, result: PartitionProduceResponse, error: ApiError) -> None:
        """Set the error of a partition."""
        set_error(result, error)
        self._has_failed = True
        self._unled |= error.error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def wait_for(self, partition: ReplicatedLog, staged: Staged, result: PartitionProduceResponse) -> None:
        """Set the offsets of a staged batch and wait for its commit."""
        self.outstanding += 1
        set_offsets(result, staged)
        ack = PartitionAck(staged.last_offset + 1, self, result)
        if self._acks == ACKS_ALL:
            partition.when_replicated(ack, self._timeout_ms)
        else:
            partition.when_stored(ack)

    def verified(self, batch: Unverified, outcome: Staged | ApiError) -> None:
        """The transaction of a batch was verified."""
        if isinstance(outcome, ApiError):
            self.reject(batch.result, outcome)
        else:
            self.wait_for(batch.partition, outcome, batch.result)
        self.complete_one()


class PartitionAck:
    """Acknowledgement of one partition, waiting for the commit of its batch."""

    __slots__ = ("answer", "end_offset", "result")

    def __init__(self, end_offset: int, answer: DelayedProduce, result: PartitionProduceResponse) -> None:
        self.end_offset = end_offset
        self.answer = answer
        self.result = result

    def committed(self) -> None:
        self.answer.complete_one()

    def failed(self, error: ApiError) -> None:
        self.answer.reject(self.result, error)
        self.answer.complete_one()


@handles(ProduceRequest)
def produce(
    request: ProduceRequest, ctx: Context
) -> Promise[ProduceResponse] | Promise[ProduceResponse | None] | None:
    """Append one batch per partition.

    v3 format 2 and transactional id · v5 log start offset · v7 zstd · v8 error messages · v9 flexible ·
    v10 current leader · v11 TRANSACTION_ABORTABLE · v12 adds partitions to transactions ·
    v13 topic ids instead of names. Versions 0-2 are advertised but rejected.
    """
    batches = Appending(request, ctx)
    answer, broker, acks, api_version = batches.answer, ctx.broker, request.acks, ctx.api_version
    held = HeldBatches(broker)
    for topic in request.topic_data:
        results: list[PartitionProduceResponse] = []
        answer.response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, results))
        for data in topic.partition_data:
            result = PartitionProduceResponse(data.index)
            results.append(result)
            try:
                partition = broker.partition_at.get((topic.name, data.index))
                if partition is None or partition.is_internal:
                    partition = _resolve_partition(topic, data.index, ctx)
                records = checked_records(data.records, partition, acks, api_version)
                if partition.log.config.validates_schemas and held.take(records, partition, result):
                    continue
                batches.append(records, partition, result)
            except ApiError as error:
                answer.reject(result, error)
    if held:
        return broker.run(held.append(batches))
    return batches.appended()


class Appending:
    """The batches of one request, on their way into the logs."""

    __slots__ = ("_ctx", "_request", "_verification", "answer")

    def __init__(self, request: ProduceRequest, ctx: Context) -> None:
        self._request, self._ctx = request, ctx
        self._verification: Verification | None = None
        self.answer = DelayedProduce(request, ctx)

    def append(self, records: memoryview, partition: ReplicatedLog, result: PartitionProduceResponse) -> None:
        """Stage a batch, or have its transaction verified first. Raises ApiError."""
        request, answer = self._request, self.answer
        is_transactional = len(records) > ATTRIBUTES and records[ATTRIBUTES] & TRANSACTIONAL
        if is_transactional and not _needs_no_verification(records, partition, request, self._ctx):
            if self._verification is None:
                self._verification = _verification(request, self._ctx, answer)
            self._verification.add(records, partition, result)
            answer.outstanding += 1
            return
        staged = partition.stage(records, self._ctx.broker.clock.now_ms())
        if request.acks:
            answer.wait_for(partition, staged, result)

    def appended(self) -> Promise[ProduceResponse] | None:
        """The response, once all batches were appended or rejected. Raises CloseConnection."""
        answer, verification = self.answer, self._verification
        if self._request.acks == 0:
            count_failures(answer.response, self._ctx.broker)
            _close_on_error(answer.response)
            return None
        if verification is not None and verification.has_batches:
            return _held(answer, verification)
        answer.complete_one()
        return answer


def _held(answer: DelayedProduce, verification: Verification) -> Promise[ProduceResponse]:
    """Hold the connection during verification: later batches must not overtake the unverified ones."""
    held: Promise[ProduceResponse] = Promise()
    forward(answer, held)
    verification.start()
    answer.complete_one()
    return held


def _needs_no_verification(
    records: memoryview, partition: ReplicatedLog, request: ProduceRequest, ctx: Context
) -> bool:
    """True if a transactional batch can be appended without verification. Raises ApiError."""
    if request.transactional_id is None:
        why = "a transactional batch requires a transactional id"
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)
    if is_verified(records, partition):
        return True
    if request.acks == 0:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, "a transactional batch requires acks other than 0")
    is_enabled = ctx.broker.settings["transaction.partition.verification.enable"]
    return not is_enabled and ctx.api_version < ADD_PARTITIONS_VERSION


def _verification(request: ProduceRequest, ctx: Context, answer: DelayedProduce) -> Verification:
    assert request.transactional_id is not None
    return Verification(ctx.broker, request.transactional_id, ctx.api_version, answer.verified)


def _resolve_partition(topic: TopicProduceData, index: int, ctx: Context) -> ReplicatedLog:
    """The partition of a topic given by id, of an internal topic, or unknown. Raises ApiError."""
    name = topic.name
    if not name:
        known = ctx.broker.topic_name(topic.topic_id)
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "unknown topic id")
        name = known
    partition = ctx.broker.partition(name, index)
    if partition.is_internal and ctx.client_id != ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is an internal topic")
    return partition


def checked_records(
    records: memoryview | None, partition: ReplicatedLog, acks: int, api_version: int
) -> memoryview:
    """Check acks and compression against the request; the log validates the rest. Raises ApiError."""
    if acks == ACKS_ALL:
        partition.check_in_sync()
    elif not 0 <= acks <= 1:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1, not {acks}")
    if records is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request requires a record batch per partition")
    if api_version < 7 and len(records) > ATTRIBUTES and records[ATTRIBUTES] & _COMPRESSION_MASK == _ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd requires Produce version 7, this is {api_version}"
        )
    return records


def set_offsets(result: PartitionProduceResponse, staged: Staged) -> None:
    """Set the offsets of an appended batch."""
    result.base_offset = staged.base_offset
    result.log_append_time_ms = staged.log_append_time_ms
    result.log_start_offset = staged.log_start_offset


def set_error(result: PartitionProduceResponse, error: ApiError) -> None:
    """Set the error of a partition, with the invalid records if known."""
    result.error_code = error.code
    if isinstance(error, RecordValidationError):
        named = zip(error.batch_indexes, error.messages, strict=True)
        result.record_errors = [BatchIndexAndErrorMessage(index, message) for index, message in named]
    result.error_message = str(error)
    result.base_offset = result.log_append_time_ms = result.log_start_offset = -1


def count_failures(response: ProduceResponse, broker: Broker) -> None:
    """Count the partitions that are answered with an error."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                name = topic.name or broker.topic_name(topic.topic_id) or ""
                count_failure(broker, name, result.index, result.error_code)


def count_failure(broker: Broker, topic: str, index: int, code: int) -> None:
    """Count a partition of a produce request that is answered with an error."""
    partition = broker.partition_at.get((topic, index))
    traffic = broker.traffic.unknown() if partition is None else partition.traffic
    traffic.failed_produces += 1
    broker.gates.accounting.failed(ProduceRequest.api_key, code)


def add_leaders(response: ProduceResponse, broker: Broker, listener: str) -> None:
    """Tell the leaders of partitions that this node does not lead, and their addresses (KIP-951)."""
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER.code:
                continue
            name = topic.name or broker.topic_name(topic.topic_id) or ""
            leader = current_leader(broker, name, result.index)
            if leader is not None:
                result.current_leader = LeaderIdAndEpoch(*leader)
                address = node_address(broker, leader.id, listener)
                if address is not None:
                    endpoints[leader.id] = NodeEndpoint(*address)
    response.node_endpoints = list(endpoints.values())


def _close_on_error(response: ProduceResponse) -> None:
    """Close the connection on an error of a request with acks=0, as Kafka does."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise CloseConnection(
                    f"produce with acks=0 to {topic.name}-{result.index}: {result.error_message}"
                )
