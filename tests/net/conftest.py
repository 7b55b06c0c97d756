"""Fixtures for tests of the network layer."""

import asyncio

import pytest
import uvloop


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine on each supported event loop."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def runner(coroutine):
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(coroutine)

    return runner
