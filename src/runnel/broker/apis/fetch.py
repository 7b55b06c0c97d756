"""Fetch: read the requested partitions within max.bytes; wait for min.bytes."""

import asyncio
from typing import Any

from runnel.broker.apis.fetch_by_replica import fetch_by_replica
from runnel.broker.apis.fetch_metadata import fetch_metadata, is_metadata_fetch
from runnel.broker.apis.fetch_parts import diverging_epoch, records_of, size_of, topics_of
from runnel.broker.apis.handlers import handles
from runnel.broker.apis.replica_requests import is_replica
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.current_leaders import LEADER_ERRORS, current_leader, node_address
from runnel.broker.runtime.fetch_sessions import FetchPlan, RequestedPartition, Result
from runnel.broker.runtime.preferred_replicas import NO_REPLICA, preferred_replica, selects_by_rack
from runnel.broker.runtime.promise import MaybePromise, Promise, settled
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.waiting import LongPoll
from runnel.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.limits import FETCH_WAIT_MS_MAX
from runnel.ports.disk import FileSlice, NotResident, Slice
from runnel.wire import encode

READ_COMMITTED = 1
FOLLOWER_READS_VERSION = 11
"""The version from which consumers may fetch from followers (KIP-392)."""
PartitionRead = tuple[PartitionData | None, int]
"""The response of a partition, None if there is none yet or a session has no changes; and the part of the
budget that it takes: the size of its records, or that of a read."""


@handles(FetchRequest)
def fetch(request: FetchRequest, ctx: Context) -> MaybePromise[FetchResponse]:
    """Read records, or wait for them.

    v4 isolation level · v5 log start offset · v7 sessions · v9 leader epoch · v11 rack · v12 flexible and
    diverging epoch · v13 topic ids · v15 replica state · v16 leader's endpoint · v17-18 followers only
    """
    broker = ctx.broker
    request.max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MS_MAX)
    if is_metadata_fetch(request, ctx):
        return fetch_metadata(request, ctx)
    if is_replica(request):
        return fetch_by_replica(request, ctx)
    try:
        plan = broker.fetch_sessions.plan(request, ctx.api_version)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    if ctx.throttle_ms:
        return _without_records(broker, plan)
    plan.readable_topics = ctx.readable_topics
    reading = DelayedFetch(ctx, request, plan)
    response = reading.attempt(request.max_wait_ms <= 0)
    return reading.wait() if response is None else response


def _without_records(broker: Broker, plan: FetchPlan) -> FetchResponse:
    """No records, as for a client that exceeds a quota; a session does not begin with that, as in Kafka."""
    if plan.session is not None and not plan.is_incremental:
        broker.fetch_sessions.end(plan.session)
        return FetchResponse()
    return FetchResponse(session_id=plan.session_id)


