"""Malformed frames get a response or close their connection, without other effects."""

import asyncio
import logging
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.broker.runtime.pipeline import Pipeline
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.ports.service import CloseConnection, Session
from tests.broker.requests import batch, only, produce_to
from tests.broker.world import BrokerWorld
from tools.fuzz.mutate import mutated
from tools.fuzz.samples import TOPIC, ends_topic, sample_frames

SETTINGS = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "2"}
FRAMES = 1500


def test_mutated_requests_raise_no_unexpected_exception(tmp_path, caplog):
    """Requests of every API in every version, with one to three mutations, passed to the pipeline."""
    chance = random.Random()
    seed = chance.randrange(2**32)
    chance.seed(seed)
    caplog.set_level(logging.ERROR)

    async def scenario() -> None:
        async with BrokerWorld(tmp_path, SETTINGS) as world:
            await world.create(TOPIC, 2)
            pipeline = Pipeline(world.broker)
            topic_id = world.topic_id(TOPIC)
            pool = sample_frames(topic_id)
            for number in range(FRAMES):
                session = Session("fuzzer", number, "PLAINTEXT", number)
                broken = mutated(chance, pool)
                if ends_topic(broken, topic_id):
                    continue
                frame = bytearray(broken[4:])
                try:
                    pipeline.serve(memoryview(frame), 0, len(frame), len(frame), session, [], 1)
                except CloseConnection:
                    pass
                finally:
                    pipeline.finish_turn()
                    pipeline.closed(session)
                # The receive buffer is reused: no reference to the frame may remain.
                frame[:] = bytes(len(frame))
                if number % 50 == 0:
                    await asyncio.sleep(0)
            client = await world.connect()
            answer = only(await client.ask(produce_to(TOPIC, (0, batch(b"still here"))), 9))
            assert answer.error_code == 0

    asyncio.run(scenario())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], f"seed {seed}"


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=1, max_size=400), min_size=1, max_size=5))
def test_random_bytes_close_at_most_their_connection(tmp_path_factory, pieces):
    async def scenario() -> None:
        async with BrokerWorld(tmp_path_factory.mktemp("fuzz"), SETTINGS) as world:
            stranger, friend = await world.connect(), await world.connect()
            for piece in pieces:
                stranger.writer.write(piece)
                await asyncio.sleep(0)
            assert (await friend.ask(ApiVersionsRequest(), 0)).error_code == 0
            assert world.listener.memory.reserved_bytes <= world.listener.request_bytes_max

    asyncio.run(scenario())
