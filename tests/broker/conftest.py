"""Stories of the broker: a coroutine that gets a running broker and runs to its end."""

import asyncio

import pytest

from tests.broker.world import BrokerWorld


@pytest.fixture
def tell(tmp_path):
    """Run a scenario with a broker of its own; `settings` are the broker's static ones."""

    def teller(scenario, settings=None, limits=None) -> None:
        async def run() -> None:
            async with BrokerWorld(tmp_path, settings, limits) as world:
                await scenario(world)

        asyncio.run(run())

    return teller
