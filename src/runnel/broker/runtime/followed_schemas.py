"""The topic `_schemas` as a broker follows it: the ids of all subjects, as of a moment ago.

    catch_up ──▶ its end, from its leader ──▶ batches up to it, here or by Fetch ──▶ changes (thread) ──▶ ids

Nothing is read before a batch has to be validated. Requests that wait share a catch-up that begins after they
came, so that a schema that a gateway has registered before is found. While the topic is read for the first
time, or again, the ids that were known are used. What cannot be read is tried again when it is asked for.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from runnel.batch.committed import read_committed
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import crc_is_valid, read_header
from runnel.batch.records import read_pairs, unpack_records
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.leader_requests import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    aborted_of,
    batches_of,
    check_answer,
    fetch_request,
    offsets_request,
    one_offset,
)
from runnel.broker.runtime.promise import settled
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.values import Topic
from runnel.messages.fetch import FetchResponse, PartitionData
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER
from runnel.ports.peers import PeerFailed
from runnel.registry.records import TOPIC
from runnel.registry.subject_ids import Change, SubjectIds, TooManyVersions, change_of

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

PURPOSE = "schemas"
PARTITION = (TOPIC, 0)

FRESH_MS = 1_000
"""How old the ids may be that batches are validated with: an id that was deleted may be used for so long."""

REQUEST_TIMEOUT_MS = 3_000
READ_BYTES = 1 << 20
"""Bytes that are read at a time: a thread parses them in some 50 ms."""

CHANGES_PER_STEP = 1_000
"""Changes that are applied before others are served, in a millisecond."""

MISSING_MS, MISSING_PAUSE_S = 1_000, 0.05
"""How long the topic is waited for: this broker may learn a moment later than others that it was created."""

AGE_MAX_MS = 60 * 60 * 1000
"""After this time without a catch-up the topic is read from its start: tombstones may be gone by then."""

log = logging.getLogger("runnel.broker")


class FollowedSchemas:
    """The ids of subjects, and their catching up with `_schemas`."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.ids = SubjectIds()
        """As of the last catch-up that was completed."""
        self.failure = ""
        """Why the last catch-up failed; empty if it did not."""
        self._reading = SubjectIds()
        """What is being read: `ids`, unless the topic is read from its start."""
        self._position = 0
        self._origin: tuple[bytes, int] | None = None
        """The topic id and the leader epoch; a new leader may have lost records, and written others since."""
        self._tried_ms: int | None = None
        """When the last catch-up that has ended began."""
        self._current_at_ms = 0
        """When the last successful one began, by the wall clock: it does not stop while a machine sleeps."""
        self._is_running = self._has_skipped = False
        self._next: Future[str] | None = None
        """The catch-up that begins when the one in progress has ended."""

    def may_accept(self) -> bool:
        """Whether known ids may be accepted without a catch-up.

        If the topic cannot be read they are accepted as well, and it is tried again in the background.
        """
        if self._tried_ms is None:
            return False
        if self._broker.clock.monotonic_ms() - self._tried_ms < FRESH_MS:
            return True
        if not self.failure:
            return False
        self._begin()
        return True

    async def catch_up(self, deadline_ms: int) -> bool:
        """Read what was written before now; returns whether that has succeeded by the deadline."""
        waiting = self._begin()
        remaining_ms = deadline_ms - self._broker.clock.monotonic_ms()
        if remaining_ms > 0:
            await asyncio.wait([waiting], timeout=remaining_ms / 1000)
        return waiting.done() and not waiting.result()

    def _begin(self) -> "Future[str]":
        """A catch-up that begins now, or after the one in progress; its result is why it failed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if not self._is_running:
                self._is_running = True
                self._broker.run(self._run())
        return self._next

    async def _run(self) -> None:
        clock = self._broker.clock
        while self._next is not None:
            waiting, self._next = self._next, None
            began_ms = clock.monotonic_ms()
            failure = await self._attempt()
            self._tried_ms = began_ms
            if bool(failure) != bool(self.failure):
                if failure:
                    log.warning("%s cannot be read, to validate schemas: %s", TOPIC, failure)
                else:
                    log.info("%s is read again", TOPIC)
            self.failure = failure
            waiting.set_result(failure)
        self._is_running = False

    async def _attempt(self) -> str:
        try:
            await self._read_to_end(self._broker.clock.now_ms())
        except (ApiError, PeerFailed, TooManyVersions) as error:
            return str(error) or type(error).__name__
        except Exception as bug:  # noqa: BLE001 - reported; it is tried again
            self._broker.bugs.report(bug, "%s could not be read", TOPIC)
            return "an unexpected error, which the broker has logged"
        return ""

    async def _read_to_end(self, at_ms: int) -> None:
        topic = await self._topic()
        origin = None if topic is None else (topic.id, topic.partitions[0].leader_epoch)
        if origin != self._origin or abs(at_ms - self._current_at_ms) > AGE_MAX_MS:
            self._restart(origin, at_ms)
        if topic is not None:
            source = self._source(topic)
            end_offset = await source.end_offset()
            if end_offset < self._position:
                # Records were lost in the same epoch.
                self._restart(origin, at_ms)
            while self._position < end_offset:
                await self._read(source, end_offset)
        self.ids, self._current_at_ms = self._reading, at_ms

    def _restart(self, origin: tuple[bytes, int] | None, at_ms: int) -> None:
        self._reading, self._position, self._origin = SubjectIds(), 0, origin
        # What is interrupted is continued by the next attempt.
        self._current_at_ms = at_ms

    async def _topic(self) -> Topic | None:
        """The topic; None if there is none."""
        topics = self._broker.metadata.image.topics
        began_ms = self._broker.clock.monotonic_ms()
        while TOPIC not in topics and self._broker.clock.monotonic_ms() - began_ms < MISSING_MS:
            await asyncio.sleep(MISSING_PAUSE_S)
            topics = self._broker.metadata.image.topics
        return topics.get(TOPIC)

    def _source(self, topic: Topic) -> "_Here | _Elsewhere":
        leader = topic.partitions[0].leader
        if leader == NO_LEADER:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{TOPIC} has no leader")
        if leader == self._broker.node_id:
            return _Here(self._broker, self._broker.partition(*PARTITION))
        return _Elsewhere(self._broker, topic.id, leader)

    async def _read(self, source: "_Here | _Elsewhere", end_offset: int) -> None:
        batches, aborted = await source.read(self._position, end_offset)
        job = Job(partial(_changes, batches, aborted, self._position))
        changes, skipped = await self._broker.disk.run_blocking(job)
        if skipped is not None and not self._has_skipped:
            self._has_skipped = True
            self._broker.bugs.report(skipped, "a record of %s is skipped", TOPIC)
        for start in range(0, len(changes), CHANGES_PER_STEP):
            for change in changes[start : start + CHANGES_PER_STEP]:
                self._reading.apply(change)
            await asyncio.sleep(0)
        # Without batches, compaction has left none.
        self._position = min(read_header(batches[-1]).next_offset, end_offset) if batches else end_offset


class _Here:
    """The log of the topic, which this broker leads."""

    def __init__(self, broker: "Broker", partition: ReplicatedLog) -> None:
        self._broker, self._partition = broker, partition

    async def end_offset(self) -> int:
        """The last stable offset, if it is known to be the newest one. Raises ApiError."""
        partition = self._partition
        self._broker.check_may_lead(partition)
        is_unknown = partition.has_followers and not partition.leader.has_committed_in_epoch
        if partition.is_isolated or is_unknown:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"the end of {TOPIC} is not known yet")
        return partition.last_stable_offset

    async def read(
        self, offset: int, end_offset: int
    ) -> tuple[Sequence[memoryview], Sequence[tuple[int, int]]]:
        """The next batches, and the aborted transactions in them. Raises ApiError."""
        partition = self._partition
        start = max(offset, partition.log.log_start_offset)
        batches = await settled(partition.load(partition.log.read_batches(start, READ_BYTES, end_offset)))
        if not batches:
            return (), ()
        until = min(read_header(batches[-1]).next_offset, end_offset)
        return batches, await partition.aborted_transactions(start, until)


class _Elsewhere:
    """The log of the topic, which another broker leads."""

    def __init__(self, broker: "Broker", topic_id: bytes, leader: int) -> None:
        self._topic_id = topic_id
        self._channel = broker.links.to(leader, PURPOSE)

    async def end_offset(self) -> int:
        """The last stable offset. Raises ApiError and PeerFailed."""
        return await self._offset(LATEST)

    async def read(
        self, offset: int, end_offset: int
    ) -> tuple[Sequence[memoryview], Sequence[tuple[int, int]]]:
        """The next batches, and the aborted transactions in them. Raises ApiError and PeerFailed."""
        data = await self._fetch(offset)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code:
            data = await self._fetch(max(offset, await self._offset(EARLIEST)))
        check_answer(data.error_code)
        batches = batches_of(data)
        if not batches and data.last_stable_offset < end_offset:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{TOPIC} ends before {end_offset}")
        return batches, aborted_of(data)

    async def _fetch(self, offset: int) -> PartitionData:
        request = fetch_request(*PARTITION, self._topic_id, offset, READ_COMMITTED, READ_BYTES)
        response: FetchResponse = await self._channel.send(request, timeout_ms=REQUEST_TIMEOUT_MS)
        check_answer(response.error_code)
        return response.responses[0].partitions[0]

    async def _offset(self, timestamp: int) -> int:
        request = offsets_request([PARTITION], READ_COMMITTED, timestamp)
        return one_offset(await self._channel.send(request, timeout_ms=REQUEST_TIMEOUT_MS))


def _changes(
    batches: Sequence[memoryview], aborted: Sequence[tuple[int, int]], from_offset: int
) -> tuple[list[Change], Exception | None]:
    """What committed records change, and why one of them is skipped. Raises CorruptBatch."""
    changes: list[Change] = []
    skipped: Exception | None = None
    for batch, header, is_received in read_committed(batches, aborted):
        if not crc_is_valid(batch, 0, header):
            raise CorruptBatch(f"the batch at {header.base_offset} does not match its checksum")
        if not is_received or header.next_offset <= from_offset:
            continue
        for _, key, value in read_pairs(unpack_records(batch, header), header.record_count):
            try:
                change = change_of(key, value)
            except Exception as error:  # noqa: BLE001 - one record must not keep all others from being read
                skipped = error
                continue
            if change is not None:
                changes.append(change)
    return changes, skipped