class DelayedFetch:
    """A fetch that is retried when new data is available or was loaded into the page cache."""

    __slots__ = (
        "_appended_bytes",
        "_broker",
        "_budget",
        "_ctx",
        "_deadline_ms",
        "_found_bytes",
        "_has_hidden_bytes",
        "_is_charged",
        "_is_committed_only",
        "_is_truncated",
        "_loading",
        "_loads",
        "_may_block",
        "_needs_leader",
        "_plan",
        "_rack",
        "_request",
        "_session",
        "_watched",
    )

    def __init__(self, ctx: Context, request: FetchRequest, plan: FetchPlan) -> None:
        broker = self._broker = ctx.broker
        self._ctx = ctx
        self._request = request
        self._plan = plan
        self._session = ctx.session
        self._needs_leader = ctx.api_version < FOLLOWER_READS_VERSION
        self._rack = request.rack_id if request.rack_id and selects_by_rack(broker) else ""
        """The rack of a consumer that may be directed to a follower."""
        self._deadline_ms = broker.clock.monotonic_ms() + request.max_wait_ms
        self._loads: list[Promise[None]] = []
        """Reads of the last attempt that are not in the page cache."""
        self._loading: dict[ReplicatedLog, int] = {}
        """How many bytes of the budget each of them takes, at this attempt and the next one."""
        self._may_block = False
        """After loading: pages evicted since then are read on the event loop."""
        self._budget = min(request.max_bytes, broker.settings["fetch.max.bytes"])
        quota_bytes = broker.gates.quotas.fetch_bytes_max(ctx.session)
        self._is_charged = quota_bytes is not None
        """Does a quota limit the bytes of the response?"""
        if quota_bytes is not None:
            self._budget = min(self._budget, quota_bytes)
        self._is_committed_only = request.isolation_level == READ_COMMITTED
        self._has_hidden_bytes = False
        """At the last attempt, not all was committed, or a transaction was open: more bytes may become
        readable than are appended from now on."""
        self._watched: list[ReplicatedLog] | None = None
        self._found_bytes = 0
        self._is_truncated = False
        """More data is available than was read, for example at the end of a segment: do not wait."""
        self._appended_bytes = 0
        """Bytes appended to all requested partitions at the time of the last attempt."""

    def partitions(self) -> list[ReplicatedLog]:
        """The partitions to watch; those that existed when the request began to wait."""
        if self._watched is None:
            found = (_find(self._broker, wanted) for wanted in self._plan.wanted)
            self._watched = [partition for partition in found if partition is not None]
        return self._watched

    def wait(self) -> MaybePromise[FetchResponse]:
        """Wait for more data until max.wait.ms is over."""
        poll = LongPoll(self._broker.waiting, self._session, self.retry)
        poll.start(self.partitions(), max(0, self._deadline_ms - self._broker.clock.monotonic_ms()))
        return poll

    def retry(self, is_expired: bool) -> MaybePromise[FetchResponse] | None:
        """A watched partition changed: try again if min.bytes may be reached."""
        if not self._ctx.is_permission_current:
            return self._unauthorized()
        if not is_expired and self._request.min_bytes > 1 and not self._has_hidden_bytes:
            grown_bytes = self._count_appended_bytes() - self._appended_bytes
            if self._found_bytes + grown_bytes < self._request.min_bytes:
                return None
        return self.attempt(is_expired)

    def attempt(self, is_expired: bool) -> MaybePromise[FetchResponse] | None:
        """The response; a promise if the disk has to be read; None below min.bytes."""
        budget = self._budget
        results: list[Result] = []
        size_bytes = 0
        self._is_truncated = self._has_hidden_bytes = False
        is_urgent = is_expired or not self._plan.wanted
        for wanted in self._plan.wanted:
            data, read_bytes = self._read_partition(wanted, budget - size_bytes, size_bytes == 0)
            size_bytes += read_bytes
            if data is None:
                continue
            if data.error_code or data.diverging_epoch is not None:
                is_urgent = True
            results.append((wanted, data))
        if self._loads:
            return self._broker.run(self._load(is_expired))
        is_urgent = is_urgent or self._is_truncated
        if not is_urgent and size_bytes < min(self._request.min_bytes, budget):
            self._found_bytes = size_bytes
            self._appended_bytes = self._count_appended_bytes()
            return None
        return self._respond(results)

    async def _load(self, is_expired: bool) -> FetchResponse:
        """Load all missing ranges into the page cache in threads, and try again."""
        loads, self._loads = self._loads, []
        # The attempt reports a failed read as an error of its partition.
        await asyncio.gather(*map(settled, loads), return_exceptions=True)
        if not self._ctx.is_permission_current:
            return self._unauthorized()
        self._may_block = True
        response = self.attempt(is_expired)
        self._may_block = False
        self._loading.clear()
        return await settled(self.wait() if response is None else response)

    def _unauthorized(self) -> FetchResponse:
        """No records: ACLs have changed, so that the permission to read them may be revoked.

        The next request is authorized as any other.
        """
        return _without_records(self._broker, self._plan)

    def _read_partition(self, wanted: RequestedPartition, budget: int, is_first: bool) -> PartitionRead:
        asked = wanted.asked
        try:
            partition = self._partition(wanted)
            if self._rack and (preferred := self._preferred(partition, asked)) is not None:
                return preferred, 0
            diverging = diverging_epoch(partition, asked) if asked.last_fetched_epoch >= 0 else None
            stable_offset = partition.last_stable_offset
            records: Any = b""
            size_bytes = 0
            aborted: list[AbortedTransaction] | None = [] if self._is_committed_only else None
            if diverging is None:
                end_offset = stable_offset if self._is_committed_only else partition.high_watermark
                found = self._read(partition, asked, budget, end_offset, is_first)
                size_bytes = found.size_bytes
                self._has_hidden_bytes |= partition.log.end_offset > end_offset
                if size_bytes and found.end_offset < end_offset:
                    self._is_truncated = True
                records = records_of(found)
                if aborted is not None and size_bytes:
                    aborted = aborted_within(
                        partition, asked.fetch_offset, found.end_offset, may_block=self._may_block
                    )
        except NotResident as cold:
            self._loads.append(partition.load(cold.load))
            self._loading[partition] = cold.kept_bytes
            return None, cold.kept_bytes
        except ApiError as error:
            return self._error(wanted, error), 0
        high_watermark, log_start_offset = partition.high_watermark, partition.log.log_start_offset
        is_quiet = not size_bytes and diverging is None and self._plan.is_incremental
        if is_quiet and wanted.is_unchanged(high_watermark, log_start_offset):
            return None, 0
        data = PartitionData(
            asked.partition,
            0,
            high_watermark,
            stable_offset,
            log_start_offset,
            diverging,
            None,
            None,
            aborted,
            -1,
            records,
        )
        if self._loading:
            # What was not loaded for lack of budget is not read on the event loop now.
            size_bytes = max(size_bytes, self._loading.get(partition, 0))
        return data, size_bytes

    def _preferred(self, partition: ReplicatedLog, asked: FetchPartition) -> PartitionData | None:
        """No records, but the replica to fetch them from, if there is one."""
        replica = preferred_replica(self._broker, partition, self._rack, asked.fetch_offset)
        if replica == NO_REPLICA:
            return None
        self._is_truncated = True
        return PartitionData(
            asked.partition,
            0,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            aborted_transactions=[] if self._is_committed_only else None,
            preferred_read_replica=replica,
            records=b"",
        )

    def _partition(self, wanted: RequestedPartition) -> ReplicatedLog:
        """The partition to read. Raises ApiError."""
        if self._plan.readable_topics is not None:
            name = wanted.topic or self._broker.topic_name(wanted.topic_id)
            if name is not None and name not in self._plan.readable_topics:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not authorized to read {name}")
        asked = wanted.asked
        partition = self._broker.partition_at.get((wanted.topic, asked.partition))
        if partition is None:
            partition = _resolve_partition(self._broker, wanted)
        if asked.current_leader_epoch != -1:
            partition.check_leader_epoch(asked.current_leader_epoch)
        if not partition.is_leader and self._needs_leader:
            partition.check_leader()
        return partition

    def _read(
        self, partition: ReplicatedLog, asked: FetchPartition, budget: int, end_offset: int, is_first: bool
    ) -> Slice:
        log = partition.log
        if asked.fetch_offset == end_offset and end_offset >= log.log_start_offset:
            # The reader is at the end: no index lookup.
            return Slice([], 0)
        if asked.fetch_offset > log.written_offset:
            self._check_knows_end(partition)
        max_bytes = max(min(asked.partition_max_bytes, budget), 0)
        return partition.read(
            asked.fetch_offset, max_bytes, end_offset, at_least_one=is_first, may_block=self._may_block
        )

    def _check_knows_end(self, partition: ReplicatedLog) -> None:
        """Only the leader may answer that an offset does not exist: a consumer then resets its position."""
        if not partition.is_leader:
            raise ApiError(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"this follower of {partition.name} ends before the offset"
            )
        self._broker.check_may_lead(partition)

    def _error(self, wanted: RequestedPartition, error: ApiError) -> PartitionData:
        index = wanted.asked.partition
        data = PartitionData(index, error.code, high_watermark=-1, records=b"", aborted_transactions=None)
        if error.error in LEADER_ERRORS:
            name = wanted.topic or self._broker.topic_name(wanted.topic_id) or ""
            leader = current_leader(self._broker, name, index)
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(*leader)
        return data

    def _count_appended_bytes(self) -> int:
        return sum(partition.appended_bytes for partition in self.partitions())

    def _respond(self, results: list[Result]) -> FetchResponse:
        plan = self._plan
        keyed = ((wanted.topic, wanted.topic_id, data) for wanted, data in results)
        response = FetchResponse(session_id=plan.session_id, responses=topics_of(keyed))
        leaders = {data.current_leader.leader_id for _, data in results if data.current_leader is not None}
        for leader in sorted(leaders):
            address = node_address(self._broker, leader, self._session.listener)
            if address is not None:
                response.node_endpoints.append(NodeEndpoint(*address))
        if self._is_charged and self._is_over_quota(response):
            return _without_records(self._broker, plan)
        if plan.session is not None:
            plan.session.record_response(results)
        self._count(results)
        return response

    def _count(self, results: list[Result]) -> None:
        broker = self._broker
        for wanted, data in results:
            partition = broker.partition_at.get((wanted.topic, data.partition_index))
            if partition is None:
                partition = _find(broker, wanted)
            traffic = broker.traffic.unknown() if partition is None else partition.traffic
            if data.error_code:
                traffic.failed_fetches += 1
                broker.gates.accounting.failed(FetchRequest.api_key, data.error_code)
                continue
            traffic.fetches += 1
            if data.records:
                traffic.bytes_out += size_of(data.records)
                if self._watched is not None and type(data.records) is bytes:
                    broker.events.delivered(data.records, broker.clock.now_ms())

    def _is_over_quota(self, response: FetchResponse) -> bool:
        """Charge the client for the response, unless that exceeds its quota: then it is throttled."""
        ctx = self._ctx
        parts = encode(response, ctx.api_version)
        size_bytes = sum(part.length if isinstance(part, FileSlice) else len(part) for part in parts)
        throttle_ms = self._broker.gates.quotas.fetch_throttle_ms(ctx.session, size_bytes)
        if throttle_ms:
            ctx.throttle(throttle_ms)
        return throttle_ms > 0


def aborted_within(
    partition: ReplicatedLog, first_offset: int, end_offset: int, *, may_block: bool
) -> list[AbortedTransaction]:
    """Aborted transactions that overlap these offsets."""
    found = partition.log.aborted_transactions(first_offset, end_offset, may_block=may_block)
    return [AbortedTransaction(producer_id, offset) for producer_id, offset in found]


def _find(broker: Broker, wanted: RequestedPartition) -> ReplicatedLog | None:
    try:
        return _resolve_partition(broker, wanted)
    except ApiError:
        return None


def _resolve_partition(broker: Broker, wanted: RequestedPartition) -> ReplicatedLog:
    """The partition of a topic given by id, or unknown. Raises ApiError."""
    name = wanted.topic
    if not name:
        known = broker.topic_name(wanted.topic_id)
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {wanted.topic_id.hex()}")
        name = known
    return broker.partition(name, wanted.asked.partition)
