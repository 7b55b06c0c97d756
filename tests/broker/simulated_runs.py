"""Runs of a simulated broker until it is stopped, killed, loses power or runs out of disk space."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from runnel.sim.clients import SimClient
from runnel.sim.files import PowerFailure
from runnel.sim.simulation import Crash, Incarnation, Simulation

RUN_SECONDS_MAX = 4.0


async def run_clients(incarnation: Incarnation, clients: Sequence[SimClient], is_over: Any) -> None:
    tasks = [asyncio.ensure_future(client.run(incarnation)) for client in clients]
    files = incarnation.simulation.files
    while not is_over(incarnation.loop.time()):
        for task in tasks:
            if task.done():
                task.result()
        if 0 <= files.power_failure_at <= files.operations:
            raise Crash
        await asyncio.sleep(0.005)
    if files.power_failure_at >= 0:
        raise Crash
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run_until_shutdown(
    simulation: Simulation, clients: Sequence[SimClient], random: Random, shutdown_kinds: list[str]
) -> None:
    shutdown = random.choice(shutdown_kinds)
    if shutdown != "stop":
        simulation.files.power_failure_at = simulation.files.operations + random.randint(1, 1500)
    if random.random() < 0.4:
        used = simulation.files.capacity_bytes - simulation.files.space_bytes("/")[1]
        simulation.files.capacity_bytes = used + random.randint(100, 5_000)
    ends: list[float] = []

    def is_over(now: float) -> bool:
        if not ends:
            ends.append(now + random.random() * RUN_SECONDS_MAX)
        return now > ends[0]

    try:
        simulation.run_broker(lambda incarnation: run_clients(incarnation, clients, is_over))
    except (Crash, PowerFailure):
        pass
    finally:
        simulation.files.power_failure_at = -1
        simulation.files.capacity_bytes = 2**40
    if shutdown == "power":
        simulation.files.lose_power(random)
