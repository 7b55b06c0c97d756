"""Lives of a simulated broker: actors act until it is stopped, killed, loses power or runs out of disk."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from runnel.sim.actors import Actor
from runnel.sim.files import PowerCut
from runnel.sim.world import Death, Life, World

LIFE_SECONDS_MAX = 4.0


async def act(life: Life, actors: Sequence[Actor], is_over: Any) -> None:
    tasks = [asyncio.ensure_future(actor.act(life)) for actor in actors]
    files = life.world.files
    while not is_over(life.loop.time()):
        for task in tasks:
            if task.done():
                task.result()
        if 0 <= files.cut_power_at <= files.operations:
            raise Death
        await asyncio.sleep(0.005)
    if files.cut_power_at >= 0:
        raise Death
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def live_and_die(world: World, actors: Sequence[Actor], luck: Random, ways_to_die: list[str]) -> None:
    death = luck.choice(ways_to_die)
    if death != "stop":
        world.files.cut_power_at = world.files.operations + luck.randint(1, 1500)
    if luck.random() < 0.4:
        used = world.files.capacity_bytes - world.files.space_bytes("/")[1]
        world.files.capacity_bytes = used + luck.randint(100, 5_000)
    ends: list[float] = []

    def is_over(now: float) -> bool:
        if not ends:
            ends.append(now + luck.random() * LIFE_SECONDS_MAX)
        return now > ends[0]

    try:
        world.live(lambda life: act(life, actors, is_over))
    except (Death, PowerCut):
        pass
    finally:
        world.files.cut_power_at = -1
        world.files.capacity_bytes = 2**40
    if death == "power":
        world.files.lose_power(luck)
