"""Produce: stage each batch; the end of the turn writes and acknowledges them."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.produce_transactional import (
    ADD_PARTITIONS_VERSION,
    Unverified,
    Verification,
    is_verified,
)
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import Promise, forward
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.messages.produce import (
    BatchIndexAndErrorMessage,
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
ADMIN_CLIENT_ID = "__admin_client"
"""The one name under which Kafka lets a client write to internal topics."""

ATTRIBUTES = 22
"""Where a batch says that it is part of a transaction, and how it is compressed."""
TRANSACTIONAL = 16
_ZSTD, _COMPRESSION_MASK = 4, 7


class ProduceAnswer(Promise[ProduceResponse]):
    """A produce response that is complete when all of its partitions are committed."""

    __slots__ = ("outstanding", "response")

    holds_line = False

    def __init__(self) -> None:
        super().__init__()
        self.response = ProduceResponse()
        # The handler itself counts as one, so that nothing completes before all partitions are in.
        self.outstanding = 1

    def settle_one(self) -> None:
        self.outstanding -= 1
        if not self.outstanding:
            self.resolve(self.response)

    def wait_for(self, partition: ReplicatedLog, staged: Staged, result: PartitionProduceResponse) -> None:
        """A batch is staged: its part of the answer stands, and counts once it is committed."""
        self.outstanding += 1
        tell_place(result, staged)
        partition.when_committed(PartitionAck(staged.last_offset + 1, self, result))

    def verified(self, batch: Unverified, outcome: Staged | ApiError) -> None:
        """The coordinator's word has come for a batch."""
        if isinstance(outcome, ApiError):
            refuse(batch.result, outcome)
        else:
            self.wait_for(batch.partition, outcome, batch.result)
        self.settle_one()


class PartitionAck:
    """One partition of a produce answer, waiting for its commit."""

    __slots__ = ("answer", "end_offset", "result")

    def __init__(self, end_offset: int, answer: ProduceAnswer, result: PartitionProduceResponse) -> None:
        self.end_offset = end_offset
        self.answer = answer
        self.result = result

    def committed(self) -> None:
        self.answer.settle_one()

    def failed(self, error: ApiError) -> None:
        refuse(self.result, error)
        self.answer.settle_one()


@handles(ProduceRequest)
def produce(request: ProduceRequest, ctx: Context) -> Promise[ProduceResponse] | None:
    """Append one batch per partition.

    v3 format 2 and transactional id · v5 log start offset · v7 zstd · v8 error messages · v9 flexible ·
    v10 current leader · v11 TRANSACTION_ABORTABLE · v12 partitions join transactions by being written to ·
    v13 topic ids instead of names. Versions 0-2 are advertised but refused.
    """
    answer = ProduceAnswer()
    verification: Verification | None = None
    broker, acks, api_version = ctx.broker, request.acks, ctx.api_version
    now_ms = broker.clock.now_ms()
    for topic in request.topic_data:
        results: list[PartitionProduceResponse] = []
        answer.response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, results))
        for data in topic.partition_data:
            result = PartitionProduceResponse(data.index)
            results.append(result)
            try:
                partition = broker.partition_at.get((topic.name, data.index))
                if partition is None or partition.is_internal:
                    partition = _unusual_partition(topic, data.index, ctx)
                records = checked_records(data.records, partition, acks, api_version)
                is_transactional = len(records) > ATTRIBUTES and records[ATTRIBUTES] & TRANSACTIONAL
                if is_transactional and not _may_go_on(records, partition, request, ctx):
                    verification = verification or _verification(request, ctx, answer)
                    verification.add(records, partition, result)
                    answer.outstanding += 1
                    continue
                staged = partition.stage(records, now_ms)
            except ApiError as error:
                refuse(result, error)
                continue
            if acks:
                answer.wait_for(partition, staged, result)
    if acks == 0:
        _hang_up_on_error(answer.response)
        return None
    if verification is not None and verification.has_batches:
        return _held(answer, verification)
    answer.settle_one()
    return answer


def _held(answer: ProduceAnswer, verification: Verification) -> Promise[ProduceResponse]:
    """The same answer, but the connection's next batches must not overtake those that wait for a word."""
    held: Promise[ProduceResponse] = Promise()
    forward(answer, held)
    verification.start()
    answer.settle_one()
    return held


def _may_go_on(records: memoryview, partition: ReplicatedLog, request: ProduceRequest, ctx: Context) -> bool:
    """May a transactional batch be written without asking the coordinator? Raises ApiError."""
    if request.transactional_id is None:
        why = "a batch of a transaction needs a transactional id"
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)
    if is_verified(records, partition):
        return True
    if request.acks == 0:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, "a transaction cannot begin without acknowledgement")
    is_asked_for = ctx.broker.settings["transaction.partition.verification.enable"]
    return not is_asked_for and ctx.api_version < ADD_PARTITIONS_VERSION


def _verification(request: ProduceRequest, ctx: Context, answer: ProduceAnswer) -> Verification:
    assert request.transactional_id is not None
    return Verification(ctx.broker, request.transactional_id, ctx.api_version, answer.verified)


def _unusual_partition(topic: TopicProduceData, index: int, ctx: Context) -> ReplicatedLog:
    """A partition that is named by its topic's id, that is the broker's own, or that is not here."""
    name = topic.name
    if not name:
        known = ctx.broker.topic_name(topic.topic_id)
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        name = known
    partition = ctx.broker.partition(name, index)
    if partition.is_internal and ctx.client_id != ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker only")
    return partition


def checked_records(
    records: memoryview | None, partition: ReplicatedLog, acks: int, api_version: int
) -> memoryview:
    """The records, if nothing that only the request can tell speaks against them; the log judges the rest."""
    if acks == ACKS_ALL:
        partition.check_in_sync(partition.log.config.min_insync_replicas)
    elif not 0 <= acks <= 1:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1, not {acks}")
    if records is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request needs a record batch per partition")
    if api_version < 7 and len(records) > ATTRIBUTES and records[ATTRIBUTES] & _COMPRESSION_MASK == _ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs produce version 7, this is {api_version}"
        )
    return records


def tell_place(result: PartitionProduceResponse, staged: Staged) -> None:
    """Make a partition's part of the answer say where its batch stands."""
    result.base_offset = staged.base_offset
    result.log_append_time_ms = staged.log_append_time_ms
    result.log_start_offset = staged.log_start_offset


def refuse(result: PartitionProduceResponse, error: ApiError) -> None:
    """Make a partition's part of the answer say no, and which records are to blame if the log knows."""
    result.error_code = error.code
    if isinstance(error, RecordValidationError):
        result.record_errors = [BatchIndexAndErrorMessage(index, str(error)) for index in error.batch_indexes]
    result.error_message = str(error)
    result.base_offset = result.log_append_time_ms = result.log_start_offset = -1


def _hang_up_on_error(response: ProduceResponse) -> None:
    """A producer that wants no answers can only be told of trouble by a closed connection, as Kafka does."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise CloseConnection(
                    f"produce with acks=0 to {topic.name}-{result.index}: {result.error_message}"
                )
