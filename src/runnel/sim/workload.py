"""Workload of records, offsets and topics: the broker crashes repeatedly, then all data is verified."""

import asyncio
from dataclasses import dataclass
from random import Random

from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from runnel.sim.clients import TOPIC, Administrator, Committer, Producer, Reader, SimClient, create_topic
from runnel.sim.files import PowerFailure
from runnel.sim.history import Anomaly, History
from runnel.sim.simulation import Crash, Incarnation, Simulation
from runnel.sim.world import Connection, ConnectionLost, World

PARTITIONS = 3
RESTARTS = 6
RUN_SECONDS_MAX = 4.0
SETTLE_SECONDS_MAX = 60.0
LATEST = -1


@dataclass(slots=True)
class WorkloadResult:
    """Counts of one simulation without an anomaly."""

    seed: int
    policy: str
    shutdowns: list[str]
    acknowledged: int
    reads: int
    commits: int


def simulate(seed: int) -> WorkloadResult:
    """Run one simulation. Raises Anomaly if the broker violated a guarantee."""
    random = Random(seed)
    policy = random.choice(["commit", "never"])
    # Without a flush before the acknowledgement, a power failure may lose acknowledged records, as in Kafka.
    shutdown_kinds = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    simulation = Simulation(random.getrandbits(64), settings={"log.flush.policy": policy})
    history = History()
    clients = _clients(history)
    simulation.run_broker(lambda incarnation: create_topic(incarnation, PARTITIONS))
    shutdowns = []
    for _ in range(random.randint(2, RESTARTS)):
        shutdown = random.choice(shutdown_kinds)
        shutdowns.append(shutdown)
        run_until_shutdown(simulation, clients, shutdown, random)
    simulation.run_broker(lambda incarnation: _drain_and_verify(incarnation, clients, history))
    return WorkloadResult(seed, policy, shutdowns, history.acknowledged, history.reads, history.commits)


def _clients(history: History) -> list[SimClient]:
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


def run_until_shutdown(
    simulation: Simulation, clients: list[SimClient], shutdown: str, random: Random
) -> None:
    if shutdown != "stop":
        # At any file operation, including recovery from the previous crash.
        simulation.files.power_failure_at = simulation.files.operations + random.randint(1, 2000)
    if random.random() < 0.3:
        used = sum(map(len, _contents(simulation)))
        simulation.files.capacity_bytes = used + random.randint(1000, 60_000)
    try:
        simulation.run_broker(
            lambda incarnation: _run_clients(incarnation, clients, random.random() * RUN_SECONDS_MAX)
        )
    except (Crash, PowerFailure):
        pass
    finally:
        simulation.files.power_failure_at = -1
        simulation.files.capacity_bytes = 2**40
    if shutdown == "power":
        simulation.files.lose_power(random)


def _contents(simulation: Simulation) -> list[bytes]:
    return [bytes(simulation.files.capacity_bytes - simulation.files.space_bytes("/")[1])]


async def _run_clients(incarnation: Incarnation, clients: list[SimClient], seconds: float) -> None:
    tasks = [asyncio.ensure_future(client.run(incarnation)) for client in clients]
    deadline = incarnation.loop.time() + seconds
    files = incarnation.simulation.files
    while incarnation.loop.time() < deadline:
        raise_failures(tasks)
        if files.has_lost_power:
            raise Crash
        await asyncio.sleep(0.002)
    if files.power_failure_at >= 0:
        raise Crash
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def raise_failures(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            failure = task.exception()
            if isinstance(failure, PowerFailure):
                raise Crash
            if failure is not None:
                raise failure


async def _drain_and_verify(incarnation: Incarnation, clients: list[SimClient], history: History) -> None:
    """Without further faults all clients make progress; then the logs are verified."""
    tasks = [asyncio.ensure_future(client.run(incarnation)) for client in clients]
    before = history.acknowledged, history.reads, history.commits
    deadline = incarnation.loop.time() + SETTLE_SECONDS_MAX
    while any(now <= then for now, then in zip(_counts(history), before, strict=True)):
        raise_failures(tasks)
        if incarnation.loop.time() > deadline:
            raise Anomaly(f"no progress: {before} became {_counts(history)}")
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    raise_failures(tasks)
    for partition in range(PARTITIONS):
        log = await whole_log(incarnation, partition)
        history.check_log(partition, log)
        for client in clients:
            if isinstance(client, Producer) and client.is_idempotent and client.partition == partition:
                history.check_producer(client.name, log, client.sent)


def _counts(history: History) -> tuple[int, int, int]:
    return history.acknowledged, history.reads, history.commits


async def whole_log(world: World, partition: int) -> dict[int, bytes]:
    """All records of a partition."""
    reader = Reader(partition, History())
    while True:
        try:
            connection = await world.connect()
            end_offset = await _end_offset(connection, partition)
            while reader.position < end_offset:
                await reader.run_once(connection, world)
            return reader.history.records[partition]
        except ConnectionLost:
            continue


async def _end_offset(connection: Connection, partition: int) -> int:
    topic = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, timestamp=LATEST)])
    answer = await connection.ask(ListOffsetsRequest(-1, topics=[topic]), ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise ConnectionLost
    return found.offset
