"""The audit log as a topic: events are written to one of its partitions, here or on the broker that leads it.

    any thread ──▶ queue (bounded) ──▶ task ──▶ a partition led here: staged as a produced batch
                                          └──▶ elsewhere: Produce

Nothing waits for the task. Events that find the queue full are counted, and the count is a record of its own.
A batch is written until it is acknowledged by all in-sync replicas, so that one may be there twice. What a
broker writes here is not recorded again by the broker that leads the partition.
"""

import asyncio
import json
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.broker.runtime.promise import Promise, settled
from runnel.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_LEADER
from runnel.ports.gates import CLUSTER_NAME, Operation, Permission, ResourceType
from runnel.ports.peers import PeerFailed
from runnel.ports.service import Session

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

PURPOSE = "audit"
PRODUCE_KEY = 0
ACKS_ALL = -1
WRITE_TIMEOUT_MS = 10_000

BATCH_EVENTS_MAX = 200
"""They are encoded on the event loop, in a few milliseconds at most."""

BATCH_BYTES_MAX = 256 * 1024
"""A batch is not extended beyond this; with its last event it is below any usual max.message.bytes."""

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.2, 15.0

COUNTS_SECONDS = 1.0
"""Counts are written at most this often, so that a flood of denials is not a flood of records."""

CLOSE_SECONDS = 5.0
"""How long a stop waits in total until what is queued is written."""

