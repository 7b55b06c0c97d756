"""The story of a world with transactions: producers, copiers, zombies, readers, and a broker that dies."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from runnel.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from runnel.sim.actors import Actor, found_topic
from runnel.sim.history import Anomaly
from runnel.sim.network import Line, LineCut
from runnel.sim.story import LATEST, LIVES, SETTLE_SECONDS_MAX, live_and_die, raise_failures
from runnel.sim.txn_actors import TIMEOUT_MS, Copier, Scripted, TransactionalProducer, offset_step
from runnel.sim.txn_history import COPIES, SOURCE, Place, TransactionHistory
from runnel.sim.txn_reading import READ_COMMITTED, CommittedReader
from runnel.sim.world import Life, World

PARTITIONS = 2
OFFSETS = "__consumer_offsets"
AT_REST = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


@dataclass(slots=True)
class TransactionVerdict:
    """What one seed's world of transactions went through without an anomaly."""

    seed: int
    policy: str
    deaths: list[str]
    attempts: int
    commits: int
    copies: int
    reads: int
    refusals: dict[str, int] = field(default_factory=dict)


def tell_transactions(seed: int) -> TransactionVerdict:
    """Play one world to its end. Anomaly if the broker broke a promise."""
    luck = Random(f"transactions {seed}")
    policy = luck.choice(["commit", "never"])
    ways_to_die = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    world = World(luck.getrandbits(64), settings={"log.flush.policy": policy})
    history = TransactionHistory()
    actors = _actors(history, luck)
    world.live(_found_topics)
    deaths = []
    for _ in range(luck.randint(2, LIVES)):
        death = luck.choice(ways_to_die)
        deaths.append(death)
        live_and_die(world, actors, death, luck)
    world.live(lambda life: _settle(life, actors, history))
    return TransactionVerdict(
        seed,
        policy,
        deaths,
        len(history.attempts),
        history.commits,
        history.copies,
        history.reads,
        dict(sorted(history.refusals.items())),
    )


async def _found_topics(life: Life) -> None:
    for name in (SOURCE, COPIES):
        await found_topic(life, PARTITIONS, name)


def _actors(history: TransactionHistory, luck: Random) -> list[Actor]:
    """Half of them classic clients; the two copiers of a partition speak alike, as they share an id."""
    actors: list[Actor] = [
        TransactionalProducer(f"p{number}", PARTITIONS, history, is_classic=number % 2 == 0)
        for number in range(3)
    ]
    for partition in range(PARTITIONS):
        is_classic = luck.random() < 0.5
        actors += [Copier(f"c{partition}{twin}", partition, history, is_classic=is_classic) for twin in "ab"]
    return actors + [CommittedReader(place, history) for place in _places()]


def _places() -> list[Place]:
    return [(topic, partition) for topic in (SOURCE, COPIES) for partition in range(PARTITIONS)]


async def _settle(life: Life, actors: list[Actor], history: TransactionHistory) -> None:
    """Without further faults everybody is served; then all rest, everything ends, and the logs are judged."""
    tasks = [asyncio.ensure_future(actor.act(life)) for actor in actors]
    before = history.commits, history.copies, history.reads
    await _wait(
        life, tasks, lambda: all(now > then for now, then in zip(_counts(history), before, strict=True))
    )
    for actor in actors:
        if isinstance(actor, Scripted):
            actor.is_resting = True
    # Whoever is in the middle of something finishes it, or its time runs out.
    await asyncio.sleep(4 * TIMEOUT_MS / 1000)
    raise_failures(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    raise_failures(tasks)
    while True:
        try:
            await _judge(life, history)
            return
        except LineCut:
            continue


def _counts(history: TransactionHistory) -> tuple[int, int, int]:
    return history.commits, history.copies, history.reads


async def _wait(life: Life, tasks: "list[asyncio.Task[None]]", is_done: Callable[[], bool]) -> None:
    deadline = life.loop.time() + SETTLE_SECONDS_MAX
    while not is_done():
        raise_failures(tasks)
        if life.loop.time() > deadline:
            raise Anomaly("nobody is served any more")
        await asyncio.sleep(0.05)


async def _judge(life: Life, history: TransactionHistory) -> None:
    line = await life.line()
    await _check_rest(line, life)
    logs = {}
    for place in _places():
        end_offset = await _end_offset(line, place, READ_COMMITTED)
        logs[place] = await CommittedReader(place, history).read_to(line, end_offset)
        history.check_log(place, logs[place])
    history.check_attempts(logs)
    for partition in range(PARTITIONS):
        step = offset_step(partition)
        answer: Any = await line.ask(step.request, step.answer)
        if any(step.errors(answer)):
            raise Anomaly(f"nothing is under way, but the group's offset is not stable: {answer}")
        at = max(answer.groups[0].topics[0].partitions[0].committed_offset, 0)
        history.check_copies(partition, logs[SOURCE, partition], logs[COPIES, partition], at)


async def _check_rest(line: Line, life: Life) -> None:
    """Nobody does anything any more: no transaction is open, and everything is stable."""
    deadline = life.loop.time() + SETTLE_SECONDS_MAX
    while True:
        answer = await line.ask(ListTransactionsRequest([], []), ListTransactionsResponse)
        hanging = [
            f"{entry.transactional_id} is {entry.transaction_state}"
            for entry in answer.transaction_states
            if entry.transaction_state not in AT_REST
        ]
        for place in (*_places(), (OFFSETS, 0), (OFFSETS, 1)):
            stable, end = [await _end_offset(line, place, isolation) for isolation in (READ_COMMITTED, 0)]
            if stable != end:
                hanging.append(f"{place} is stable up to {stable} of {end}")
        if not hanging:
            return
        if life.loop.time() > deadline:
            raise Anomaly(f"stuck at rest: {hanging}")
        await asyncio.sleep(0.2)


async def _end_offset(line: Line, place: Place, isolation_level: int) -> int:
    topic = ListOffsetsTopic(place[0], [ListOffsetsPartition(place[1], timestamp=LATEST)])
    request = ListOffsetsRequest(-1, isolation_level=isolation_level, topics=[topic])
    answer = (await line.ask(request, ListOffsetsResponse)).topics[0].partitions[0]
    if answer.error_code:
        raise Anomaly(f"{place} has no end: {answer}")
    return answer.offset
