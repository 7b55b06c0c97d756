"""Fixtures for tests of the network layer."""

import asyncio

import pytest
import uvloop

from tests.net import scripted

TIMEOUT_S = 100


OF_CONNECTIONS = {"test_client_warnings", "test_limits", "test_listener"}
"""Modules whose tests run with TLS, too."""


def pytest_generate_tests(metafunc):
    if "run" in metafunc.fixturenames:
        is_clear = metafunc.definition.get_closest_marker("clear_text") is not None
        with_tls = metafunc.module.__name__.rpartition(".")[2] in OF_CONNECTIONS and not is_clear
        metafunc.parametrize("run", ["asyncio", "uvloop", *(["tls"] if with_tls else [])], indirect=True)


@pytest.fixture
def run(request, monkeypatch):
    """Runs a coroutine on each supported event loop, and with TLS between the world and its clients."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
    if request.param == "tls":
        monkeypatch.setattr(scripted, "USES_TLS", True)

    async def limited(coroutine):
        # uvloop only logs what the alarm of pytest-timeout raises.
        async with asyncio.timeout(TIMEOUT_S):
            return await coroutine

    def runner(coroutine):
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(limited(coroutine))

    return runner
