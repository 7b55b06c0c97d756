"""Warnings about misbehaving clients are throttled."""

import logging
import re

import pytest

from runnel.model.limits import CLIENT_WARNINGS_PER_SECOND_MAX
from runnel.net.admission import ListenerLimits
from runnel.net.client_warnings import ClientWarnings
from tests.net.scripted import World

FLOOD = 200


def logged(caplog: pytest.LogCaptureFixture, level: int, words: str) -> int:
    lines = [record for record in caplog.records if record.name == "runnel.net" and record.levelno == level]
    return sum(words in record.getMessage() for record in lines)


def suppressed(caplog: pytest.LogCaptureFixture) -> int:
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return sum(int(count) for line in warnings for count in re.findall(r"(\d+) more warnings", line))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (ListenerLimits(), "as requested"),
        (ListenerLimits(connections_per_host_max=0), "rejected"),
    ],
)
@pytest.mark.clear_text
def test_warnings_about_many_clients_are_throttled(run, caplog, limits, words):
    caplog.set_level(logging.DEBUG, "runnel.net")

    async def scenario() -> float:
        async with World(limits) as world:
            began = world.listener.loop.time()
            for _ in range(FLOOD):
                client = await world.connect()
                client.send(b"x")
                assert await client.is_closed()
                await client.close()
            return world.listener.loop.time() - began

    seconds = run(scenario())
    warned, hushed = logged(caplog, logging.WARNING, words), logged(caplog, logging.DEBUG, words)
    assert 0 < warned <= CLIENT_WARNINGS_PER_SECOND_MAX * (seconds + 1)
    assert warned + hushed == FLOOD
    assert suppressed(caplog) == hushed


def test_throttling_ends_after_a_quiet_second(caplog):
    warnings = ClientWarnings("TEST", 0.0)
    for _ in range(CLIENT_WARNINGS_PER_SECOND_MAX + 3):
        warnings.warn(0.0, "first")
    warnings.warn(1.0, "second")
    for _ in range(2):
        warnings.report_suppressed()
    assert logged(caplog, logging.WARNING, "first") == CLIENT_WARNINGS_PER_SECOND_MAX
    assert logged(caplog, logging.WARNING, "second") == 1
    assert suppressed(caplog) == 3


def test_repeated_tracebacks_are_throttled(run, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG, "runnel.net")

    async def scenario() -> float:
        async with World(ListenerLimits()) as world:

            def fail(request, session):
                raise ZeroDivisionError

            monkeypatch.setattr(world.service, "serve", fail)
            began = world.listener.loop.time()
            for _ in range(FLOOD):
                client = await world.connect()
                client.send(b"e")
                assert await client.is_closed()
                await client.close()
            return world.listener.loop.time() - began

    seconds = run(scenario())
    traces = [record for record in caplog.records if record.exc_info]
    assert 0 < len(traces) <= CLIENT_WARNINGS_PER_SECOND_MAX * (seconds + 1)
    assert logged(caplog, logging.DEBUG, "serving") == suppressed(caplog) == FLOOD - len(traces)
