"""Fetch: read from every wanted partition within a budget; wait while there is too little."""

from dataclasses import dataclass

from runnel.broker.broker import Broker
from runnel.broker.context import Context
from runnel.broker.fetch_sessions import FetchPlan, Wanted
from runnel.broker.handlers import handles
from runnel.broker.partition import Partition
from runnel.broker.waiting import LongPoll
from runnel.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from runnel.model.errors import ErrorCode, Refusal, Refused

READ_COMMITTED = 1
_TELLS_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@handles(FetchRequest)
def fetch(request: FetchRequest, ctx: Context) -> FetchResponse | LongPoll:
    """Read records, or wait for them.

    v4 isolation level · v5 log start offset · v7 sessions · v9 leader epoch · v11 rack · v12 flexible and
    diverging epoch · v13 topic ids · v15 replica state · v16 leader's endpoint · v17-18 for followers only
    """
    broker = ctx.broker
    try:
        plan = broker.fetch_sessions.plan(request, ctx.api_version)
    except Refusal as refusal:
        return FetchResponse(error_code=refusal.code)
    reading = Reading(broker, request, ctx.api_version, plan)
    response = reading.attempt(request.max_wait_ms <= 0)
    if response is not None:
        return response
    poll = LongPoll(broker.waiting, ctx.session, reading.attempt_again)
    poll.start(reading.partitions(), request.max_wait_ms)
    return poll


@dataclass(slots=True)
class Reading:
    """One fetch that is read now, and perhaps again when more has come."""

    broker: Broker
    request: FetchRequest
    api_version: int
    plan: FetchPlan
    found_bytes: int = 0
    appended_bytes: int = 0
    """What all wanted partitions together had been given when we last looked."""

    def partitions(self) -> list[Partition]:
        """The partitions to watch."""
        found = (_find(self.broker, wanted) for wanted in self.plan.wanted)
        return [partition for partition in found if partition is not None]

    def attempt_again(self, is_last_chance: bool) -> FetchResponse | None:
        """A watched partition moved: read again if there can be enough by now."""
        if not is_last_chance and self.request.min_bytes > 1:
            grown_bytes = self._appended_bytes() - self.appended_bytes
            if self.found_bytes + grown_bytes < self.request.min_bytes:
                return None
        return self.attempt(is_last_chance)

    def attempt(self, is_last_chance: bool) -> FetchResponse | None:
        """The response, or None when there is too little to say yet."""
        request = self.request
        budget = min(request.max_bytes, self.broker.settings["fetch.max.bytes"])
        results: list[tuple[Wanted, PartitionData]] = []
        size_bytes = 0
        is_urgent = is_last_chance or not self.plan.wanted
        for wanted in self.plan.wanted:
            data, read_bytes = self._read(wanted, budget - size_bytes, size_bytes == 0)
            size_bytes += read_bytes
            if data.error_code or data.diverging_epoch is not None:
                is_urgent = True
            results.append((wanted, data))
        if not is_urgent and size_bytes < min(request.min_bytes, budget):
            self.found_bytes = size_bytes
            self.appended_bytes = self._appended_bytes()
            return None
        return self._respond(results)

    def _appended_bytes(self) -> int:
        return sum(partition.appended_bytes for partition in self.partitions())

    def _respond(self, results: list[tuple[Wanted, PartitionData]]) -> FetchResponse:
        session = self.plan.session
        if session is not None:
            news = session.news(results)
            if self.plan.is_incremental:
                results = news
        response = FetchResponse(session_id=self.plan.session_id)
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for wanted, data in results:
            key = (wanted.topic, wanted.topic_id)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(wanted.topic, wanted.topic_id)
                response.responses.append(topic)
            topic.partitions.append(data)
            if data.current_leader is not None and not response.node_endpoints:
                broker = self.broker
                response.node_endpoints = [
                    NodeEndpoint(broker.node_id, broker.host, broker.port, broker.rack)
                ]
        return response

    def _read(self, wanted: Wanted, budget: int, is_first: bool) -> tuple[PartitionData, int]:
        """One partition's part of the answer, and how many bytes of records are in it."""
        asked = wanted.asked
        data = PartitionData(asked.partition)
        partition = _find(self.broker, wanted)
        try:
            if partition is None:
                raise _missing(self.broker, wanted)
            partition.leader.check_epoch(asked.current_leader_epoch)
            if asked.last_fetched_epoch >= 0:
                data.diverging_epoch = _diverging(partition, asked)
            size_bytes = 0
            if data.diverging_epoch is None:
                size_bytes = self._read_records(partition, asked, data, budget, is_first)
            data.high_watermark = partition.high_watermark
            data.last_stable_offset = partition.last_stable_offset
            data.log_start_offset = partition.log.log_start_offset
        except Refusal as refusal:
            data.error_code = refusal.code
            data.high_watermark = -1
            data.records = b""
            if partition is not None and refusal.error in _TELLS_LEADER:
                data.current_leader = LeaderIdAndEpoch(partition.leader.node, partition.leader.epoch)
            return data, 0
        return data, size_bytes

    def _read_records(
        self, partition: Partition, asked: FetchPartition, data: PartitionData, budget: int, is_first: bool
    ) -> int:
        end_offset = partition.high_watermark
        data.aborted_transactions = None
        if self.request.isolation_level == READ_COMMITTED:
            end_offset = partition.last_stable_offset
            data.aborted_transactions = []
        max_bytes = min(asked.partition_max_bytes, budget)
        found = partition.log.read(asked.fetch_offset, max(max_bytes, 0), end_offset, at_least_one=is_first)
        parts = found.parts
        if len(parts) == 1 and type(parts[0]) is bytes:
            data.records = parts[0]
        else:
            data.records = found if parts else b""
        return found.size_bytes


def _find(broker: Broker, wanted: Wanted) -> Partition | None:
    name = wanted.topic
    if not name:
        topic = broker.metadata.image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return None
        name = topic.name
    return broker.partition_at.get((name, wanted.asked.partition))


def _missing(broker: Broker, wanted: Wanted) -> Refusal:
    name = wanted.topic
    if not name:
        topic = broker.metadata.image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {wanted.topic_id.hex()}")
        name = topic.name
    return broker.no_partition(name, wanted.asked.partition)


def _diverging(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the reader's history parts from ours (KIP-595), if it does."""
    epoch, end_offset = partition.log.epoch_end(asked.last_fetched_epoch)
    if epoch < 0:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {asked.last_fetched_epoch} is before our log")
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None
