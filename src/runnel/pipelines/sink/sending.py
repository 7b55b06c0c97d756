"""Sends sealed batches to partition leaders in order, with retries."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from runnel.client.accumulator import ProducerIdentity
from runnel.client.backoff import BACKOFF_MAX_S, BACKOFF_MIN_S
from runnel.client.cluster import Cluster
from runnel.client.connection import Connection
from runnel.client.errors import BrokerError, ClientError, TimedOut
from runnel.client.transactions import Transactions
from runnel.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

REQUEST_BYTES = 8 * 1024 * 1024
"""Limit for one request, which holds at least one batch. Brokers accept up to 100 MiB."""
BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Bytes that may be buffered before the encoder blocks."""
ACKS_ALL = -1


@dataclass(slots=True)
class OutgoingBatch:
    """One sealed batch to be sent. It is immutable: brokers detect duplicates by sequence number."""

    partition: TopicPartition
    data: bytearray
    deadline_s: float
    retry_at_s: float = 0.0
    attempts: int = 0


class BatchSender:
    """Sends the batches of one producer, with at most one request in flight per leader.

    The batches of a partition are sent one at a time, so a retry cannot reorder them. The first batch that
    cannot be delivered fails the sender.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        *,
        timeout_s: float,
        transactional_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._timeout_s = timeout_s
        self._transactional_id = transactional_id
        self._transactions = Transactions(cluster)
        self._added: set[TopicPartition] = set()
        self._queues: dict[TopicPartition, deque[OutgoingBatch]] = {}
        self._buffered_bytes = 0
        self._in_flight: set[TopicPartition] = set()
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._failure: BaseException | None = None
        self._sender_task = asyncio.create_task(self._run())

    async def put(self, batches: Sequence[tuple[TopicPartition, bytearray]]) -> None:
        """Enqueue batches and block while the buffer is full; raises the error of a failed delivery."""
        deadline_s = asyncio.get_running_loop().time() + self._timeout_s
        for partition, data in batches:
            self._queues.setdefault(partition, deque()).append(OutgoingBatch(partition, data, deadline_s))
            self._buffered_bytes += len(data)
        self._wake.set()
        await self._wait_until(BUFFER_BYTES_MAX)

    async def flush(self) -> None:
        """Wait until all batches are acknowledged."""
        await self._wait_until(0)

    async def close(self) -> None:
        """Cancel requests in flight and wait for their tasks."""
        tasks = [self._sender_task, *self._requests.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_until(self, buffered_bytes: int) -> None:
        while self._failure is None and self._buffered_bytes > buffered_bytes:
            self._progress.clear()
            await self._progress.wait()
        if self._failure is not None:
            raise self._failure

    # Sending.

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._failure is None:
                self._wake.clear()
                now_s = loop.time()
                await self._dispatch(now_s)
                try:
                    async with asyncio.timeout_at(self._next_retry_s(now_s)):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        except Exception as error:
            # A bug: do not leave callers blocked.
            self._fail(error)
            raise

    def _ready(self) -> list[OutgoingBatch]:
        return [
            queue[0]
            for partition, queue in self._queues.items()
            if queue and partition not in self._in_flight
        ]

    def _next_retry_s(self, now_s: float) -> float | None:
        """Time of the next retry. Batches that are due wait for a request in flight, which wakes us."""
        moments = [batch.retry_at_s for batch in self._ready() if batch.retry_at_s > now_s]
        return min(moments, default=None)

    async def _dispatch(self, now_s: float) -> None:
        """Send a request to each leader that has batches ready and no request in flight."""
        by_leader: dict[int, list[OutgoingBatch]] = {}
        for batch in self._ready():
            if batch.retry_at_s > now_s:
                continue
            try:
                leader = await self._cluster.leader(batch.partition)
            except ClientError as error:
                self._retry_or_fail(batch, error)
                continue
            by_leader.setdefault(leader, []).append(batch)
        for leader, batches in by_leader.items():
            if leader not in self._requests:
                taken = _request_batches(batches)
                self._in_flight.update(batch.partition for batch in taken)
                self._requests[leader] = asyncio.create_task(self._send_request(leader, taken))

    async def _send_request(self, leader: int, batches: list[OutgoingBatch]) -> None:
        try:
            connection = await self._cluster.connection(leader)
            await self._add_to_transaction(connection, [batch.partition for batch in batches])
            request = _request(batches, self._transactional_id, int(self._cluster.timeout_s * 1000))
            answer = await connection.send(request, ProduceResponse, timeout_s=self._cluster.timeout_s + 5)
            self._handle_response(batches, answer)
        except ClientError as error:
            for batch in batches:
                self._retry_or_fail(batch, error)
        except Exception as error:
            self._fail(error)
            raise
        finally:
            del self._requests[leader]
            self._in_flight.difference_update(batch.partition for batch in batches)
            self._wake.set()
            self._progress.set()

    async def _add_to_transaction(self, leader: Connection, partitions: Sequence[TopicPartition]) -> None:
        new = [partition for partition in partitions if partition not in self._added]
        if self._transactional_id is not None and new and leader.feature("transaction.version") < 2:
            await self._transactions.add_partitions(self._transactional_id, self._identity, new)
        self._added.update(new)

    def _handle_response(self, batches: Sequence[OutgoingBatch], answer: ProduceResponse) -> None:
        results = {
            (topic.name, view.index): view for topic in answer.responses for view in topic.partition_responses
        }
        for batch in batches:
            result = results.get((batch.partition.topic, batch.partition.partition))
            if result is None:
                self._retry_or_fail(batch, TimedOut(f"the response does not contain {batch.partition}"))
                continue
            error = ErrorCode.from_code(result.error_code)
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._queues[batch.partition].popleft()
                self._buffered_bytes -= len(batch.data)
            else:
                self._retry_or_fail(batch, _refusal(batch, error, result.error_message))

    def _retry_or_fail(self, batch: OutgoingBatch, error: ClientError) -> None:
        now_s = asyncio.get_running_loop().time()
        self._cluster.invalidate_topic(batch.partition.topic)
        if error.retriable and now_s < batch.deadline_s:
            batch.attempts += 1
            batch.retry_at_s = now_s + min(BACKOFF_MIN_S * 2 ** min(batch.attempts, 10), BACKOFF_MAX_S)
        elif error.retriable:
            self._fail(TimedOut(f"not delivered in {self._timeout_s:g} s: {error}"))
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._wake.set()
        self._progress.set()


def _refusal(batch: OutgoingBatch, error: ErrorCode, message: str | None) -> BrokerError:
    if error is ErrorCode.MESSAGE_TOO_LARGE:
        message = (
            f"a batch of {len(batch.data)} bytes is larger than the topic's max.message.bytes: "
            "lower the option kafka.batch.size; a single row must fit into a batch"
        )
    return BrokerError(error, f"writing to {batch.partition}", message)


def _request_batches(batches: Sequence[OutgoingBatch]) -> list[OutgoingBatch]:
    """As many batches as fit into one request, at least one."""
    taken: list[OutgoingBatch] = []
    size_bytes = 0
    for batch in batches:
        size_bytes += len(batch.data)
        if taken and size_bytes > REQUEST_BYTES:
            break
        taken.append(batch)
    return taken


def _request(
    batches: Sequence[OutgoingBatch], transactional_id: str | None, timeout_ms: int
) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        topic = topics.setdefault(batch.partition.topic, TopicProduceData(name=batch.partition.topic))
        topic.partition_data.append(
            PartitionProduceData(index=batch.partition.partition, records=memoryview(batch.data))
        )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=ACKS_ALL,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )
