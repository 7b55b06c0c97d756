"""Fixtures for tests of the network layer."""

import asyncio

import pytest
import uvloop

TIMEOUT_S = 100


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine on each supported event loop."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    async def limited(coroutine):
        # uvloop only logs what the alarm of pytest-timeout raises.
        async with asyncio.timeout(TIMEOUT_S):
            return await coroutine

    def runner(coroutine):
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(limited(coroutine))

    return runner
