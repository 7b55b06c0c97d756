"""An idempotent producer with batching and retries."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from runnel.batch.compression import Compression
from runnel.batch.records import Headers, Record
from runnel.client.accumulator import Accumulator, Delivery, PendingBatch, ProducerIdentity
from runnel.client.backoff import BACKOFF_MAX_S, BACKOFF_MIN_S
from runnel.client.cluster import Cluster, TopicView
from runnel.client.connection import Connection
from runnel.client.deliveries import Deliveries, Place
from runnel.client.errors import (
    BrokerError,
    BufferFull,
    ClientError,
    ConnectionLost,
    InvalidResponse,
    OutcomeUnknown,
    TimedOut,
    check,
)
from runnel.client.partitioner import partition_for_key
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

BUFFER_FULL = "too many records wait for their acknowledgement"
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
DELIVERY_TIMEOUT_S = 120.0
PRODUCER_STATE_LOST = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
RECORDS_REJECTED = {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
}
"""A batch is rejected because of some of its records, or its size; nothing of it is written."""
MAY_BE_WRITTEN = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""A leader responds with these also after it has written a batch, and may replicate or sync it later."""


class Producer:
    """Sends records to a cluster; use as `async with`, which flushes at the end."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool | None = None,
        linger_ms: int = 0,
        batch_bytes: int = 64 * 1024,
        buffer_bytes: int = 32 * 1024 * 1024,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        auto_create: bool = True,
    ) -> None:
        """`auto_create`: topics that do not exist are created, if brokers are configured to."""
        if acks not in ACKS:
            raise ValueError(f"acks must be all, 1 or 0, not {acks!r}")
        self._cluster = cluster
        self._acks = ACKS[acks]
        self._idempotent = self._acks == -1 if idempotent is None else idempotent
        if self._idempotent and self._acks != -1:
            raise ValueError("an idempotent producer requires acks=all")
        self._linger_s = linger_ms / 1000
        self._buffer_bytes = buffer_bytes
        self._auto_create = auto_create
        self._delivery_timeout_s = delivery_timeout_s
        self._batches = Accumulator(batch_bytes, Compression.from_name(compression))
        self._transactional_id: str | None = None
        self._identity: ProducerIdentity | None = None if self._idempotent else ProducerIdentity()
        self._sticky: dict[str, int] = {}
        self._busy_leaders: set[int] = set()
        self._sends: set[asyncio.Task[None]] = set()
        self._flushes = 0
        self._wake = asyncio.Event()
        self._progressed = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._failure: ClientError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(flush=kind is None)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        buffered_max: int | None = None,
    ) -> "asyncio.Future[Delivery]":
        """Queue a record, waiting while the buffer is full; the future resolves when it is acknowledged.

        With `buffered_max`, BufferFull if that many bytes are in the buffer, instead of waiting.
        """
        record = _record(key, value, headers, timestamp_ms)
        target = await self._partition(topic, record, partition)
        if buffered_max is not None and self._batches.size_bytes >= buffered_max:
            raise BufferFull(BUFFER_FULL)
        while self._batches.size_bytes >= self._buffer_bytes:
            await self._wait_for_progress()
        self._check_may_send()
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Delivery] = loop.create_future()
        self._batches.add(target, record, waiter, loop.time() + self._delivery_timeout_s)
        self._wake.set()
        return waiter

    async def send_all(
        self, topic: str, records: Sequence[tuple[Record, int | None]], *, buffered_max: int
    ) -> Deliveries:
        """Queue records, each with its partition if that is given, as `send` does; they are awaited together.

        Those that are refused have an error as their outcome, BufferFull if the buffer is full.
        """
        view = await self._topic(topic)
        deliveries = Deliveries(len(records))
        deadline_s = asyncio.get_running_loop().time() + self._delivery_timeout_s
        keyless: TopicPartition | None = None
        for index, (record, partition) in enumerate(records):
            place = Place(deliveries, index)
            is_keyless = record.key is None and partition is None
            is_full = self._batches.size_bytes >= buffered_max
            # Most often the batch of the record before it has room.
            if is_keyless and keyless and not is_full and self._batches.add_to_open(keyless, record, place):
                continue
            try:
                target = self._target(view, record, partition)
                if target is None:
                    target, keyless = await self._added(topic, partition), None
                    view = await self._topic(topic)
                if is_full:
                    raise BufferFull(BUFFER_FULL)
                self._check_may_send()
            except ClientError as error:
                place.set_exception(error)
                continue
            self._batches.add(target, record, place, deadline_s)
            keyless = target if is_keyless else keyless
        self._wake.set()
        return deliveries

    @property
    def has_failed(self) -> bool:
        """It was closed, or stopped by an error: another one is needed."""
        return self._failure is not None

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send a record and wait for its acknowledgement."""
        return await (
            await self.send(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )

    async def flush(self) -> None:
        """Wait until all records are acknowledged or have failed, as the futures of `send` report."""
        self._flushes += 1
        self._wake.set()
        try:
            while not self._batches.is_empty:
                await self._wait_for_progress()
        finally:
            self._flushes -= 1

    async def close(self, *, flush: bool = True) -> None:
        """Close the producer; without `flush`, queued records fail."""
        try:
            if flush:
                await self.flush()
        finally:
            tasks = [task for task in (self._sender, *self._sends) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._stop(ClientError("the producer was closed before the record was sent"))

    # Partitioning.

    async def _partition(self, topic: str, record: Record, partition: int | None) -> TopicPartition:
        target = self._target(await self._topic(topic), record, partition)
        return await self._added(topic, partition) if target is None else target

    async def _topic(self, topic: str) -> TopicView:
        if self._sender is None:
            self._sender = asyncio.create_task(self._run())
        return await self._cluster.topic(topic, allow_auto_create=self._auto_create)

    def _target(self, view: TopicView, record: Record, partition: int | None) -> TopicPartition | None:
        """The partition of a record; None if the one that was given is not known."""
        count = len(view.partitions)
        if partition is not None:
            return TopicPartition(view.name, partition) if 0 <= partition < count else None
        if record.key is not None:
            return TopicPartition(view.name, partition_for_key(record.key, count))
        # Sticky partitioning (KIP-480): records without a key fill one batch before the next partition is
        # used.
        sticky = TopicPartition(view.name, self._sticky.get(view.name, 0) % count)
        if not self._batches.has_room_for(sticky, record):
            sticky = TopicPartition(view.name, (sticky.partition + 1) % count)
            self._sticky[view.name] = sticky.partition
        return sticky

    async def _added(self, topic: str, partition: int | None) -> TopicPartition:
        """A partition that may have been added since the metadata were fetched; BrokerError if it was not."""
        assert partition is not None
        target = TopicPartition(topic, partition)
        self._cluster.invalidate_topic(topic)
        await self._cluster.leader(target)
        return target

    # Sending.

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                if self._batches.is_empty:
                    continue
                if self._identity is None:
                    self._identity = await self._cluster.retry(self._init_producer_id)
                await self._dispatch()
        except ClientError as error:
            self._stop(error)
        except Exception as error:
            # A bug; pending futures must not wait forever.
            self._stop(ClientError(f"the producer stopped: {error!r}"))
            raise

    async def _wait_for_work(self) -> None:
        loop = asyncio.get_running_loop()
        retry_s = self._batches.next_retry_s(loop.time())
        if retry_s is None:
            await self._wake.wait()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(retry_s):
                    await self._wake.wait()
        self._wake.clear()
        if self._linger_s and not self._flushes and not self._batches.has_full_batch():
            linger_until_s = loop.time() + self._linger_s
            while loop.time() < linger_until_s and not self._flushes and not self._batches.has_full_batch():
                await asyncio.sleep(min(0.001, self._linger_s))

    async def _init_producer_id(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = await self._cluster.send_to_any(request, InitProducerIdResponse)
        check(response.error_code, "allocating a producer id")
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def _dispatch(self) -> None:
        """Send one request to each leader with ready batches and no request in flight."""
        loop = asyncio.get_running_loop()
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in self._batches.ready(loop.time()):
            try:
                leader = await self._cluster.leader(partition)
            except ClientError as error:
                if self._identity is None:
                    break
                self._retry_or_fail(self._batches.take(partition, self._identity), error)
                continue
            by_leader.setdefault(leader, []).append(partition)
        identity = self._identity
        if identity is None:
            # The producer id was reset meanwhile; without one, a batch could be written twice.
            self._wake.set()
            return
        for leader, partitions in by_leader.items():
            if leader not in self._busy_leaders:
                self._busy_leaders.add(leader)
                batches = [self._batches.take(partition, identity) for partition in partitions]
                task = asyncio.create_task(self._send(leader, batches))
                self._sends.add(task)
                task.add_done_callback(self._sends.discard)

    async def _send(self, leader: int, batches: list[PendingBatch]) -> None:
        request = self._request(batches)
        try:
            connection = await self._cluster.connection(leader)
            await self._add_partitions(connection, [batch.partition for batch in batches])
            if self._acks == 0:
                await connection.send_oneway(request)
                for batch in batches:
                    self._deliver(batch, -1, -1)
            else:
                response = await connection.send(
                    request, ProduceResponse, timeout_s=self._cluster.timeout_s + 5
                )
                self._handle_response(batches, response)
        except ClientError as error:
            for batch in batches:
                batch.is_in_doubt |= isinstance(error, ConnectionLost | TimedOut | InvalidResponse)
                self._retry_or_fail(batch, error)
        except BaseException as error:
            # The producer was closed, or this is a bug; pending futures must not wait forever.
            for batch in batches:
                self._batches.complete(batch)
                batch.failed(OutcomeUnknown(f"it is unknown whether the record was written: {error!r}"))
            raise
        finally:
            self._busy_leaders.discard(leader)
            self._wake.set()
            self._signal_progress()

    async def _add_partitions(self, leader: Connection, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the transaction before they are written; does nothing outside of transactions."""

    def _request(self, batches: Sequence[PendingBatch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic = topics.setdefault(batch.partition.topic, TopicProduceData(name=batch.partition.topic))
            assert batch.encoded is not None
            topic.partition_data.append(
                PartitionProduceData(index=batch.partition.partition, records=memoryview(batch.encoded))
            )
        timeout_ms = int(self._cluster.timeout_s * 1000)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=timeout_ms,
            topic_data=list(topics.values()),
        )

    def _handle_response(self, batches: Sequence[PendingBatch], response: ProduceResponse) -> None:
        results = {
            (topic.name, view.index): view
            for topic in response.responses
            for view in topic.partition_responses
        }
        for batch in batches:
            result = results.get((batch.partition.topic, batch.partition.partition))
            if result is None:
                batch.is_in_doubt = True
                self._retry_or_fail(batch, ClientError(f"the response has no result for {batch.partition}"))
            elif result.error_code == 0:
                self._deliver(batch, result.base_offset, result.log_append_time_ms)
            else:
                self._batch_rejected(batch, result)

    def _batch_rejected(self, batch: PendingBatch, result: PartitionProduceResponse) -> None:
        error = ErrorCode.from_code(result.error_code)
        if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._deliver(batch, -1, -1)
            return
        batch.is_in_doubt |= error in MAY_BE_WRITTEN
        can_reset_id = self._idempotent and self._transactional_id is None
        if error in PRODUCER_STATE_LOST and can_reset_id and batch.attempts == 1:
            # The broker has lost the producer state, for example because the records expired. This batch was
            # sent once and rejected, so it is not in the log and can be sent with a new producer id.
            self._reset_identity()
            batch.encoded = None
            self._batches.requeue(batch, 0.0)
            return
        is_rejected = error in RECORDS_REJECTED and not batch.is_in_doubt
        if is_rejected and len(batch.records) > 1 and self._transactional_id is None:
            # So that a record fails because of itself, not of others that happen to be in its batch.
            self._batches.split(batch)
            return
        self._retry_or_fail(batch, BrokerError(error, f"writing to {batch.partition}", result.error_message))

    def _deliver(self, batch: PendingBatch, base_offset: int, log_append_time_ms: int) -> None:
        self._batches.complete(batch)
        batch.delivered(base_offset, log_append_time_ms)

    def _retry_or_fail(self, batch: PendingBatch, error: ClientError) -> None:
        loop = asyncio.get_running_loop()
        self._cluster.invalidate_topic(batch.partition.topic)
        if error.retriable and loop.time() < batch.deadline_s:
            pause_s = min(BACKOFF_MIN_S * 2 ** min(batch.attempts, 10), BACKOFF_MAX_S)
            self._batches.requeue(batch, loop.time() + pause_s)
            return
        is_rejected = isinstance(error, BrokerError) and error.error in RECORDS_REJECTED
        if error.retriable:
            late = TimedOut(f"not delivered within {self._delivery_timeout_s:g} s: {error}")
            late.__cause__ = error
            error = late
        error = _outcome(batch, error)
        self._batches.complete(batch)
        batch.failed(error)
        if is_rejected and not batch.is_in_doubt and self._transactional_id is None:
            self._batches.rewind(batch)
        else:
            self._batch_failed(error)
        # A flush may wait for this batch only.
        self._signal_progress()

    def _batch_failed(self, error: ClientError) -> None:
        """A batch will not be delivered."""
        # Whether the batch was written is unknown, and so is the next sequence number.
        self._reset_identity()

    def _reset_identity(self) -> None:
        if self._idempotent:
            self._identity = None
            self._batches.reset_sequences()

    # Progress.

    async def _wait_for_progress(self) -> None:
        self._check_running()
        await self._progressed.wait()

    def _signal_progress(self) -> None:
        progressed, self._progressed = self._progressed, asyncio.Event()
        progressed.set()

    def _check_may_send(self) -> None:
        """Raise an error if no record can be sent."""
        self._check_running()

    def _check_running(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _stop(self, failure: ClientError) -> None:
        self._failure = self._failure or failure
        for batch in self._batches.clear():
            batch.failed(_outcome(batch, failure))
        self._signal_progress()


def _outcome(batch: PendingBatch, error: ClientError) -> ClientError:
    """The error of a batch that is not retried: if it was in doubt before, it may have been written."""
    if not batch.is_in_doubt:
        return error
    unknown = OutcomeUnknown(str(error))
    unknown.retriable = error.retriable
    unknown.__cause__ = error.__cause__ if isinstance(error, TimedOut) else error
    return unknown


def _record(key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int | None) -> Record:
    stamp = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    return Record(0, stamp, key, value, headers)
