"""A producer of records with idempotency keys: brokers know them again, so each is sent until it is answered.

Each record is a batch and a request of its own, as the brokers demand, and many are in flight at a time; the
leader makes them durable together. They need no sequence numbers. Records of one caller are written in order,
unless one of them has to be sent again.
"""

import asyncio

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.client.accumulator import Delivery, record_size_bytes
from runnel.client.backoff import Backoff
from runnel.client.cluster import Cluster, TopicView
from runnel.client.errors import (
    BrokerError,
    BufferFull,
    ClientError,
    ConnectionLost,
    InvalidResponse,
    OutcomeUnknown,
    TimedOut,
)
from runnel.client.producer import ACKS, MAY_BE_WRITTEN
from runnel.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

IN_FLIGHT_MAX = 2_000
"""Records that are not answered: each is a task."""

RESPONSE_S = 1.0
"""How much later than the deadline of a record a response is still waited for."""


class KeyedProducer:
    """Sends records that have the header `runnel-idempotency-key`."""

    def __init__(self, cluster: Cluster, *, buffer_bytes: int, delivery_timeout_s: float) -> None:
        self._cluster = cluster
        self._buffer_bytes = buffer_bytes
        self._delivery_timeout_s = delivery_timeout_s
        self._size_bytes = 0
        self._tasks: set[asyncio.Task[Delivery]] = set()
        self._progressed = asyncio.Event()
        self._lookups = asyncio.Lock()
        self._views: dict[str, TopicView] = {}
        """The metadata with which leaders were found, until one of them is found to be wrong."""

    async def send(
        self, target: TopicPartition, record: Record, *, buffered_max: int | None = None
    ) -> "asyncio.Future[Delivery]":
        """Send a record, waiting for room; with `buffered_max`, BufferFull if so many bytes are in flight."""
        if buffered_max is not None and self._size_bytes >= buffered_max:
            raise BufferFull("too many records wait for their acknowledgement")
        while len(self._tasks) >= IN_FLIGHT_MAX or self._size_bytes >= self._buffer_bytes:
            await self._progressed.wait()
        size_bytes = record_size_bytes(record)
        self._size_bytes += size_bytes
        waiter: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._answered(target, record))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._done(task, waiter, size_bytes))
        return waiter

    async def close(self) -> None:
        """Give up what is not answered."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def flush(self) -> None:
        """Wait until all records are answered, or given up."""
        while self._tasks:
            await self._progressed.wait()

    def _done(
        self, task: "asyncio.Task[Delivery]", waiter: "asyncio.Future[Delivery]", size_bytes: int
    ) -> None:
        self._tasks.discard(task)
        self._size_bytes -= size_bytes
        progressed, self._progressed = self._progressed, asyncio.Event()
        progressed.set()
        error: BaseException | None = _unknown("the producer was closed")
        if not task.cancelled():
            error = task.exception()
        if waiter.done():
            # Its sender is gone.
            return
        if error is None:
            waiter.set_result(task.result())
        else:
            # What is no error of a client is a bug; the sender must not wait forever.
            waiter.set_exception(error if isinstance(error, ClientError) else _unknown(repr(error)))

    async def _answered(self, target: TopicPartition, record: Record) -> Delivery:
        request = ProduceRequest(
            transactional_id=None,
            acks=ACKS["all"],
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=[
                TopicProduceData(
                    name=target.topic,
                    partition_data=[
                        PartitionProduceData(
                            index=target.partition, records=memoryview(build_batch([record]))
                        )
                    ],
                )
            ],
        )
        backoff = Backoff(self._delivery_timeout_s)
        is_in_doubt = False
        while True:
            view: TopicView | None = None
            try:
                view, leader = await self._leader(target)
                connection = await self._cluster.connection(leader)
                timeout_s = max(backoff.remaining_s, 0) + RESPONSE_S
                response = await connection.send(request, ProduceResponse, timeout_s=timeout_s)
                return _delivery(target, record, response)
            except ClientError as error:
                failure = error
            if isinstance(failure, BrokerError):
                is_in_doubt |= failure.error in MAY_BE_WRITTEN
                # Had an earlier request written the record, the leader would know it.
                is_in_doubt &= failure.error is not ErrorCode.DUPLICATE_RESOURCE
            else:
                is_in_doubt |= isinstance(failure, ConnectionLost | TimedOut | InvalidResponse)
            self._forget(target.topic, view)
            if _is_throttled(failure):
                # Its sender decides whether to wait.
                raise _unknown(str(failure)) if is_in_doubt else failure
            try:
                await backoff.after(failure)
            except ClientError:
                raise self._given_up(failure, is_in_doubt) from failure

    async def _leader(self, target: TopicPartition) -> tuple[TopicView, int]:
        """The leader; one of all that wait for it asks for the metadata."""
        async with self._lookups:
            view = self._views[target.topic] = await self._cluster.topic(target.topic)
            return view, await self._cluster.leader(target)

    def _forget(self, topic: str, view: TopicView | None) -> None:
        """An attempt with this metadata has failed. The first that does asks for the present one."""
        if view is None or self._views.get(topic) is view:
            self._views.pop(topic, None)
            self._cluster.invalidate_topic(topic)

    def _given_up(self, failure: ClientError, is_in_doubt: bool) -> ClientError:
        if is_in_doubt:
            return _unknown(str(failure))
        if not failure.retriable:
            return failure
        late = TimedOut(f"not delivered within {self._delivery_timeout_s:g} s: {failure}")
        late.__cause__ = failure
        return late


def _delivery(target: TopicPartition, record: Record, response: ProduceResponse) -> Delivery:
    """Where the record is; ClientError if the leader has refused it."""
    results = [result for topic in response.responses for result in topic.partition_responses]
    if len(results) != 1 or results[0].index != target.partition:
        raise InvalidResponse(f"the response has no result for {target}")
    (result,) = results
    if result.error_code:
        error = ErrorCode.from_code(result.error_code)
        raise BrokerError(error, f"writing to {target}", result.error_message)
    append_time_ms = result.log_append_time_ms
    return Delivery(target, result.base_offset, record.timestamp if append_time_ms < 0 else append_time_ms)


def _is_throttled(failure: ClientError) -> bool:
    return isinstance(failure, BrokerError) and failure.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def _unknown(why: str) -> OutcomeUnknown:
    unknown = OutcomeUnknown(f"it is unknown whether the record was written: {why}")
    unknown.has_key = True
    return unknown
