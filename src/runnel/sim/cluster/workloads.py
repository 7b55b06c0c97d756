"""Workloads of a cluster: what clients do, and what is verified at the end."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from runnel.sim.clients import (
    TOPIC,
    Committer,
    KeyedProducer,
    Producer,
    Reader,
    SimClient,
    create_topic,
)
from runnel.sim.cluster.administrator import ClusterAdministrator
from runnel.sim.cluster.simulation import (
    SETTLE_SECONDS_MAX,
    ClusterSimulation,
    Shape,
    draw_shape,
)
from runnel.sim.cluster.voters import VoterAdministrator
from runnel.sim.group_clients import Ledger, Member
from runnel.sim.history import History
from runnel.sim.txn_clients import TIMEOUT_MS, OffsetReader, ScriptedClient
from runnel.sim.txn_history import COPIES, SOURCE, TransactionHistory
from runnel.sim.txn_workload import PARTITIONS as TRANSACTION_PARTITIONS
from runnel.sim.txn_workload import transaction_clients, verify
from runnel.sim.workload import whole_log
from runnel.sim.world import ConnectionLost, World

PARTITIONS = 2
REPLICAS = 3
MEMBERS = 3
WARM_UP_SECONDS = 0.5
DEDUP = {"dedup.window.ms": "86400000"}
"""Longer than clocks jump."""

Show = Callable[[str], None]


def unchanged(shape: Shape) -> Shape:
    """The shape that was drawn."""
    return shape


@dataclass(slots=True)
class ClusterResult:
    """Counts of one simulation without an anomaly."""

    seed: int
    nodes: int
    policy: str
    digest: int
    seconds: float
    elections: int
    quorum_elections: int
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)


class ClusterHistory(History):
    """Checks each acknowledgement against what is committed."""

    __slots__ = ("_simulation",)

    def __init__(self, simulation: ClusterSimulation) -> None:
        super().__init__()
        self._simulation = simulation

    def record_write(self, partition: int, base_offset: int, values: list[bytes]) -> None:
        History.record_write(self, partition, base_offset, values)
        self._simulation.check_acknowledged(TOPIC, partition, base_offset + len(values))

    def record_read(self, partition: int, offset: int, value: bytes) -> None:
        History.record_read(self, partition, offset, value)
        self._simulation.check_read(TOPIC, partition, offset)


def simulate_records(
    seed: int, show: Show | None = None, adapt: Callable[[Shape], Shape] = unchanged
) -> ClusterResult:
    """Producers, consumers, groups and an administrator. Raises Anomaly."""
    shape = adapt(draw_shape(Random(f"records {seed}")))
    simulation = ClusterSimulation(f"records {seed}", shape, show)
    with simulation.cluster.running():
        history, ledger = ClusterHistory(simulation), Ledger()
        administrator = ClusterAdministrator({TOPIC: PARTITIONS}, simulation.brokers, REPLICAS)
        producers = [
            Producer(f"once{index}", index % PARTITIONS, history, is_idempotent=True) for index in range(3)
        ]
        clients: list[SimClient] = [
            *producers,
            *(Reader(partition, history) for partition in range(PARTITIONS)),
            *(Member(f"m{number}", ledger) for number in range(MEMBERS)),
            Committer("first", history),
            administrator,
        ]
        counts = lambda: (history.acknowledged, history.reads, history.commits, ledger.commits)  # noqa: E731
        _run(simulation, {TOPIC: PARTITIONS}, clients, counts)
        simulation.clients.stop()
        simulation.wait_until_in_sync()
        simulation.check(administrator.check(simulation.clients))
        simulation.check(_check_logs(simulation.clients, history, producers))
        simulation.invariants.partitions.check_all()
        found = Counter(
            acknowledged=history.acknowledged,
            reads=history.reads,
            commits=history.commits + ledger.commits,
            reassignments=administrator.reassignments,
        )
        return _result(seed, simulation, found)


def simulate_keys(
    seed: int, show: Show | None = None, adapt: Callable[[Shape], Shape] = unchanged
) -> ClusterResult:
    """Producers with idempotency keys, two of which send the same, and consumers. Raises Anomaly."""
    simulation = ClusterSimulation(f"keys {seed}", adapt(draw_shape(Random(f"keys {seed}"))), show)
    with simulation.cluster.running():
        history = ClusterHistory(simulation)
        administrator = ClusterAdministrator({TOPIC: PARTITIONS}, simulation.brokers, REPLICAS)
        producers = [
            KeyedProducer(f"keyed{number}", number % PARTITIONS, history)
            for number in range(2 * PARTITIONS)
            for _ in range(2)
        ]
        readers = [Reader(partition, history) for partition in range(PARTITIONS)]
        counts = lambda: (history.acknowledged, history.reads)  # noqa: E731
        clients: list[SimClient] = [*producers, *readers, administrator]
        _run(simulation, {TOPIC: PARTITIONS}, clients, counts, DEDUP)
        simulation.clients.stop()
        simulation.wait_until_in_sync()
        simulation.check(administrator.check(simulation.clients))
        simulation.check(_check_logs(simulation.clients, history, producers))
        simulation.invariants.partitions.check_all()
        found = Counter(acknowledged=history.acknowledged, reads=history.reads)
        return _result(seed, simulation, found)


def simulate_transactions(
    seed: int, show: Show | None = None, adapt: Callable[[Shape], Shape] = unchanged
) -> ClusterResult:
    """Transactional producers, copiers and read_committed consumers. Raises Anomaly."""
    random = Random(f"transactions {seed}")
    simulation = ClusterSimulation(f"transactions {seed}", adapt(draw_shape(random)), show)
    with simulation.cluster.running():
        history = TransactionHistory(is_replicated=True)
        clients = transaction_clients(history, random)
        clients += [OffsetReader(partition, history) for partition in range(TRANSACTION_PARTITIONS)]
        topics = dict.fromkeys((SOURCE, COPIES), TRANSACTION_PARTITIONS)
        administrator = ClusterAdministrator(topics, simulation.brokers, REPLICAS)
        _run(
            simulation,
            topics,
            [*clients, administrator],
            lambda: (history.commits, history.copies, history.reads),
        )
        for client in clients:
            if isinstance(client, ScriptedClient):
                client.is_draining = True
        # Open transactions complete or time out.
        simulation.scheduler.run_for(4 * TIMEOUT_MS / 1000)
        simulation.clients.stop()
        simulation.wait_until_in_sync()
        simulation.check(_verify_transactions(simulation.clients, history))
        simulation.invariants.partitions.check_all()
        found = Counter(
            attempts=len(history.attempts),
            commits=history.commits,
            copies=history.copies,
            reads=history.reads,
            reassignments=administrator.reassignments,
        )
        return _result(seed, simulation, found)


def _run(
    simulation: ClusterSimulation,
    topics: dict[str, int],
    clients: list[SimClient],
    counts: Callable[[], tuple[int, ...]],
    configs: Mapping[str, str] | None = None,
) -> None:
    """Run the clients through all faults, and until each kind of them makes progress afterwards."""
    simulation.start()
    for name, partitions in topics.items():
        simulation.check(create_topic(simulation.clients, partitions, name, REPLICAS, configs))
    if simulation.shape.is_dynamic:
        # Two of them: a change may be requested before the last one is committed.
        clients = [*clients, *(VoterAdministrator(simulation.shape.voters_min) for _ in range(2))]
    for client in clients:
        simulation.clients.run_client(client)
    simulation.scheduler.run_for(WARM_UP_SECONDS)
    simulation.run_faults()
    before = counts()

    def has_progressed() -> bool:
        return all(now > then for now, then in zip(counts(), before, strict=True))

    simulation.wait(
        has_progressed,
        SETTLE_SECONDS_MAX,
        lambda: f"no progress after all faults have ended: {before} became {counts()}",
    )


async def _check_logs(world: World, history: History, producers: Sequence[Producer | KeyedProducer]) -> None:
    for partition in range(PARTITIONS):
        log = await whole_log(world, partition)
        history.check_log(partition, log)
        for producer in producers:
            if producer.partition == partition:
                history.check_producer(producer.name, log, producer.sent)


SIMULATIONS: dict[str, Callable[..., ClusterResult]] = {
    "records": simulate_records,
    "keys": simulate_keys,
    "transactions": simulate_transactions,
}
"""By the name of their workload."""


async def _verify_transactions(world: World, history: TransactionHistory) -> None:
    while True:
        try:
            await verify(world, history)
            return
        except ConnectionLost:
            continue


def _result(seed: int, simulation: ClusterSimulation, counts: "Counter[str]") -> ClusterResult:
    return ClusterResult(
        seed,
        simulation.shape.nodes,
        simulation.shape.policy,
        simulation.cluster.trace.digest,
        simulation.scheduler.now,
        simulation.invariants.partitions.elections,
        simulation.invariants.quorum.elections,
        simulation.faults.counts,
        counts + simulation.invariants.quorum.voter_changes,
    )
