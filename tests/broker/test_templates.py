"""Repeated requests that are not decoded get, byte for byte, the response of those that are."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from runnel.broker.runtime.pipeline import Pipeline
from runnel.ports.disk import FileSlice
from runnel.ports.files import File
from runnel.ports.service import CloseConnection, Reply, Session
from runnel.wire import Request
from runnel.wire.frame import request_frame
from tests.broker.requests import batch, fetch_from, produce_to
from tests.broker.world import BrokerWorld

CLOSED = b"closed"


class PathPair:
    """A connection with cached templates, and a new one for each request."""

    def __init__(self, world: BrokerWorld) -> None:
        self.pipeline = Pipeline(world.broker)
        self.remembering = Session("host", 1, "PLAINTEXT", 1)

    def full_path(self, frame: bytes) -> bytes | None:
        return self.answer(frame, Session("host", 2, "PLAINTEXT", 2))

    def template_path(self, frame: bytes) -> bytes | None:
        return self.answer(frame, self.remembering)

    def answer(self, frame: bytes, session: Session) -> bytes | None:
        """The bytes of the response, None if there is none, or CLOSED."""
        replies: list[Reply] = []
        try:
            size = len(frame)
            self.pipeline.serve(memoryview(bytearray(frame)), 0, size, size, session, replies, 1)
        except CloseConnection:
            return CLOSED
        finally:
            self.pipeline.finish_turn()
        self.pipeline.closed(session)
        if not replies:
            return None
        (reply,) = replies
        return b"".join(
            cast("File", part.file).pread(part.length, part.position) if isinstance(part, FileSlice) else part
            for part in reply.parts
        )


def frame_of(request: Request, version: int, correlation_id: int = 7) -> bytes:
    return b"".join(request_frame(request, version, correlation_id, "twin"))[4:]


@contextmanager
def full_path_forbidden(paths: PathPair) -> Iterator[None]:
    decoded = paths.pipeline.serve_frame
    paths.pipeline.serve_frame = None  # type: ignore[assignment, method-assign]
    yield
    paths.pipeline.serve_frame = decoded  # type: ignore[method-assign]


def run(tmp_path, scenario) -> None:
    async def running() -> None:
        async with BrokerWorld(tmp_path) as world:
            await world.create("events", 3)
            await scenario(world)

    asyncio.run(running())


@pytest.mark.parametrize("version", range(7, 14))
@pytest.mark.parametrize("size", [1, 200, 20_000, 100_000])
def test_produce(tmp_path, version, size):
    async def scenario(world) -> None:
        paths = PathPair(world)
        topic = world.topic_id("events") if version >= 13 else "events"
        for index in (0, 2, 1, 0):
            # A duplicate is acknowledged like the original, so both paths can serve the same request.
            records = batch(b"x" * size, producer_id=9, producer_epoch=0, base_sequence=0)
            frame = frame_of(produce_to(topic, (index, records)), version, correlation_id=index + 1)
            expected = paths.full_path(frame)
            assert expected == paths.template_path(frame)
            assert paths.remembering.template is not None
            with full_path_forbidden(paths):
                assert paths.template_path(frame) == expected
                damaged = frame[:-10] + bytes([frame[-10] ^ 1]) + frame[-9:]
                refused = paths.template_path(damaged)
            assert refused == paths.full_path(damaged) != expected

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_fetch(tmp_path, version):
    async def scenario(world) -> None:
        client = await world.connect()
        for number in range(20):
            await client.ask(produce_to("events", (1, batch(b"%d" % number * 7000))), 9)
        # From now on no read waits for the disk.
        await client.ask(fetch_from("events", (1, 0), isolation=1), 11)
        paths = PathPair(world)
        topic = world.topic_id("events") if version >= 13 else "events"
        for limit in (1, 30_000, 1_000_000):
            for isolation in (0, 1):
                for offset in range(20):
                    request = fetch_from(
                        topic, (1, offset), partition_max_bytes=limit, isolation=isolation, wait_ms=10_000
                    )
                    frame = frame_of(request, version, correlation_id=offset)
                    expected = paths.full_path(frame)
                    assert paths.template_path(frame) == expected
                    with full_path_forbidden(paths):
                        assert paths.template_path(frame) == expected

    run(tmp_path, scenario)


def mutations(frame: bytes, source: random.Random) -> Iterator[bytes]:
    """Frames with changed bytes, truncated and extended."""
    for _ in range(300):
        position = source.randrange(len(frame))
        yield frame[:position] + bytes([source.randrange(256)]) + frame[position + 1 :]
    for _ in range(30):
        yield frame[: source.randrange(4, len(frame))]
        yield frame + bytes(source.randrange(1, 5))


@pytest.mark.parametrize("version", [7, 9, 12, 13])
def test_similar_frames(tmp_path, version):
    async def scenario(world) -> None:
        paths = PathPair(world)
        topic = world.topic_id("events") if version >= 13 else "events"
        records = batch(b"hello", producer_id=9, producer_epoch=0, base_sequence=0)
        source = random.Random(version)
        for request in (
            produce_to(topic, (1, records), acks=1),
            fetch_from(topic, (1, 0), wait_ms=0, current_epoch=0),
        ):
            frame = frame_of(request, version)
            for changed in mutations(frame, source):
                paths.template_path(frame)
                # A fetch may wait: then neither path has a response yet.
                assert paths.template_path(changed) == paths.full_path(changed), changed.hex()

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", [9, 13])
def test_a_frame_that_ends_within_the_length_of_its_records(tell, caplog, version):
    """A malformed request closes its connection with one warning; it is not a bug with a traceback."""

    async def scenario(world) -> None:
        await world.create("events", 3)
        client = await world.connect()
        topic = world.topic_id("events") if version >= 13 else "events"
        records = batch(b"x" * 200)
        request = produce_to(topic, (1, records))
        await client.ask(request, version)
        whole = b"".join(request_frame(request, version, 2, "test"))
        # The length takes two bytes; of both only the first, and of all that follows nothing, is sent.
        cut = whole[4 : len(whole) - 3 - len(records) - 1]
        client.writer.write(len(cut).to_bytes(4) + cut)
        assert await client.is_closed()

    tell(scenario)
    (line,) = [record for record in caplog.records if record.name.startswith("runnel")]
    assert line.levelname == "WARNING" and line.exc_info is None and "malformed" in line.getMessage()


def test_recreated_topic_invalidates_templates(tmp_path):
    async def scenario(world) -> None:
        paths = PathPair(world)
        old = world.topic_id("events")
        by_id = frame_of(produce_to(old, (0, batch(b"a"))), 13)
        by_name = frame_of(produce_to("events", (0, batch(b"a"))), 9)
        for frame in (by_id, by_name):
            paths.template_path(frame)
        world.broker.metadata.image.topics_by_id.pop(old)
        for index in range(3):
            partition = world.broker.partitions.pop(("events", index))
            partition.topic_id = bytes(15) + b"\x01"
            world.broker.partitions[partition.name] = partition
        for _ in range(2):
            refused, taken = paths.template_path(by_id), paths.template_path(by_name)
            assert refused is not None and b"\x00\x64" in refused[:60], "UNKNOWN_TOPIC_ID"
            assert taken is not None and b"\x00\x64" not in taken[:60]

    run(tmp_path, scenario)
