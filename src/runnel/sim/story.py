"""One world's story: clients talk while the broker dies again and again; then every promise is checked."""

import asyncio
from dataclasses import dataclass
from random import Random

from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from runnel.sim.actors import TOPIC, Actor, Administrator, Committer, Producer, Reader, found_topic
from runnel.sim.files import PowerCut
from runnel.sim.history import Anomaly, History
from runnel.sim.network import Line, LineCut
from runnel.sim.world import Death, Life, World

PARTITIONS = 3
LIVES = 6
LIFE_SECONDS_MAX = 4.0
SETTLE_SECONDS_MAX = 60.0
LATEST = -1


@dataclass(slots=True)
class Verdict:
    """What one seed's world went through without an anomaly."""

    seed: int
    policy: str
    deaths: list[str]
    acknowledged: int
    reads: int
    commits: int


def tell(seed: int) -> Verdict:
    """Play one world to its end. Anomaly if the broker broke a promise."""
    luck = Random(seed)
    policy = luck.choice(["commit", "never"])
    # Without a sync before each acknowledgement a power cut may take what was acknowledged, as with Kafka.
    ways_to_die = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    world = World(luck.getrandbits(64), settings={"log.flush.policy": policy})
    history = History()
    actors = _actors(history)
    world.live(lambda life: found_topic(life, PARTITIONS))
    deaths = []
    for _ in range(luck.randint(2, LIVES)):
        death = luck.choice(ways_to_die)
        deaths.append(death)
        live_and_die(world, actors, death, luck)
    world.live(lambda life: _settle(life, actors, history))
    return Verdict(seed, policy, deaths, history.acknowledged, history.reads, history.commits)


def _actors(history: History) -> list[Actor]:
    producers = [
        Producer(
            f"{'once' if index % 2 else 'some'}{index}",
            index % PARTITIONS,
            history,
            is_idempotent=index % 2 == 1,
        )
        for index in range(2 * PARTITIONS)
    ]
    readers = [Reader(partition, history) for partition in range(PARTITIONS)]
    return [*producers, *readers, Committer("first", history), Committer("second", history), Administrator()]


def live_and_die(world: World, actors: list[Actor], death: str, luck: Random) -> None:
    if death != "stop":
        # Somewhere in the middle of whatever it does, recovery from the last death included.
        world.files.cut_power_at = world.files.operations + luck.randint(1, 2000)
    if luck.random() < 0.3:
        used = sum(map(len, _contents(world)))
        world.files.capacity_bytes = used + luck.randint(1000, 60_000)
    try:
        world.live(lambda life: _act(life, actors, luck.random() * LIFE_SECONDS_MAX))
    except (Death, PowerCut):
        pass
    finally:
        world.files.cut_power_at = -1
        world.files.capacity_bytes = 2**40
    if death == "power":
        world.files.lose_power(luck)


def _contents(world: World) -> list[bytes]:
    return [bytes(world.files.capacity_bytes - world.files.space_bytes("/")[1])]


async def _act(life: Life, actors: list[Actor], seconds: float) -> None:
    tasks = [asyncio.ensure_future(actor.act(life)) for actor in actors]
    deadline = life.loop.time() + seconds
    files = life.world.files
    while life.loop.time() < deadline:
        raise_failures(tasks)
        if files.is_cut:
            raise Death
        await asyncio.sleep(0.002)
    if files.cut_power_at >= 0:
        raise Death
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def raise_failures(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            failure = task.exception()
            if isinstance(failure, PowerCut):
                raise Death
            if failure is not None:
                raise failure


async def _settle(life: Life, actors: list[Actor], history: History) -> None:
    """Without further faults, everybody gets an answer, and the logs hold what was promised."""
    tasks = [asyncio.ensure_future(actor.act(life)) for actor in actors]
    before = history.acknowledged, history.reads, history.commits
    deadline = life.loop.time() + SETTLE_SECONDS_MAX
    while any(now <= then for now, then in zip(_counts(history), before, strict=True)):
        raise_failures(tasks)
        if life.loop.time() > deadline:
            raise Anomaly(f"nobody is served any more: {before} became {_counts(history)}")
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    raise_failures(tasks)
    for partition in range(PARTITIONS):
        log = await _whole_log(life, partition)
        history.check_log(partition, log)
        for actor in actors:
            if isinstance(actor, Producer) and actor.is_idempotent and actor.partition == partition:
                history.check_producer(actor.name, log, actor.sent)


def _counts(history: History) -> tuple[int, int, int]:
    return history.acknowledged, history.reads, history.commits


async def _whole_log(life: Life, partition: int) -> dict[int, bytes]:
    reader = Reader(partition, History())
    while True:
        try:
            line = await life.line()
            end_offset = await _end_offset(line, partition)
            while reader.position < end_offset:
                await reader.speak(line, life)
            return reader.history.records[partition]
        except LineCut:
            continue


async def _end_offset(line: Line, partition: int) -> int:
    topic = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, timestamp=LATEST)])
    answer = await line.ask(ListOffsetsRequest(-1, topics=[topic]), ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset
