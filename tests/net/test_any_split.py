"""Responses do not depend on how requests are split into segments or when they complete."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.net.scripted import World, frame

# Sizes around every threshold of the receive path.
sizes = st.sampled_from([0, 1, 3, 50, 5_000, 65_531, 65_536, 65_540, 140_000, 262_144, 300_000])
requests = st.lists(st.tuples(st.sampled_from("etlhn"), sizes), min_size=1, max_size=25)


@settings(max_examples=40)
@given(requests, st.lists(st.integers(1, 400_000), min_size=1, max_size=20))
def test_responses_do_not_depend_on_segmentation(asked, steps):
    bodies = [verb.encode() + bytes([index % 251]) * size for index, (verb, size) in enumerate(asked)]
    expected = [body[1:] for body in bodies if not body.startswith(b"n")]

    async def write(client, stream: bytes) -> None:
        position = 0
        for step in [*steps, len(stream)]:
            client.writer.write(stream[position : position + step])
            await client.writer.drain()
            await asyncio.sleep(0)
            position += step

    async def release(world) -> None:
        while True:
            while world.service.later:
                world.service.release(-1)
            await asyncio.sleep(0.001)

    async def scenario() -> None:
        async with World() as world:
            client = await world.connect()
            releasing = asyncio.create_task(release(world))
            writing = asyncio.create_task(write(client, b"".join(map(frame, bodies))))
            async with asyncio.timeout(30):
                assert [await client.receive() for _ in expected] == expected
                await writing
            releasing.cancel()
            await world.until(lambda: len(world.service.served) == len(bodies))
            assert world.listener.memory.reserved_bytes == 0

    asyncio.run(scenario())