REFUSED = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Another attempt with the same batch would fail as well."""

log = logging.getLogger("runnel.broker")


class AuditTopic:
    """Writes events to the audit topic until it is closed."""

    def __init__(self, broker: "Broker", name: str, queue_max: int) -> None:
        self._broker = broker
        self._name = name
        self._queue_max = queue_max
        self._queue: deque[dict[str, Any]] = deque()
        self._writing = 0
        """Events of the batch that is being written."""
        self._dropped = 0
        self._suppressed = 0
        self._counts_at = 0.0
        """When counts may be written again."""
        self._has_failed = False
        self._is_flushing = False
        self._close_seconds = CLOSE_SECONDS
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- any thread

    def offer(self, event: dict[str, Any]) -> None:
        """Queue an event; not to be called concurrently."""
        if len(self._queue) + self._writing >= self._queue_max:
            self._dropped += 1
            return
        self._queue.append(event)
        if len(self._queue) == 1:
            self._wake()

    def suppress(self) -> None:
        """A denial was not recorded because there are too many."""
        self._suppressed += 1
        if self._suppressed == 1:
            self._wake()

    def is_own_write(self, session: Session, client_id: str | None, api_key: int, wanted: Permission) -> bool:
        """Is this a node that writes its events? Recording that would lead to the next write."""
        return (
            api_key == PRODUCE_KEY
            and wanted.resource_type == ResourceType.TOPIC
            and wanted.name == self._name
            and (client_id or "").endswith(f"-{PURPOSE}")
            and self._broker.gates.authorizer.allows(
                session, Permission(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
            )
        )

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    # -- the event loop

    def start(self) -> None:
        """Begin to write: the broker serves."""
        self._task = self._loop.create_task(self._run())

    async def flush(self) -> None:
        """Wait until what is queued is written, for a limited time."""
        if self._task is None or self._task.done():
            return
        began = self._loop.time()
        self._is_flushing = True
        self._idle.clear()
        self._woken.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._close_seconds):
                await self._idle.wait()
        self._is_flushing = False
        self._close_seconds = max(0.0, self._close_seconds - (self._loop.time() - began))

    async def close(self) -> None:
        """Write what is queued, and end; what could not be written is reported in the log."""
        await self.flush()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        lost = len(self._queue) + self._writing + self._dropped
        if lost:
            log.error("%d events were not written to the audit topic %s", lost, self._name)

    async def _run(self) -> None:
        while True:
            if not self._queue and not self._are_counts_due:
                await self._wait()
            self._woken.clear()
            batch, counts = self._take()
            if batch is not None:
                await self._deliver(batch, counts)

    async def _wait(self) -> None:
        """Until there is something to write."""
        has_counts = self._dropped or self._suppressed
        if not has_counts:
            self._idle.set()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._counts_at if has_counts else None):
                await self._woken.wait()

    @property
    def _are_counts_due(self) -> bool:
        is_time = self._is_flushing or self._loop.time() >= self._counts_at
        return is_time and bool(self._dropped or self._suppressed)

    def _take(self) -> tuple[bytes | None, tuple[int, int]]:
        """The next batch, and the counts in it."""
        now_ms = self._broker.clock.now_ms()
        records: list[Record] = []
        size_bytes = 0
        while self._queue and len(records) < BATCH_EVENTS_MAX and size_bytes < BATCH_BYTES_MAX:
            event = self._queue.popleft()
            value = json.dumps(event).encode()
            records.append(Record(0, event["timestamp_ms"], None, value))
            size_bytes += len(value)
        self._writing = len(records)
        counts = (0, 0)
        if self._are_counts_due:
            counts = (self._suppressed, self._dropped)
            self._suppressed -= counts[0]
            self._dropped -= counts[1]
            self._counts_at = self._loop.time() + COUNTS_SECONDS
            names = ("denials_over_limit", "dropped")
            event = {"timestamp_ms": now_ms, "outcome": "not recorded", "node_id": self._broker.node_id}
            value = json.dumps(event | dict(zip(names, counts, strict=True))).encode()
            records.append(Record(0, now_ms, None, value))
        return (bytes(build_batch(records)) if records else None), counts

    async def _deliver(self, batch: bytes, counts: tuple[int, int]) -> None:
        """Write a batch, however many attempts that takes."""
        delay_s = RETRY_SECONDS_MIN
        while True:
            try:
                await self._write(batch)
            except (ApiError, PeerFailed) as error:
                self._report(error)
                if isinstance(error, ApiError) and error.error in REFUSED:
                    self._suppressed += counts[0]
                    self._dropped += counts[1] + self._writing
                    # The next batch, with the counts, may be refused as well.
                    await asyncio.sleep(RETRY_SECONDS_MAX)
                    break
            except Exception as bug:  # noqa: BLE001 - reported; the audit log must not end
                self._broker.bugs.report(bug, "the audit topic was not written")
            else:
                if self._has_failed:
                    log.warning("the audit topic %s is written again", self._name)
                self._has_failed = False
                break
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RETRY_SECONDS_MAX)
        self._writing = 0

    def _report(self, error: Exception) -> None:
        if not self._has_failed:
            log.error("the audit topic %s cannot be written, will retry: %s", self._name, error)
        self._has_failed = True

    async def _write(self, batch: bytes) -> None:
        """Raises ApiError or PeerFailed."""
        broker, name = self._broker, self._name
        if name not in broker.metadata.image.topics:
            error = (await broker.auto_creation.create([name]))[name]
            if error is not ErrorCode.NONE:
                raise ApiError(error, f"the topic cannot be created: {error.name}")
        topic = broker.metadata.image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic is being created")
        index = broker.node_id % len(topic.partitions)
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "its partition has no leader")
        if leader == broker.node_id:
            await self._append(index, batch)
            return
        data = TopicProduceData(name, topic.id, [PartitionProduceData(index, memoryview(batch))])
        request = ProduceRequest(None, ACKS_ALL, WRITE_TIMEOUT_MS, [data])
        response: ProduceResponse = await broker.links.to(leader, PURPOSE).send(
            request, timeout_ms=2 * WRITE_TIMEOUT_MS
        )
        result = response.responses[0].partition_responses[0]
        if result.error_code:
            error = ErrorCode.from_code(result.error_code)
            raise ApiError(error, f"broker {leader} returned {error.name}")

    async def _append(self, index: int, batch: bytes) -> None:
        broker = self._broker
        partition = broker.partition(self._name, index)
        partition.check_in_sync()
        # Offsets are patched into it; it is referenced until the end of the turn.
        memory = memoryview(bytearray(batch))
        staged = partition.stage(memory, broker.clock.now_ms())
        written = _Written(staged.last_offset + 1)
        partition.when_replicated(written, WRITE_TIMEOUT_MS)
        await settled(written.promise)


class _Written:
    """Waits for the commit of a batch."""

    __slots__ = ("end_offset", "promise")

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.promise: Promise[None] = Promise()

    def committed(self) -> None:
        self.promise.resolve(None)

    def failed(self, error: ApiError) -> None:
        self.promise.fail(error)
