"""Fetches the partitions that this node follows from one leader, over one connection and fetch session.

    request: partitions whose offset, log start or epoch changed ──► leader ──► records
       ▲                                                                           │
       └──── next, at once: it acknowledges ◄── stored, as durable as required ◄────┘

A partition with an error leaves the session and returns after a delay, so that it does not keep the others
from waiting; a request waits for records no longer than until then. A response for another epoch or offset
than the current one is ignored.

A partition is added when its leader changes, and its producers wait until it is fetched. If the request in
flight waits for records of others, it is abandoned: a new session, on a new connection, begins with all.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Any

from runnel.broker.runtime.fetch_sessions import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from runnel.broker.runtime.leader_offsets import leader_offsets
from runnel.broker.runtime.promise import Promise, settled
from runnel.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.ports.peers import Channel, PeerFailed
from runnel.replica.follower import Restart, Truncate, after_out_of_range, truncation_offset
from runnel.replica.leader import NEVER_MS

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.replicated_log import ReplicatedLog

log = logging.getLogger("runnel.broker")

FIRST_DELAY_MS = 20
"""The delay after a first error, doubled up to replica.fetch.backoff.ms: a leader that has not applied the
metadata of its election yet does so soon."""

RESPONSE_MARGIN_MS = 5_000
"""How much longer than the requested wait a response may take."""

REMINDER_MS = 2_000
"""Partitions for which this node is not in the ISR are mentioned again after this time: the leader may have
processed a request of an earlier connection last, and the log may have recovered from a failure."""

PATIENCE_MS = 10
"""How long a partition that was added waits for the response to the request in flight."""

OVERDUE_MS = 200
"""A leader whose response is later than the requested wait by this much may have failed."""

YIELD_BYTES = 1024 * 1024
"""After this many bytes of records, other tasks run."""

YIELD_PARTITIONS = 500
"""After this many partitions, other tasks run."""

MENTIONED_MAX = 1_000
"""Partitions that one request mentions, and that it forgets. A session with more is built by several:
a request with all would exceed the limits of the leader, and be a long step for both."""

_FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
"""The version of Fetch by metadata.version, as in Kafka: followers do not negotiate it."""
_OLDEST_VERSION = 13

_SESSION_ERRORS = frozenset(
    error.code
    for error in (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)

Key = tuple[bytes, int]
"""Topic id and partition."""
Work = Callable[[], Coroutine[Any, Any, None]]


def fetch_version(metadata_version: int) -> int:
    """The version of Fetch that followers use at this metadata.version."""
    return next((version for level, version in _FETCH_VERSIONS if metadata_version >= level), _OLDEST_VERSION)


class Followed:
    """A partition that this node follows."""

    __slots__ = ("epoch", "failures", "in_session", "is_delayed", "is_in_sync", "offset", "partition")

    def __init__(self, partition: "ReplicatedLog") -> None:
        self.partition = partition
        self.epoch = -1
        """The leader epoch and offset of the last request."""
        self.offset = -1
        self.in_session = False
        self.is_delayed = False
        """Does it wait, after an error or because it is throttled?"""
        self.is_in_sync = False
        """Did it have all committed records at the last response?"""
        self.failures = 0

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.name.partition

    @property
    def is_current(self) -> bool:
        """Does the response to the last request apply to the current state?"""
        partition = self.partition
        return (
            not partition.is_leader
            and not partition.is_changing
            and partition.epoch == self.epoch
            and partition.log.written_offset == self.offset
        )


class ReplicaFetcher:
    """One connection to a leader, and the partitions that are fetched over it."""

    def __init__(self, broker: "Broker", leader: int, number: int) -> None:
        self._broker = broker
        self.leader = leader
        self.number = number
        """Different for all fetchers of one leader: each has a connection of its own."""
        self._purpose = f"replica-{number}"
        self._by_name: dict[TopicPartition, Followed] = {}
        self._followed: dict[Key, Followed] = {}
        self._dirty: dict[Followed, None] = {}
        """Partitions to mention in the next request."""
        self._forgotten: dict[Key, None] = {}
        """Partitions to remove from the session with the next request."""
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._session_size = 0
        """How many partitions the session has."""
        self._broker_epoch = broker.epoch
        """The broker epoch of the session; the leader applies it to partitions that a request mentions."""
        self._channel: Channel | None = None
        self._reminded_ms = 0
        self._failures = 0
        self._wake = asyncio.Event()
        self.is_waiting = False
        """Is a request in flight? What is added meanwhile waits for its response."""
        self.sent_ms = 0
        """When the last request was sent."""
        self._request_count = 0
        self._may_wait = False
        """Does the leader answer the request in flight only when it has records?"""
        self._impatient_for = 0
        """The request that is abandoned if it has no response soon."""
        self._is_given_up = False
        self._given_up_ms = NEVER_MS
        self._returns_ms: list[int] = []
        """A heap: when partitions that are delayed return."""
        self._lost = partial(broker.suspects.connection_lost, leader)
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, partition: "ReplicatedLog") -> None:
        """Fetch this partition, in its current epoch."""
        followed = Followed(partition)
        self._followed[followed.key] = self._by_name[partition.name] = followed
        state = self._broker.metadata.image.partition(*partition.name)
        followed.is_in_sync = state is not None and self._broker.node_id in state.isr
        self._continue(followed)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif self.is_waiting and self._impatient_for != self._request_count:
            self._impatient_for = self._request_count
            self._broker.timers.call_later(PATIENCE_MS, partial(self._give_up, self._request_count))

    def _give_up(self, request_number: int) -> None:
        """End a request that waits for records, unless it would take longer to begin a new session."""
        is_in_flight = self.is_waiting and self._request_count == request_number
        now_ms = self._broker.clock.monotonic_ms()
        # While partitions are added one after the other, others must be fetched as well.
        is_soon = now_ms < self._given_up_ms + self._broker.settings["replica.fetch.wait.max.ms"]
        if not is_in_flight or not self._may_wait or is_soon or len(self) > MENTIONED_MAX:
            return
        if self._channel is not None:
            self._given_up_ms, self._is_given_up = now_ms, True
            self._channel.close()

    def remove(self, name: TopicPartition) -> None:
        """Stop fetching this partition."""
        followed = self._by_name.pop(name, None)
        if followed is not None:
            self._followed.pop(followed.key, None)
            self._leave_session(followed)
            self._dirty.pop(followed, None)

    def is_overdue(self, now_ms: int) -> bool:
        """Does the leader take longer to respond than it should, even if there is nothing new?"""
        wait_ms: int = self._broker.settings["replica.fetch.wait.max.ms"]
        return self.is_waiting and now_ms - self.sent_ms > wait_ms + OVERDUE_MS

    async def close(self) -> None:
        """Stop fetching."""
        self._followed.clear()
        self._dirty.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._channel is not None:
            # The leader ends the session with it.
            self._channel.close()

    # -- requests

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
                self._failures = 0
            except (PeerFailed, ApiError) as error:
                if self._is_given_up:
                    self._is_given_up = False
                    self._begin_session()
                else:
                    await self._failed(error)
            except Exception as bug:  # noqa: BLE001 - reported, and the other partitions continue
                self._broker.bugs.report(bug, "a fetch from node %d failed", self.leader)
                await self._failed(bug)

    async def _failed(self, error: Exception) -> None:
        if self._failures == 0:
            log.info("fetches from node %d fail, will retry: %s", self.leader, error)
        self._begin_session()
        self._failures += 1
        await asyncio.sleep(self._delay_ms(self._failures) / 1000)

    def _delay_ms(self, failures: int) -> int:
        backoff_ms: int = self._broker.settings["replica.fetch.backoff.ms"]
        return int(min(FIRST_DELAY_MS * 2 ** min(failures - 1, 10), max(backoff_ms, FIRST_DELAY_MS)))

    async def _round(self) -> None:
        await self._make_durable()
        request = self._request()
        if request is None:
            await self._wait()
            return
        self._channel = channel = self._broker.links.to(self.leader, self._purpose)
        version = fetch_version(self._broker.metadata.image.features.get("metadata.version", 0))
        channel.on_lost = self._lost
        self._request_count += 1
        # The first request of a session is answered at once.
        self._may_wait = request.max_wait_ms > PATIENCE_MS and request.session_id != NO_SESSION
        self._is_given_up = False
        self.is_waiting = True
        self.sent_ms = self._broker.clock.monotonic_ms()
        try:
            timeout_ms = request.max_wait_ms + RESPONSE_MARGIN_MS
            response = await channel.send(request, version=version, timeout_ms=timeout_ms)
        finally:
            self.is_waiting = False
        await self._process(response, channel)
        await self._remind()

    async def _wait(self) -> None:
        """No partition can be fetched at present."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(REMINDER_MS / 1000):
                await self._wake.wait()
        await self._remind()

    async def _make_durable(self) -> None:
        """Where only durable records may be acknowledged: those of before a crash may not be durable yet."""
        hidden = [
            followed
            for followed in islice(self._dirty, MENTIONED_MAX)
            if followed.partition.fetch_offset < followed.partition.log.written_offset
        ]
        for followed in hidden:
            try:
                await settled(followed.partition.make_durable())
            except ApiError as error:
                self._delay(followed, error)

    def _request(self) -> FetchRequest | None:
        """The next request; None if there is nothing to fetch."""
        if self._broker_epoch != self._broker.epoch:
            self._broker_epoch = self._broker.epoch
            self._begin_session()
        mentioned = self._next_mentioned()
        if not mentioned and not self._session_size:
            return None
        for followed in mentioned:
            # A request must not do both.
            self._forgotten.pop(followed.key, None)
        forgotten = list(islice(self._forgotten, MENTIONED_MAX))
        for key in forgotten:
            del self._forgotten[key]
        is_complete = not self._dirty and not self._forgotten
        settings = self._broker.settings
        return FetchRequest(
            replica_id=self._broker.node_id,
            replica_state=ReplicaState(self._broker.node_id, self._broker.epoch),
            max_wait_ms=self._max_wait_ms() if is_complete else 0,
            min_bytes=settings["replica.fetch.min.bytes"],
            max_bytes=settings["replica.fetch.response.max.bytes"],
            session_id=self._session_id,
            session_epoch=INITIAL_EPOCH if self._session_id == NO_SESSION else self._session_epoch,
            topics=self._mentions(mentioned, settings["replica.fetch.max.bytes"]),
            forgotten_topics_data=_forgotten_topics(forgotten),
        )

    def _max_wait_ms(self) -> int:
        """How long the leader may wait for records: until the next delayed partition returns."""
        wait_ms: int = self._broker.settings["replica.fetch.wait.max.ms"]
        if self._returns_ms:
            now_ms = self._broker.clock.monotonic_ms()
            while self._returns_ms and self._returns_ms[0] <= now_ms:
                heappop(self._returns_ms)
            if self._returns_ms:
                return min(wait_ms, self._returns_ms[0] - now_ms)
        return wait_ms

    def _next_mentioned(self) -> list[Followed]:
        """The next partitions to mention, those that waited longest first."""
        seen: list[Followed] = []
        mentioned: list[Followed] = []
        for followed in self._dirty:
            seen.append(followed)
            if _is_ready(followed):
                mentioned.append(followed)
                if len(mentioned) == MENTIONED_MAX:
                    break
        for followed in seen:
            del self._dirty[followed]
        return mentioned

    def _mentions(self, mentioned: list[Followed], max_bytes: int) -> list[FetchTopic]:
        topics: dict[bytes, list[FetchPartition]] = defaultdict(list)
        for followed in mentioned:
            partition = followed.partition
            self._session_size += not followed.in_session
            followed.in_session = True
            followed.epoch, followed.offset = partition.epoch, partition.fetch_offset
            topics[partition.topic_id].append(
                FetchPartition(
                    partition.name.partition,
                    current_leader_epoch=followed.epoch,
                    fetch_offset=followed.offset,
                    last_fetched_epoch=partition.log.leader_epoch,
                    log_start_offset=partition.log.log_start_offset,
                    partition_max_bytes=max_bytes,
                )
            )
        return [FetchTopic(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]

    def _begin_session(self) -> None:
        """The next requests name all partitions, those that earlier ones did not include first."""
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        self._session_size = 0
        self._forgotten.clear()
        for followed in self._followed.values():
            followed.in_session = False
            self._dirty.setdefault(followed)

    # -- responses

    async def _process(self, response: FetchResponse, channel: Channel) -> None:
        if response.error_code in _SESSION_ERRORS:
            self._begin_session()
            return
        if response.error_code:
            raise ApiError(ErrorCode.from_code(response.error_code), "the leader rejects the fetch")
        if response.session_id == NO_SESSION:
            self._begin_session()
        elif response.session_id != self._session_id:
            self._session_id, self._session_epoch = response.session_id, 1
        else:
            self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        works: list[tuple[Followed, Work]] = []
        size_bytes = count = 0
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                if followed is not None:
                    work = self._take(followed, data, channel)
                    works += [(followed, work)] if work is not None else []
                size_bytes += len(data.records or b"")
                count += 1
                if size_bytes > YIELD_BYTES or count == YIELD_PARTITIONS:
                    size_bytes = count = 0
                    await asyncio.sleep(0)
        if works:
            await asyncio.gather(*(self._guarded(followed, work) for followed, work in works))

    async def _remind(self) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        if now_ms < self._reminded_ms + REMINDER_MS:
            return
        self._reminded_ms = now_ms
        image, node = self._broker.metadata.image, self._broker.node_id
        for count, followed in enumerate(list(self._by_name.values()), 1):
            state = image.partition(*followed.partition.name)
            if state is not None and node not in state.isr and not followed.is_delayed:
                self._mention(followed)
            if count % YIELD_PARTITIONS == 0:
                await asyncio.sleep(0)

    def _take(self, followed: Followed, data: PartitionData, channel: Channel) -> Work | None:
        """Apply the response of one partition; returns what remains to be done."""
        if followed.is_delayed:
            return None
        if not followed.is_current:
            # Its role or log changed since the request.
            self._mention(followed)
            return None
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code:
            return partial(self._find_offset, followed, channel)
        if data.error_code:
            error = ErrorCode.from_code(data.error_code)
            self._delay(followed, ApiError(error, f"the leader answers {error.name}"))
            return None
        followed.failures = 0
        if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            diverging = data.diverging_epoch.epoch, data.diverging_epoch.end_offset
            return partial(self._truncate, followed, diverging, channel)
        if not data.records:
            self._apply_leader_state(followed, data)
            return None
        try:
            stored = followed.partition.append_copies(memoryview(data.records), followed.epoch)
        except ApiError as error:
            self._delay(followed, error)
            return None
        if stored.is_settled:
            stored.on_settled(partial(self._stored, followed, data))
            return None
        return partial(self._store, followed, data, stored)

    async def _store(self, followed: Followed, data: PartitionData, stored: Promise[None]) -> None:
        await settled(stored)
        self._stored(followed, data, None)

    def _stored(self, followed: Followed, data: PartitionData, outcome: Exception | None) -> None:
        if isinstance(outcome, Exception):
            self._delay(followed, outcome)
        elif followed.partition.epoch == followed.epoch:
            if followed.partition.log.written_offset == followed.offset:
                # No batch was complete, or all are of a later epoch.
                self._delay(followed, ApiError(ErrorCode.CORRUPT_MESSAGE, "there is no batch to append"))
                return
            self._apply_leader_state(followed, data)
            throttle = self._broker.replication.follower_throttle
            if throttle.applies_to(followed.partition.name):
                throttle.record(len(data.records or b""))
            self._continue(followed)

    def _continue(self, followed: Followed) -> None:
        """Fetch more with the next request; a throttled replica that is not in sync, when it may."""
        throttle = self._broker.replication.follower_throttle
        if not followed.is_in_sync and throttle.applies_to(followed.partition.name) and throttle.delay_ms:
            self._postpone(followed, throttle.delay_ms)
        else:
            self._mention(followed)

    def _apply_leader_state(self, followed: Followed, data: PartitionData) -> None:
        """Apply the high watermark and the log start offset of the leader."""
        partition = followed.partition
        followed.is_in_sync = partition.log.written_offset >= data.high_watermark
        partition.advance_high_watermark(data.high_watermark)
        self._broker.replication.fetched(partition, data.high_watermark)
        if partition.log.log_start_offset < data.log_start_offset <= partition.high_watermark:
            partition.log.delete_records_before(data.log_start_offset, lambda _: self._mention(followed))

    async def _truncate(self, followed: Followed, diverging: tuple[int, int], channel: Channel) -> None:
        if self._is_outdated(followed):
            return
        partition = followed.partition
        own = partition.log.epoch_end(diverging[0])
        offset = truncation_offset(diverging, own, partition.log.written_offset)
        if offset < partition.log.log_start_offset:
            # It has nothing of the leader's log.
            await self._find_offset(followed, channel, end_offset=offset)
            return
        log.info("%s is truncated to %d: its leader's log diverges there", partition.name, offset)
        await settled(partition.truncate(offset))
        self._mention(followed)

    async def _find_offset(self, followed: Followed, channel: Channel, end_offset: int | None = None) -> None:
        """The log is outside of the leader's, or has nothing in common below `end_offset`: continue there."""
        partition = followed.partition
        start, end = await leader_offsets(channel, self._broker.node_id, partition.name, followed.epoch)
        if self._is_outdated(followed):
            return
        if end_offset is not None:
            end = min(end, end_offset)
        own_log = partition.log
        match after_out_of_range(own_log.log_start_offset, own_log.written_offset, start, end):
            case Truncate(offset):
                log.warning("%s is truncated to %d, the end of its leader's log", partition.name, offset)
                await settled(partition.truncate(offset))
            case Restart(offset):
                log.warning("%s continues at %d, the start of its leader's log", partition.name, offset)
                await settled(partition.restart_at(offset))
            case None:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader did not have the offset")
        self._mention(followed)

    def _is_outdated(self, followed: Followed) -> bool:
        """Was another leader elected, or the partition removed, while other tasks ran?

        What one leader does not have may be committed by the next one, and this node counts as having it.
        """
        if self._followed.get(followed.key) is followed and followed.is_current:
            return False
        self._mention(followed)
        return True

    async def _guarded(self, followed: Followed, work: Work) -> None:
        try:
            await work()
        except (ApiError, PeerFailed) as error:
            self._delay(followed, error)

    # -- errors

    def _delay(self, followed: Followed, error: Exception) -> None:
        """Fetch it again after a backoff."""
        if followed.failures == 3:
            log.warning("%s cannot be fetched, will retry: %s", followed.partition.name, error)
        followed.failures += 1
        self._postpone(followed, self._delay_ms(followed.failures))

    def _postpone(self, followed: Followed, delay_ms: int) -> None:
        followed.is_delayed = True
        self._leave_session(followed)
        self._dirty.pop(followed, None)
        heappush(self._returns_ms, self._broker.clock.monotonic_ms() + delay_ms)
        self._broker.timers.call_later(delay_ms, partial(self._again, followed))

    def _again(self, followed: Followed) -> None:
        followed.is_delayed = False
        self._continue(followed)

    def _leave_session(self, followed: Followed) -> None:
        if followed.in_session:
            followed.in_session = False
            self._session_size -= 1
            # Even if the response that begins the session is still expected.
            self._forgotten[followed.key] = None

    def _mention(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed:
            self._dirty[followed] = None
            self._wake.set()


def _is_ready(followed: Followed) -> bool:
    partition = followed.partition
    return not (
        followed.is_delayed
        or partition.is_leader
        or partition.is_changing
        or partition.log.failure is not None
    )


def _forgotten_topics(forgotten: list[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, list[int]] = defaultdict(list)
    for topic_id, index in forgotten:
        topics[topic_id].append(index)
    return [ForgottenTopic(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]
