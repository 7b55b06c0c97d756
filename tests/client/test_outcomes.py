"""What a producer reports when a broker has written records, and its responses do not say so."""

import asyncio
from typing import Any

import pytest

from runnel.batch.header import read_header
from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.connection import Connection
from runnel.client.errors import BrokerError, ClientError, OutcomeUnknown, TimedOut
from runnel.client.fetching import fetch_once
from runnel.client.producer import Producer
from runnel.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from tests.client.test_producer import read_all

LATE = ErrorCode.REQUEST_TIMED_OUT
AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
DEPOSED = ErrorCode.NOT_LEADER_OR_FOLLOWER
# The next sync may succeed, and commit the batch.
NOT_SYNCED = ErrorCode.KAFKA_STORAGE_ERROR
BUG = ErrorCode.UNKNOWN_SERVER_ERROR
NOT_WRITTEN = {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}


class DisturbedConnection:
    """Passes requests on, and responds with these errors; the last one is repeated."""

    def __init__(self, connection: Connection, errors: list[ErrorCode | None], sent: asyncio.Event) -> None:
        self._connection = connection
        self._errors = errors
        self._sent = sent

    async def send(self, request: Any, response_type: Any, *, timeout_s: float) -> Any:
        error = self._errors.pop(0) if len(self._errors) > 1 else self._errors[0]
        if error in NOT_WRITTEN:
            parts = [PartitionProduceResponse(each.index) for each in request.topic_data[0].partition_data]
            answer = ProduceResponse([TopicProduceResponse(request.topic_data[0].name, b"", parts)])
        else:
            answer = await self._connection.send(request, response_type, timeout_s=timeout_s)
        self._sent.set()
        if error is None:
            await asyncio.Event().wait()
        else:
            for part in answer.responses[0].partition_responses:
                part.error_code = error.code
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class DisturbedCluster(Cluster):
    """A cluster whose leaders respond to a producer with errors."""

    def __init__(self, address: str, *errors: ErrorCode | None) -> None:
        super().__init__(address)
        self._errors = [*errors]
        self.sent = asyncio.Event()

    async def connection(self, node_id: int, lane: object = None) -> Any:
        found = await super().connection(node_id, lane)
        return DisturbedConnection(found, self._errors, self.sent)


async def attempt(address: str, topic: str, *errors: ErrorCode | None) -> list[BaseException]:
    """Send two records in a batch; the errors that are reported."""
    async with DisturbedCluster(address, *errors) as cluster:
        await cluster.topic(topic)
        producer = Producer(cluster, delivery_timeout_s=0.3, linger_ms=20)
        sent = [await producer.send(topic, value) for value in (b"a", b"b")]
        if errors[-1] is None:
            await cluster.sent.wait()
            await producer.close(flush=False)
        else:
            await producer.flush()
            await producer.close()
        return [error for each in sent if (error := each.exception()) is not None]


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ((LATE,), OutcomeUnknown),
        ((AFTER_APPEND,), OutcomeUnknown),
        ((DEPOSED,), OutcomeUnknown),
        ((NOT_SYNCED,), OutcomeUnknown),
        ((BUG,), OutcomeUnknown),
        ((LATE, ErrorCode.NOT_ENOUGH_REPLICAS), OutcomeUnknown),
        ((LATE, ErrorCode.TOPIC_AUTHORIZATION_FAILED), OutcomeUnknown),
        # Sent in halves, the records would be written again.
        ((AFTER_APPEND, ErrorCode.MESSAGE_TOO_LARGE), OutcomeUnknown),
        # Closed before the response.
        ((None,), OutcomeUnknown),
        ((ErrorCode.NOT_ENOUGH_REPLICAS,), TimedOut),
        ((ErrorCode.TOPIC_AUTHORIZATION_FAILED,), BrokerError),
        ((ErrorCode.MESSAGE_TOO_LARGE,), BrokerError),
    ],
    ids=str,
)
def test_records_that_may_be_written_are_reported_as_such(address, name, errors, kind) -> None:
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name)
            failures = await attempt(address, name, *errors)
            assert [type(each) for each in failures] == [kind, kind]
            stored = [message.value for message in await read_all(cluster, name)]
            assert stored == ([b"a", b"b"] if kind is OutcomeUnknown else [])

    asyncio.run(play())


def test_a_batch_in_doubt_is_reported_as_such_when_the_producer_is_closed(address, name) -> None:
    async def play() -> None:
        async with Cluster(address) as plain:
            await Admin(plain).create_topic(name)
        async with DisturbedCluster(address, LATE) as cluster:
            producer = Producer(cluster)
            sent = await producer.send(name, b"a")
            async with asyncio.timeout(20):
                await cluster.sent.wait()
                while producer._batches.in_flight:
                    await asyncio.sleep(0)
            # It waits for its next attempt.
            await producer.close(flush=False)
            assert isinstance(sent.exception(), OutcomeUnknown)

    asyncio.run(play())


class LeaderlessCluster(Cluster):
    """Finds leaders after these errors."""

    errors: list[ErrorCode]

    async def leader(self, partition: TopicPartition) -> int:
        if self.errors:
            raise BrokerError(self.errors.pop(0), str(partition))
        return await super().leader(partition)


def test_no_batch_is_written_without_a_producer_id(address, name) -> None:
    async def play() -> None:
        async with LeaderlessCluster(address) as cluster:
            cluster.errors = []
            await Admin(cluster).create_topic(name, partitions=2)
            await cluster.topic(name)
            # The first batch fails, which resets the producer id, before the leader of the second is known.
            cluster.errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.LEADER_NOT_AVAILABLE]
            async with Producer(cluster, linger_ms=20) as producer:
                first, second = [await producer.send(name, b"a", partition=number) for number in (0, 1)]
            assert isinstance(first.exception(), ClientError)
            assert (await second).offset == 0
            [fetched] = await fetch_once(cluster, {TopicPartition(name, 1): 0})
            assert read_header(fetched.chunk.records).producer_id >= 0

    asyncio.run(play())
