"""Stories of the broker: a coroutine that gets a running broker and runs to its end."""

import asyncio

import pytest

from tests.broker.world import BrokerWorld


@pytest.fixture
def tell(tmp_path):
    """Run a story with a broker of its own; `settings` are the broker's static ones."""

    def teller(story, settings=None, limits=None) -> None:
        async def run() -> None:
            async with BrokerWorld(tmp_path, settings, limits) as world:
                await story(world)

        asyncio.run(run())

    return teller
