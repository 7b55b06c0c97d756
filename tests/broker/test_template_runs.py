"""Repeated requests that arrive together, wait, or belong to a fetch session get the same responses."""

import asyncio
import random
from pathlib import Path
from typing import Any, cast

import pytest

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.broker.runtime.pipeline import Pipeline
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.messages.fetch import FetchResponse
from runnel.ports.disk import FileSlice
from runnel.ports.files import File
from runnel.ports.service import CloseConnection, Reply, Session
from runnel.wire import Request, decode
from runnel.wire.frame import read_response_header, request_frame
from tests.broker.requests import NOW_MS, batch, fetch_from, produce_to
from tests.broker.world import BrokerWorld


def wire(request: Request, version: int, number: int, client_id: str = "client") -> bytes:
    return b"".join(request_frame(request, version, number, client_id))


def content(reply: Reply) -> bytes:
    return b"".join(
        cast("File", part.file).pread(part.length, part.position) if isinstance(part, FileSlice) else part
        for part in reply.parts
    )


class Connection:
    """A connection whose receives a test composes."""

    def __init__(self, pipeline: Pipeline, *, uses_templates: bool) -> None:
        self.pipeline = pipeline
        self.session = Session("host", 1, "PLAINTEXT", 1)
        self._uses_templates = uses_templates

    def receive(self, data: bytes, count_max: int = 512) -> list[Reply]:
        """The responses to the frames of one receive, up to one that blocks the connection."""
        buffer = memoryview(bytearray(data))
        replies: list[Reply] = []
        position = 0
        try:
            while position < len(buffer):
                if not self._uses_templates:
                    self.session.template = None
                after = position + 4 + int.from_bytes(buffer[position : position + 4])
                position = self.pipeline.serve(
                    buffer, position + 4, after, len(buffer), self.session, replies, count_max
                )
                if replies and replies[-1].mutes_connection and not replies[-1].is_filled:
                    break
        finally:
            self.pipeline.finish_turn()
        return replies

    def responses(self, data: bytes, count_max: int = 512) -> bytes:
        try:
            return b"".join(map(content, self.receive(data, count_max)))
        except CloseConnection:
            return b"closed"


def any_frame(source: random.Random, number: int, *, is_fetch: bool) -> bytes:
    """A request of one of two clients; now and then one that is refused."""
    client_id = source.choice(["one", "one", "one", "other"])
    if is_fetch:
        request = fetch_from(
            "events", (source.choice([0, 0, 1]), source.randrange(4)), partition_max_bytes=100
        )
        return wire(request, 12, number, client_id)
    options = {}
    if source.random() < 0.3:
        options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": source.randrange(4)}
    records = bytearray(batch(b"v" * source.choice([1, 30, 200]), **options))
    if source.random() < 0.1:
        records[-1] ^= 1
    index = source.choice([0, 0, 0, 0, 1, 9])
    return wire(
        produce_to("events", (index, bytes(records)), acks=source.choice([1, 1, 1, -1])), 9, number, client_id
    )


