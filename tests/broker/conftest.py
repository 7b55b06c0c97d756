"""Fixtures for scenarios: coroutines that run against a broker."""

import asyncio

import pytest

from tests.broker.world import BrokerWorld


@pytest.fixture
def tell(tmp_path):
    """Run a scenario against a new broker with the given static settings."""

    def teller(scenario, settings=None, limits=None) -> None:
        async def run() -> None:
            async with BrokerWorld(tmp_path, settings, limits) as world:
                await scenario(world)

        asyncio.run(run())

    return teller
