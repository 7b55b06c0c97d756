"""Fixtures for scenarios: coroutines that run against a broker."""

import asyncio

import pytest

from runnel.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.authorized import SETTINGS, Caller, prepare
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


@pytest.fixture
def secure(tell):
    """Run a scenario against a broker with ACLs and the topics `open-1`, `open-2` and `secret`."""

    def run(scenario, **settings: str) -> None:
        async def prepared(world: BrokerWorld) -> None:
            acls = prepare(world)
            for name in ("open-1", "open-2", "secret"):
                await world.create(name)
            await Caller(world, "root").ask(FindCoordinatorRequest(key="g"), 1)
            await scenario(world, acls)

        named = {name.replace("_", "."): value for name, value in settings.items()}
        tell(prepared, {**SETTINGS, "offsets.topic.num.partitions": "1", **named})

    return run
