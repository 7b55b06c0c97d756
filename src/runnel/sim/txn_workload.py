"""Workload of transactions: producers, copiers, zombies and consumers of a broker that crashes."""

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
from runnel.model.errors import ErrorCode
from runnel.sim.clients import SimClient, create_topic
from runnel.sim.history import Anomaly
from runnel.sim.simulation import Incarnation, Simulation
from runnel.sim.txn_clients import TIMEOUT_MS, Copier, ScriptedClient, TransactionalProducer, offset_step
from runnel.sim.txn_history import COPIES, SOURCE, PartitionKey, TransactionHistory
from runnel.sim.txn_reading import READ_COMMITTED, CommittedReader
from runnel.sim.workload import LATEST, RESTARTS, SETTLE_SECONDS_MAX, raise_failures, run_until_shutdown
from runnel.sim.world import Connection, ConnectionLost, World

PARTITIONS = 2
OFFSETS = "__consumer_offsets"
ENDED_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


@dataclass(slots=True)
class TransactionWorkloadResult:
    """Counts of one simulation without an anomaly."""

    seed: int
    policy: str
    shutdowns: list[str]
    attempts: int
    commits: int
    copies: int
    reads: int
    rejections: dict[str, int] = field(default_factory=dict)


def simulate_transactions(seed: int) -> TransactionWorkloadResult:
    """Run one simulation. Raises Anomaly if the broker violated a guarantee."""
    random = Random(f"transactions {seed}")
    policy = random.choice(["commit", "never"])
    shutdown_kinds = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    simulation = Simulation(random.getrandbits(64), settings={"log.flush.policy": policy})
    history = TransactionHistory()
    clients = transaction_clients(history, random)
    simulation.run_broker(_create_topics)
    shutdowns = []
    for _ in range(random.randint(2, RESTARTS)):
        shutdown = random.choice(shutdown_kinds)
        shutdowns.append(shutdown)
        run_until_shutdown(simulation, clients, shutdown, random)
    simulation.run_broker(lambda incarnation: _drain_and_verify(incarnation, clients, history))
    return TransactionWorkloadResult(
        seed,
        policy,
        shutdowns,
        len(history.attempts),
        history.commits,
        history.copies,
        history.reads,
        dict(sorted(history.rejections.items())),
    )


async def _create_topics(incarnation: Incarnation) -> None:
    for name in (SOURCE, COPIES):
        await create_topic(incarnation, PARTITIONS, name)


def transaction_clients(history: TransactionHistory, random: Random) -> list[SimClient]:
    """A mix of classic and newer clients; the two copiers of a partition share an id and a protocol."""
    clients: list[SimClient] = [
        TransactionalProducer(f"p{number}", PARTITIONS, history, is_classic=number % 2 == 0)
        for number in range(3)
    ]
    for partition in range(PARTITIONS):
        is_classic = random.random() < 0.5
        clients += [
            Copier(f"c{partition}{instance}", partition, history, is_classic=is_classic) for instance in "ab"
        ]
    return clients + [CommittedReader(key, history) for key in _partition_keys()]


def _partition_keys() -> list[PartitionKey]:
    return [(topic, partition) for topic in (SOURCE, COPIES) for partition in range(PARTITIONS)]


async def _drain_and_verify(
    incarnation: Incarnation, clients: list[SimClient], history: TransactionHistory
) -> None:
    """Without further faults all clients make progress; then transactions end, and the logs are verified."""
    tasks = [asyncio.ensure_future(client.run(incarnation)) for client in clients]
    before = history.commits, history.copies, history.reads
    await _wait(
        incarnation,
        tasks,
        lambda: all(now > then for now, then in zip(_counts(history), before, strict=True)),
    )
    for client in clients:
        if isinstance(client, ScriptedClient):
            client.is_draining = True
    # Open transactions complete or time out.
    await asyncio.sleep(4 * TIMEOUT_MS / 1000)
    raise_failures(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    raise_failures(tasks)
    while True:
        try:
            await verify(incarnation, history)
            return
        except ConnectionLost:
            continue


def _counts(history: TransactionHistory) -> tuple[int, int, int]:
    return history.commits, history.copies, history.reads


async def _wait(
    incarnation: Incarnation, tasks: "list[asyncio.Task[None]]", is_done: Callable[[], bool]
) -> None:
    deadline = incarnation.loop.time() + SETTLE_SECONDS_MAX
    while not is_done():
        raise_failures(tasks)
        if incarnation.loop.time() > deadline:
            raise Anomaly("no progress")
        await asyncio.sleep(0.05)


async def verify(world: World, history: TransactionHistory) -> None:
    """Without active clients: compare all logs with the history. Raises Anomaly or ConnectionLost."""
    connection = await world.connect()
    await _check_quiescence(connection)
    logs = {}
    for key in _partition_keys():
        end_offset = await _end_offset(connection, key, READ_COMMITTED)
        logs[key] = await CommittedReader(key, history).read_to(connection, end_offset)
        history.check_log(key, logs[key])
    history.check_attempts(logs)
    for partition in range(PARTITIONS):
        step = offset_step(partition)
        answer: Any = await connection.ask(step.request, step.answer)
        if any(step.errors(answer)):
            raise Anomaly(f"the group's offset is not stable without open transactions: {answer}")
        at = max(answer.groups[0].topics[0].partitions[0].committed_offset, 0)
        history.check_copies(partition, logs[SOURCE, partition], logs[COPIES, partition], at)


async def _check_quiescence(connection: Connection) -> None:
    """Without active clients, no transaction is open and the last stable offset is the log end offset."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_SECONDS_MAX
    while True:
        answer = await connection.ask(ListTransactionsRequest([], []), ListTransactionsResponse)
        hanging = [
            f"{entry.transactional_id} is {entry.transaction_state}"
            for entry in answer.transaction_states
            if entry.transaction_state not in ENDED_STATES
        ]
        for key in (*_partition_keys(), (OFFSETS, 0), (OFFSETS, 1)):
            stable, end = [await _end_offset(connection, key, isolation) for isolation in (READ_COMMITTED, 0)]
            if stable != end:
                hanging.append(f"{key}: last stable offset {stable} of {end}")
        if not hanging:
            return
        if loop.time() > deadline:
            raise Anomaly(f"hanging transactions: {hanging}")
        await asyncio.sleep(0.2)


async def _end_offset(connection: Connection, key: PartitionKey, isolation_level: int) -> int:
    topic = ListOffsetsTopic(key[0], [ListOffsetsPartition(key[1], timestamp=LATEST)])
    request = ListOffsetsRequest(-1, isolation_level=isolation_level, topics=[topic])
    answer = (await connection.ask(request, ListOffsetsResponse)).topics[0].partitions[0]
    if answer.error_code:
        if ErrorCode.from_code(answer.error_code).retriable:
            raise ConnectionLost
        raise Anomaly(f"ListOffsets of {key} failed: {answer}")
    return answer.offset
