"""Fetch of a follower: what it lacks up to the end of the log, and what its offset proves.

For each partition, the first that applies:

    no such topic id                                   UNKNOWN_TOPIC_ID
    its leader epoch is older, or newer, than ours     FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
    this node does not lead                            NOT_LEADER_OR_FOLLOWER
    the requester is not a replica                     UNKNOWN_LEADER_EPOCH
    its broker epoch is not that of its registration   NOT_LEADER_OR_FOLLOWER
    its last epoch, or its offset, precedes the log    OFFSET_OUT_OF_RANGE
    its log diverges from ours                         where, no records; that is no progress (KAFKA-13141)
    it is throttled, and not in sync                   no records, until the rate allows them
    otherwise                                          its offset is what it has stored; records from there on

What a follower has stored decides what is committed, so a request must prove that it is one: by its broker
epoch, or, as long as followers do not state one (metadata.version below 3.5-IV1), by their version of Fetch
and the listener for brokers. A client that only states a replica id has no effect.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from runnel.broker.apis.fetch_parts import FetchedTopics, diverging_epoch, records_of, size_of
from runnel.broker.apis.replica_requests import replica_of
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.current_leaders import LEADER_ERRORS, current_leader
from runnel.broker.runtime.fetch_sessions import INITIAL_EPOCH, NO_SESSION
from runnel.broker.runtime.follower_sessions import NOT_SENT, Cursor, FollowerSession, Key
from runnel.broker.runtime.promise import MaybePromise, Promise, settled
from runnel.broker.runtime.replica_fetcher import fetch_version
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.replication_throttles import ReplicationThrottle
from runnel.broker.runtime.waiting import LongPoll
from runnel.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_BROKER_EPOCH
from runnel.model.limits import SLICE_ELEMENTS
from runnel.ports.disk import NotResident, Slice

T = TypeVar("T")
Mention = tuple[Key, FetchPartition]

PARTITIONS_MAX = 1_000
"""Partitions in one response: each takes about 30 microseconds of the event loop. The rest follows in the
next one."""

BROKER_EPOCH_VERSION = 15
"""The first version of Fetch in which followers state their broker epoch (KIP-903)."""


def fetch_by_replica(request: FetchRequest, ctx: Context) -> MaybePromise[FetchResponse]:
    """Serve a follower's fetch, or let it wait for records."""
    broker = ctx.broker
    node, broker_epoch = replica_of(request)
    sessions, version = broker.follower_sessions, ctx.api_version
    try:
        if _is_proven(ctx, node, broker_epoch):
            planned = sessions.plan(request, version, node, ctx.session)
        else:
            planned = sessions.plan_refused(request, version, node)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    session, is_incremental = planned
    session.broker_epoch = broker_epoch
    fetch = ReplicaFetch(request, ctx, session, is_incremental)
    count = sum(len(topic.partitions) for topic in request.topics)
    forgotten = sum(len(topic.partitions) for topic in request.forgotten_topics_data)
    if max(count, forgotten) > SLICE_ELEMENTS:
        ctx.is_large = True
        return broker.run(fetch.serve_in_slices())
    fetch.note_progress(_mentions(request))
    for key in _forgotten(request):
        session.forget(key)
    fetch.all_noted()
    return fetch.respond_or_wait()


def _slices(elements: Iterable[T]) -> Iterator[list[T]]:
    """The elements, a slice of the event loop at a time."""
    left = iter(elements)
    while some := list(islice(left, SLICE_ELEMENTS)):
        yield some


def _mentions(request: FetchRequest) -> Iterator[Mention]:
    for topic in request.topics:
        for asked in topic.partitions:
            yield (topic.topic, topic.topic_id, asked.partition), asked


def _forgotten(request: FetchRequest) -> Iterator[Key]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield topic.topic, topic.topic_id, index


def _is_proven(ctx: Context, node: int, broker_epoch: int) -> bool:
    broker, image = ctx.broker, ctx.broker.metadata.image
    registration = image.brokers.get(node)
    if registration is None:
        return False
    if broker_epoch != NO_BROKER_EPOCH:
        # Of a fenced broker as well: it has to catch up.
        return broker_epoch == registration.epoch
    version = fetch_version(image.features.get("metadata.version", 0))
    is_stated = version >= BROKER_EPOCH_VERSION
    return not is_stated and ctx.api_version >= version and ctx.session.listener == broker.listener


class ReplicaFetch:
    """One fetch of a follower."""

    __slots__ = (
        "_broker",
        "_budget",
        "_connection",
        "_deadline_ms",
        "_has_unknown",
        "_is_incremental",
        "_loading",
        "_loads",
        "_may_block",
        "_request",
        "_session",
        "_topics",
    )

    def __init__(
        self, request: FetchRequest, ctx: Context, session: FollowerSession, is_incremental: bool
    ) -> None:
        self._broker = ctx.broker
        self._connection = ctx.session
        self._request = request
        self._session = session
        self._is_incremental = is_incremental
        now_ms = ctx.broker.clock.monotonic_ms()
        session.fetch_time.ms = now_ms
        self._deadline_ms = now_ms + request.max_wait_ms
        self._loads: list[Promise[None]] = []
        """Reads of the last attempt that are not in the page cache."""
        self._loading: dict[Cursor, int] = {}
        """How many bytes of the budget each of them takes, at this attempt and the next one."""
        self._may_block = False
        settings = ctx.broker.settings
        limit = max(settings["fetch.max.bytes"], settings["replica.fetch.response.max.bytes"])
        self._budget = min(request.max_bytes, limit)
        self._topics = FetchedTopics()
        """The response, as far as it is known."""
        self._has_unknown = False
        """Does it have errors of partitions that are not on this node?"""

    async def serve_in_slices(self) -> FetchResponse:
        """A request that mentions very many partitions, as the first one of a follower may."""
        mentioned: list[Cursor] = []
        for mentions in _slices(_mentions(self._request)):
            mentioned += self.note_progress(mentions)
            await asyncio.sleep(0)
            if self._session.is_closed:
                # With its connection: no response is expected, and no cursor may be added.
                return FetchResponse()
        for forgotten in _slices(_forgotten(self._request)):
            for key in forgotten:
                self._session.forget(key)
            await asyncio.sleep(0)
        self.all_noted()
        if self._is_incremental:
            return await settled(self.respond_or_wait())
        # The response to a full request has all partitions; most are at the end of their logs.
        found = Found()
        for cursors in _slices(mentioned):
            before_bytes = found.size_bytes
            self._read_all(cursors, found)
            if self._loads:
                await self._load()
                found.size_bytes = before_bytes
                self._read_all(cursors, found, may_block=True)
            self._collect(found)
            await asyncio.sleep(0)
        return self._respond(found)

    def all_noted(self) -> None:
        """All partitions that the request mentions or forgets are noted."""
        # A follower that has more to forget does not let its request wait. One that never lets it wait, by
        # replica.fetch.wait.max.ms=0, has no more to forget if it forgets nothing.
        if self._request.max_wait_ms > 0 or not self._request.forgotten_topics_data:
            self._session.noted()

    def note_progress(self, mentions: Iterable[Mention]) -> list[Cursor]:
        """What the requested offsets prove; returns the partitions that this node has."""
        session = self._session
        noted: list[Cursor] = []
        for key, asked in mentions:
            cursor = session.mention(key, asked)
            try:
                self._note(cursor)
            except ApiError as error:
                if cursor.partition is None:
                    # The follower repeats it later. Until then the session need not keep it.
                    session.forget(key)
                    self._topics.add([(key[0], key[1], self._error(cursor, error))])
                    self._has_unknown = True
                    continue
                # It is raised again by the read, and answered.
                cursor.is_urgent = True
            noted.append(cursor)
            if not cursor.is_dirty:
                cursor.is_dirty = True
                session.dirty[cursor] = None
        return noted

    def _note(self, cursor: Cursor) -> None:
        partition = self._partition(cursor)
        asked = cursor.asked
        if asked.last_fetched_epoch >= 0 and diverging_epoch(partition, asked) is not None:
            cursor.is_urgent = True
            return
        if not partition.log.log_start_offset <= asked.fetch_offset <= partition.log.written_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{asked.fetch_offset} is not in {partition.name}")
        session = self._session
        if partition.leader.is_repeated(session.node, asked.fetch_offset):
            self._broker.verification.suspect(partition, asked.fetch_offset)
        partition.follower_fetched(
            session.node,
            asked.fetch_offset,
            log_start_offset=asked.log_start_offset,
            broker_epoch=session.broker_epoch,
            fetch_time=session.fetch_time,
        )
        cursor.noted = partition.leader.follower(session.node)
        if session.node not in partition.leader.maximal_isr:
            self._broker.replication.propose(partition)
            self._broker.replication.watch(partition)

    def _partition(self, cursor: Cursor) -> ReplicatedLog:
        """The partition that this node leads and the requester follows in the same epoch. Raises ApiError."""
        broker, session = self._broker, self._session
        name, topic_id, index = cursor.key
        if session.uses_topic_ids:
            known = broker.topic_name(topic_id)
            if known is None:
                cursor.attach(None)
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {topic_id.hex()}")
            name = known
        partition = broker.partition_at.get((name, index))
        cursor.attach(partition if session.is_proven else None)
        if partition is None:
            raise broker.no_partition(name, index)
        partition.check_leader_epoch(cursor.asked.current_leader_epoch)
        follower = partition.leader.follower(session.node)
        if not session.is_proven or NO_BROKER_EPOCH < session.broker_epoch < follower.broker_epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"node {session.node} is not registered with broker epoch {session.broker_epoch}",
            )
        return partition

    def respond_or_wait(self) -> MaybePromise[FetchResponse]:
        """The response, or the promise of one."""
        response = self._attempt(self._request.max_wait_ms <= 0)
        return self._wait() if response is None else response

    def _wait(self) -> Promise[FetchResponse]:
        poll: LongPoll[FetchResponse] = LongPoll(self._broker.waiting, self._connection, self._attempt)
        self._session.waiting = poll
        poll.start([], max(0, self._deadline_ms - self._broker.clock.monotonic_ms()))
        return poll

    def _attempt(self, is_expired: bool) -> MaybePromise[FetchResponse] | None:
        """The response; a promise if the disk has to be read; None while there is nothing to send."""
        found = Found()
        self._read_all(list(islice(self._session.dirty, PARTITIONS_MAX)), found)
        if self._loads:
            return self._broker.run(self._load_and_attempt(is_expired))
        return self._respond_if_due(found, is_expired)

    async def _load_and_attempt(self, is_expired: bool) -> FetchResponse:
        """Load all missing ranges into the page cache in threads, and try again."""
        await self._load()
        found = Found()
        self._read_all(list(islice(self._session.dirty, PARTITIONS_MAX)), found, may_block=True)
        response = self._respond_if_due(found, is_expired)
        return await settled(self._wait() if response is None else response)

    async def _load(self) -> None:
        loads, self._loads = self._loads, []
        # The next attempt reports a failed read as an error of its partition.
        await asyncio.gather(*map(settled, loads), return_exceptions=True)

    def _respond_if_due(self, found: "Found", is_expired: bool) -> FetchResponse | None:
        # A new session is reported to the follower at once.
        is_due = (
            is_expired or found.is_urgent or self._has_unknown or self._request.session_epoch == INITIAL_EPOCH
        )
        if not is_due and found.size_bytes < self._request.min_bytes:
            return None
        return self._respond(found)

    def _read_all(self, cursors: list[Cursor], found: "Found", *, may_block: bool = False) -> None:
        self._may_block = may_block
        for cursor in cursors:
            left = self._budget - found.size_bytes
            if left <= 0 and self._is_incremental:
                break
            read = self._read_partition(cursor, left, is_first=found.size_bytes == 0)
            size_bytes = 0
            if read is not None:
                data, size_bytes, has_more = read
                is_new_start = NOT_SENT != cursor.log_start_offset != data.log_start_offset
                found.is_urgent |= cursor.is_urgent or is_new_start or data.error_code != 0
                found.results[cursor] = data, has_more
            if self._loading:
                # What was not loaded for lack of budget is not read on the event loop by the next attempt.
                size_bytes = max(size_bytes, self._loading.get(cursor, 0))
            found.size_bytes += size_bytes
        if may_block:
            self._loading.clear()

    def _read_partition(
        self, cursor: Cursor, budget: int, *, is_first: bool
    ) -> tuple[PartitionData, int, bool] | None:
        """(data, size of the records, whether more follow); None if nothing has changed."""
        asked = cursor.asked
        try:
            partition = self._partition(cursor)
            if cursor.noted is not partition.leader.follower(self._session.node):
                # The mention was rejected, as by a leader that did not know of its election yet. Without the
                # error the follower need not repeat it.
                self._note(cursor)
            log = partition.log
            diverging = diverging_epoch(partition, asked) if asked.last_fetched_epoch >= 0 else None
            found = Slice([], 0)
            is_throttled = False
            if diverging is None:
                throttle = self._throttle(partition)
                is_throttled = throttle is not None and throttle.is_exceeded
                if throttle is not None:
                    budget = min(budget, throttle.response_bytes_max)
                if not is_throttled:
                    found = self._read(partition, cursor, budget, is_first)
        except NotResident as cold:
            assert cursor.partition is not None
            self._loads.append(cursor.partition.load(cold.load))
            self._loading[cursor] = cold.kept_bytes
            return None
        except ApiError as error:
            return self._error(cursor, error), 0, False
        high_watermark, log_start_offset = partition.high_watermark, log.log_start_offset
        is_unchanged = (high_watermark, log_start_offset) == (cursor.high_watermark, cursor.log_start_offset)
        if is_unchanged and not found.size_bytes and diverging is None and self._is_incremental:
            cursor.sent(high_watermark, log_start_offset, has_more=is_throttled)
            return None
        data = PartitionData(
            asked.partition, 0, high_watermark, log_start_offset=log_start_offset, diverging_epoch=diverging
        )
        data.aborted_transactions = None
        data.records = records_of(found)
        has_more = is_throttled or (bool(found.size_bytes) and found.end_offset < log.written_offset)
        if found.size_bytes:
            partition.leader.served(self._session.node, asked.fetch_offset)
        return data, found.size_bytes, has_more

    def _throttle(self, partition: ReplicatedLog) -> ReplicationThrottle | None:
        """The throttle that the follower has to wait for."""
        throttle = self._broker.replication.leader_throttle
        if throttle.applies_to(partition.name) and self._session.node not in partition.leader.isr:
            return throttle
        return None

    def _read(self, partition: ReplicatedLog, cursor: Cursor, budget: int, is_first: bool) -> Slice:
        asked, log = cursor.asked, partition.log
        if asked.fetch_offset == log.written_offset and asked.fetch_offset >= log.log_start_offset:
            return Slice([], 0)
        max_bytes = max(min(asked.partition_max_bytes, budget), 0)
        return partition.read(
            asked.fetch_offset,
            max_bytes,
            log.written_offset,
            at_least_one=is_first,
            may_block=self._may_block,
        )

    def _error(self, cursor: Cursor, error: ApiError) -> PartitionData:
        index = cursor.asked.partition
        data = PartitionData(index, error.code, high_watermark=-1, records=b"", aborted_transactions=None)
        partition = cursor.partition
        if error.error in LEADER_ERRORS and partition is not None:
            leader = current_leader(self._broker, *partition.name)
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(*leader)
        return data

    def _collect(self, found: "Found") -> None:
        """Add what was read to the response."""
        results, found.results = found.results, {}
        throttle = self._broker.replication.leader_throttle
        for cursor, (data, has_more) in results.items():
            if data.records and cursor.partition is not None:
                size_bytes = size_of(data.records)
                cursor.partition.traffic.replication_bytes_out += size_bytes
                if throttle.applies_to(cursor.partition.name):
                    throttle.record(size_bytes)
            has_records = bool(data.records)
            cursor.sent(
                data.high_watermark, data.log_start_offset, has_records=has_records, has_more=has_more
            )
        self._topics.add((cursor.key[0], cursor.key[1], data) for cursor, (data, _) in results.items())

    def _respond(self, found: "Found") -> FetchResponse:
        session = self._session
        session.waiting = None
        self._collect(found)
        response = FetchResponse(session_id=session.id, responses=self._topics.responses())
        if session.id == NO_SESSION and session.is_proven:
            self._broker.follower_sessions.disconnected(self._connection)
        return response


@dataclass(slots=True)
class Found:
    """What was read for one response."""

    results: dict[Cursor, tuple[PartitionData, bool]] = field(default_factory=dict)
    """The data of each partition, and whether it has more."""
    size_bytes: int = 0
    """The part of the budget that is used: the size of the records, or that of a read that is under way."""
    is_urgent: bool = False