@pytest.mark.parametrize("seed", range(20))
def test_requests_that_arrive_together_are_answered_as_one_by_one(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        async with BrokerWorld(tmp_path / "a") as one, BrokerWorld(tmp_path / "b") as other:
            for world in (one, other):
                await world.create("events", 2)
            together = Connection(Pipeline(one.broker), uses_templates=True)
            alone = Connection(Pipeline(other.broker), uses_templates=False)
            for connection in (together, alone):
                connection.responses(
                    wire(produce_to("events", (0, batch(b"x" * 30)), (1, batch(b"y" * 30))), 9, 0)
                )
            source = random.Random(seed)
            served_in_runs = 0
            for turn in range(30):
                # A fetch beside a produce would depend on when the turn ends.
                is_fetch = source.random() < 0.4
                frame = any_frame(source, turn, is_fetch=is_fetch)
                frames = [
                    frame if source.random() < 0.7 else any_frame(source, turn, is_fetch=is_fetch)
                    for _ in range(source.randrange(1, 12))
                ]
                count_max = source.choice([2, 512])
                replies = together.receive(b"".join(frames), count_max)
                served_in_runs += sum(reply.count > 1 for reply in replies)
                assert all(reply.count <= count_max for reply in replies)
                expected = b"".join(alone.responses(frame) for frame in frames)
                assert b"".join(map(content, replies)) == expected
            assert served_in_runs

    asyncio.run(scenario())


@pytest.mark.parametrize(("policy", "count"), [("delete", [1, 2]), ("compact", [1, 1, 1])])
def test_requests_whose_records_are_looked_at_are_served_one_by_one(tell, policy: str, count: list[int]):
    """A run of them may cost a hundred times as much as its size suggests."""

    async def scenario(world: BrokerWorld) -> None:
        await world.create("table", 1, **{"cleanup.policy": policy})
        connection = Connection(Pipeline(world.broker), uses_templates=True)
        records = bytes(build_batch([Record(0, NOW_MS, b"key", b"")]))
        frame = wire(produce_to("table", (0, records), acks=1), 9, 0)
        assert [reply.count for reply in connection.receive(frame * 3)] == count

    tell(scenario)


async def filled(*replies: Reply) -> None:
    async with asyncio.timeout(20):
        while not all(reply.is_filled for reply in replies):
            await asyncio.sleep(0.01)


class Consumer:
    """One consumer of partition 1 with a fetch session, on a connection of its own."""

    def __init__(
        self, pipeline: Pipeline, topic: str | bytes, version: int, isolation: int, *, uses_templates: bool
    ) -> None:
        self.connection = Connection(pipeline, uses_templates=uses_templates)
        self.session_id = 0
        self._topic, self._version, self._isolation = topic, version, isolation

    async def fetch(self, offset: int, epoch: int) -> Any:
        """The response, without the id of its session."""
        request = fetch_from(
            self._topic,
            (1, offset),
            session_id=self.session_id,
            session_epoch=epoch,
            partition_max_bytes=1,
            isolation=self._isolation,
        )
        (reply,) = self.connection.receive(wire(request, self._version, epoch))
        await filled(reply)
        frame = memoryview(content(reply))[4:]
        _, position = read_response_header(frame, self._version >= 12)
        response = decode(FetchResponse, self._version, frame, position)
        self.session_id = response.session_id or self.session_id
        response.session_id = 0
        return response


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
@pytest.mark.parametrize("isolation", [0, 1])
def test_incremental_fetches_of_one_partition(tell, version: int, isolation: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events", 2)
        client = await world.connect()
        for number in range(30):
            await client.ask(produce_to("events", (1, batch(b"%d" % number))), 9)
        topic = world.topic_id("events") if version >= 13 else "events"
        pipeline = Pipeline(world.broker)
        one = Consumer(pipeline, topic, version, isolation, uses_templates=True)
        other = Consumer(pipeline, topic, version, isolation, uses_templates=False)
        for epoch in (0, 1):
            assert await one.fetch(epoch, epoch) == await other.fetch(epoch, epoch)
        decoded = pipeline.serve_frame
        for epoch in range(2, 25):
            expected = await other.fetch(epoch, epoch)
            pipeline.serve_frame = None  # type: ignore[assignment, method-assign]
            assert await one.fetch(epoch, epoch) == expected
            pipeline.serve_frame = decoded  # type: ignore[method-assign]
            assert expected.responses[0].partitions[0].records
        sessions = world.broker.fetch_sessions._sessions
        states = [sessions[consumer.session_id] for consumer in (one, other)]
        assert states[0].epoch == states[1].epoch == 25
        assert list(states[0].partitions.items()) == list(states[1].partitions.items())
        # An epoch that is not the next one is refused, by either path.
        for consumer in (one, other):
            assert (await consumer.fetch(25, 3)).error_code == 71

    tell(scenario)


def test_a_fetch_session_that_another_connection_changes(tell) -> None:
    """A request that repeats the last one means something else once its session has other partitions."""

    async def scenario(world: BrokerWorld) -> None:
        await world.create("events", 3)
        client = await world.connect()
        for index in (1, 2):
            for number in range(5):
                await client.ask(produce_to("events", (index, batch(b"%d" % number))), 9)
        pipeline = Pipeline(world.broker)
        consumer = Consumer(pipeline, "events", 12, 0, uses_templates=True)
        for epoch in (0, 1):
            await consumer.fetch(epoch, epoch)
        # Partition 2 takes the place of partition 1.
        change = fetch_from("events", (2, 3), session_id=consumer.session_id, session_epoch=2, forget=[1])
        Connection(pipeline, uses_templates=True).receive(wire(change, 12, 2))
        response = await consumer.fetch(2, 3)
        assert [part.partition_index for part in response.responses[0].partitions] == [2, 1]
        (first, second) = world.broker.fetch_sessions._sessions[consumer.session_id].partitions.values()
        asked = [(each.asked.partition, each.asked.fetch_offset) for each in (first, second)]
        assert sorted(asked) == [(1, 2), (2, 3)]

    tell(scenario)


@pytest.mark.parametrize("version", [7, 12, 13])
@pytest.mark.parametrize("end", ["records", "timeout", "deleted", "stopping", "large"])
def test_fetches_that_wait(tell, version: int, end: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events", 2)
        client = await world.connect()
        await client.ask(produce_to("events", (0, batch(b"first"))), 9)
        topic = world.topic_id("events") if version >= 13 else "events"
        pipeline = Pipeline(world.broker)
        pair = [Connection(pipeline, uses_templates=uses) for uses in (True, False)]
        wait_ms = 50 if end == "timeout" else 20_000
        for connection in pair:
            connection.receive(wire(fetch_from(topic, (0, 0), wait_ms=wait_ms), version, 1))
        decoded = pipeline.serve_frame
        pipeline.serve_frame = None  # type: ignore[assignment, method-assign]
        request = wire(fetch_from(topic, (0, 1), wait_ms=wait_ms), version, 2)
        waiting = pair[0].receive(request * 2)
        pipeline.serve_frame = decoded  # type: ignore[method-assign]
        waiting += pair[1].receive(request)
        # The second request of the first connection waits until the first is answered.
        assert [reply.is_filled for reply in waiting] == [False, False]
        if end == "records":
            await client.ask(produce_to("events", (0, batch(b"second"))), 9)
        elif end == "large":
            await client.ask(produce_to("events", (0, batch(b"second" * 20_000))), 9)
        elif end == "deleted":
            await client.ask(DeleteTopicsRequest(topic_names=["events"]), 5)
        elif end == "stopping":
            pipeline.ending()
        await filled(*waiting)
        assert content(waiting[0]) == content(waiting[1]) != b""
        assert not pair[0].session.pending

    tell(scenario)


@pytest.mark.parametrize(("min_bytes", "max_bytes"), [(0, 100), (-1, 100), (1, 0), (1, -1)])
def test_fetches_that_are_content_with_nothing(tell, min_bytes: int, max_bytes: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events")
        pipeline = Pipeline(world.broker)
        request = fetch_from("events", (0, 0), wait_ms=20_000, min_bytes=min_bytes, max_bytes=max_bytes)
        frame = wire(request, 12, 1)
        contents = [
            list(map(content, Connection(pipeline, uses_templates=uses).receive(frame * 2)))
            for uses in (True, False)
        ]
        assert contents[0] == contents[1]
        assert len(contents[0]) == 2 and all(contents[0])

    tell(scenario)


def test_a_recreated_topic_has_templates_again(tell) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.create("events")
        client = await world.connect()
        connection = Connection(Pipeline(world.broker), uses_templates=True)
        frame = wire(fetch_from("events", (0, 0)), 12, 1)
        for attempt in range(2):
            if attempt:
                await client.ask(DeleteTopicsRequest(topic_names=["events"]), 5)
                await world.create("events")
            await client.ask(produce_to("events", (0, batch(b"v"))), 9)
            assert [reply.count for reply in connection.receive(frame * 3)] == [1, 2]

    tell(scenario)


@pytest.mark.parametrize("isolation", [0, 1])
def test_records_that_are_not_committed_yet_count_for_a_fetch_that_waits(tell, isolation: int) -> None:
    """They are staged when the fetch looks for them, and nothing is appended before they are committed."""

    async def scenario(world: BrokerWorld) -> None:
        await world.create("events")
        connection = Connection(Pipeline(world.broker), uses_templates=False)
        fetch = fetch_from("events", (0, 0), wait_ms=20_000, min_bytes=100, isolation=isolation)
        frames = wire(produce_to("events", (0, batch(b"v" * 200)), acks=1), 9, 1) + wire(fetch, 12, 2)
        produced, fetched = connection.receive(frames)
        await asyncio.wait_for(filled(produced, fetched), 10)
        # Below min.bytes it waits: what is appended is counted, and read once there is enough.
        fetch = fetch_from("events", (0, 1), wait_ms=20_000, min_bytes=100, isolation=isolation)
        (fetched,) = connection.receive(wire(fetch, 12, 3))
        client = await world.connect()
        await client.ask(produce_to("events", (0, batch(b"v"))), 9)
        assert not fetched.is_filled
        await client.ask(produce_to("events", (0, batch(b"v"))), 9)
        await asyncio.wait_for(filled(fetched), 10)

    tell(scenario)
