"""The simulator itself: which failures of the broker end a simulation, and which belong to a crash."""

import asyncio
import gc
import logging
from contextlib import suppress

import pytest

from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.sim import network
from runnel.sim.files import PowerFailure
from runnel.sim.simulation import Crash, Incarnation, Simulation


def test_what_a_power_failure_interrupts_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler's task ends with the power failure, and the promise of its response is dropped."""
    monkeypatch.setattr(network, "LOSS_CHANCE", 0)

    async def find(incarnation: Incarnation) -> None:
        connection = await incarnation.connect()
        simulation.files.power_failure_at = simulation.files.operations + failure_at
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                request = FindCoordinatorRequest(coordinator_keys=["group"])
                await connection.ask(request, FindCoordinatorResponse)
        gc.collect()
        raise Crash

    for failure_at in range(1, 12):
        simulation = Simulation(failure_at, settings={})
        with suppress(Crash, PowerFailure):
            simulation.run_broker(find)
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_unexpected_exception_in_the_broker_fails_the_simulation() -> None:
    async def fail(incarnation: Incarnation) -> None:
        incarnation.pipeline.broker.bugs.report(ZeroDivisionError(), "a bug")

    with pytest.raises(AssertionError, match="a bug"):
        Simulation(1, settings={}).run_broker(fail)
