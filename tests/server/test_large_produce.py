"""Large produce requests are served in slices from the memory in which they were received."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.client.connection import Connection
from runnel.client.errors import ClientError
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from runnel.messages.fetch import FetchResponse
from runnel.messages.produce import ProduceRequest, ProduceResponse
from runnel.model.limits import INLINE_ELEMENTS_MAX, PRODUCED_PER_SLICE
from runnel.net.buffers import LargeFrame, ReceiveMemory
from runnel.server.node import Node
from tests.broker.requests import batch, fetch_from, produce_to, values

CLIENTS = 4
REQUESTS = 8
PARTITIONS = 2 * PRODUCED_PER_SLICE
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    # The records have timestamps of the past.
    "log.retention.ms": "-1",
}
AUTHORIZER = {
    "authorizer.class.name": "acl",
    "allow.everyone.if.no.acl.found": "true",
}


class Lent:
    """The memory of all requests, overwritten when it is released: what is written later is damaged."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.count = 0
        self.memories: set[ReceiveMemory] = set()


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lent]:
    seen = Lent()
    take, give_back = ReceiveMemory.take, ReceiveMemory.give_back

    def taking(memory: ReceiveMemory, size_bytes: int) -> LargeFrame | None:
        frame = take(memory, size_bytes)
        if frame is not None:
            seen.memories.add(memory)
            seen.taken.add(id(frame.buffer))
            seen.count += 1
        return frame

    def giving_back(memory: ReceiveMemory, frame: LargeFrame) -> None:
        # Once each: fails if it is not there.
        seen.taken.remove(id(frame.buffer))
        frame.buffer[:] = b"\xff" * len(frame.buffer)
        give_back(memory, frame)

    monkeypatch.setattr(ReceiveMemory, "take", taking)
    monkeypatch.setattr(ReceiveMemory, "give_back", giving_back)
    yield seen
    assert seen.count >= CLIENTS
    assert not seen.taken
    assert [memory.reserved_bytes for memory in seen.memories] == [0] * len(seen.memories)


class Producer:
    """A client that sends requests of all sizes without waiting, and knows what each partition gets."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._random = random.Random(number)
        self._sequence = 0
        self.sent: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}

    def request(self) -> ProduceRequest:
        """One partition, few large ones, all of them, or more batches than are decoded on the event loop."""
        count, padding = self._random.choice(
            [(1, 10), (1, 100_000), (3, 300_000), (PARTITIONS, 1_000), (INLINE_ELEMENTS_MAX + 50, 50)]
        )
        first = self._random.randrange(PARTITIONS) if count < PARTITIONS else 0
        return self.request_to([(first + number) % PARTITIONS for number in range(count)], padding)

    def request_to(self, partitions: list[int], padding: int) -> ProduceRequest:
        batches = []
        for index in partitions:
            self._sequence += 1
            value = f"{self._number} {self._sequence} {index} ".encode()
            value += value * (padding // len(value))
            self.sent[index].append(value)
            batches.append((index, batch(value)))
        # Slices with a transactional id wait for each other, with copies of their records.
        transactional_id = self._random.choice([None, None, "t"])
        acks = self._random.choice([1, -1])
        return produce_to("events", *batches, acks=acks, transactional_id=transactional_id)

    async def produce(self, port: int) -> None:
        """All requests at once on one connection: the next one is received while the last one is served."""
        connection = await Connection.open("127.0.0.1", port, timeout_s=60)
        requests = [self.request() for _ in range(REQUESTS)] + [self.request_to([0], 10)]
        sending = [connection.send(request, ProduceResponse, timeout_s=120) for request in requests]
        for answer in await asyncio.gather(*sending):
            assert [one for one in answer.responses[0].partition_responses if one.error_code] == []
        await connection.close()

    async def give_up(self, port: int) -> None:
        """The connection is closed while its requests are served."""
        connection = await Connection.open("127.0.0.1", port, timeout_s=60)
        requests = [self.request_to(list(range(PARTITIONS)), 1_000) for _ in range(2)]
        sending = [
            asyncio.ensure_future(connection.send(one, ProduceResponse, timeout_s=120)) for one in requests
        ]
        await asyncio.sleep(self._random.random() / 10)
        connection.abort()
        await asyncio.gather(*sending, return_exceptions=True)


async def stored(connection: Connection, partition: int) -> list[bytes]:
    """All records of a partition."""
    found: list[bytes] = []
    while True:
        request = fetch_from("events", (partition, len(found)))
        answer = await connection.send(request, FetchResponse, timeout_s=60)
        (data,) = answer.responses[0].partitions
        assert data.error_code == 0
        more = values(data.records)
        found += more
        if len(found) >= data.high_watermark:
            return found
        # There are more: they are returned without waiting for them.
        assert more


async def create(connection: Connection) -> None:
    topics = [CreatableTopic("events", PARTITIONS, replication_factor=1)]
    created = await connection.send(CreateTopicsRequest(topics), CreateTopicsResponse, timeout_s=60)
    assert created.topics[0].error_message is None


async def verify(connection: Connection, producers: list[Producer], quitters: list[Producer]) -> None:
    """Each record is as it was sent, in the order of its producer; none is missing that was acknowledged."""
    for partition in range(PARTITIONS):
        left = await stored(connection, partition)
        for number, producer in enumerate([*producers, *quitters]):
            own = [value for value in left if value.startswith(b"%d " % number)]
            if producer in quitters:
                assert own == producer.sent[partition][: len(own)]
            else:
                assert own == producer.sent[partition]
            left = [value for value in left if not value.startswith(b"%d " % number)]
        assert left == []


@pytest.mark.parametrize("is_authorized", [False, True], ids=["open", "authorized"])
def test_requests_in_slices_do_not_overwrite_each_other(
    tmp_path: Path, lent: Lent, is_authorized: bool
) -> None:
    """With an authorizer, requests of many elements are authorized in a thread as well."""
    settings = {"log.dirs": str(tmp_path), **SETTINGS, **(AUTHORIZER if is_authorized else {})}

    async def story() -> None:
        async with Node(settings) as node:
            connection = await Connection.open("127.0.0.1", node.port, timeout_s=60)
            await create(connection)
            producers = [Producer(number) for number in range(CLIENTS)]
            quitters = [Producer(number) for number in range(CLIENTS, CLIENTS + 2)]
            await asyncio.gather(
                *(producer.produce(node.port) for producer in producers),
                *(producer.give_up(node.port) for producer in quitters),
            )
            await verify(connection, producers, quitters)
            await connection.close()

    asyncio.run(story())


def test_a_broker_stops_while_requests_are_served_in_slices(tmp_path: Path, lent: Lent) -> None:
    """What was stored is whole, in order."""
    producers = [Producer(number) for number in range(CLIENTS)]

    async def stop() -> None:
        async with Node({"log.dirs": str(tmp_path), **SETTINGS}) as node:
            connection = await Connection.open("127.0.0.1", node.port, timeout_s=60)
            await create(connection)
            await connection.close()
            sending = [asyncio.ensure_future(producer.produce(node.port)) for producer in producers]
            await asyncio.sleep(0.3)
        for outcome in await asyncio.gather(*sending, return_exceptions=True):
            assert outcome is None or isinstance(outcome, ClientError)

    async def story() -> None:
        await stop()
        async with Node({"log.dirs": str(tmp_path), **SETTINGS}) as node:
            connection = await Connection.open("127.0.0.1", node.port, timeout_s=60)
            await verify(connection, [], producers)
            await connection.close()

    asyncio.run(story())
