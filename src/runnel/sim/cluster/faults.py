"""Faults of nodes, disks, clocks and the network: each begins at some node, and ends after a while.

A fault is aimed at a role: the controller, the leader of a partition, one of its followers, or the
coordinator of a group or transaction. Some are aimed at a moment as well (`moments`): they are counted when
a node reaches it and ends there. Kinds that destroy data are limited to one node per simulation, and power
cuts to simulations in which acknowledged records are synced: more would rightly lose records. For the same
reason no process ends while the replicas of a node whose data was destroyed still count as in sync, and no
data is destroyed while another node lacks metadata: both could elect a controller without committed records.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import permutations, product
from random import Random

from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.damage import damageable, verifiable
from runnel.sim.cluster.moments import MOMENTS, Ambush
from runnel.sim.cluster.node import SimNode
from runnel.sim.cluster.targets import Targets
from runnel.sim.files import CAPACITY_BYTES, SimFiles

CALM_SECONDS_MAX = 3.0
"""Upper bound of the time between the beginnings of two faults."""
ACTIVE_MAX = 3
"""How many faults overlap at most."""
CLOCK_JUMP_MS_MAX = 1_800_000
"""Less than message.timestamp.after.max.ms: a record from further ahead is rightly rejected."""
OPERATIONS_MAX = 300
"""A process that is killed in a file operation is killed in one of this many."""
SLOWNESS_MAX = 200.0
"""Of a disk: a sync takes up to four seconds."""
DELAY_FACTOR_MAX = 300.0
LOSS_CHANCE = 0.02
LATE_CHANCE = 0.05
FREE_BYTES_MAX = 5_000
"""Space that is left on a disk that becomes full."""

AMBUSH_SECONDS = 4.0
"""How long after its provocation a moment is waited for."""
DOWN_SECONDS_MAX = 1.5
"""How long a node that was ended at a moment is down at most."""

Heal = Callable[[], None]


class Faults:
    """Injects faults, counts them by kind, and ends them."""

    def __init__(self, cluster: Cluster, random: Random, kinds: Sequence[str], targets: Targets) -> None:
        self.counts: Counter[str] = Counter()
        self.on_disk_replaced: Callable[[SimNode], None] = lambda node: None
        """Called when a node gets other files than it had."""
        self._cluster = cluster
        self._random = random
        self._kinds = kinds
        self._targets = targets
        self._loop = cluster.scheduler.process("faults")
        self._task: asyncio.Task[None] | None = None
        self._active: dict[int, tuple[str, Heal]] = {}
        """Number → kind, and what ends the fault."""
        self._begun = 0
        self._victim: SimNode | None = None
        """The one node whose data may be destroyed."""
        self._is_destroyed = False
        self._old_files: SimFiles | None = None
        """A copy of the victim's disk."""
        self._ambushes: dict[Ambush, None] = {}

    def start(self, seconds: float) -> None:
        """Inject faults for this time."""
        self._victim = self._random.choice(list(self._cluster.nodes.values()))
        self._loop.call_later(self._random.random() * seconds / 2, self._copy_disk)
        self._task = self._loop.create_task(self._run(seconds))

    def heal_all(self) -> None:
        """End all faults; all nodes run afterwards."""
        if self._task is not None:
            self._task.cancel()
        for number in list(self._active):
            self._end(number)
        for ambush in list(self._ambushes):
            self._disarm(ambush)
        for node in self._cluster.nodes.values():
            if node.is_stopping:
                node.kill()
            restart(node)

    async def _run(self, seconds: float) -> None:
        deadline = self._loop.time() + seconds
        while True:
            await asyncio.sleep(self._random.random() ** 2 * CALM_SECONDS_MAX)
            if self._loop.time() > deadline:
                return
            if len(self._active) < ACTIVE_MAX:
                self._begin()

    def _begin(self) -> None:
        kind = self._random.choice(self._kinds)
        role, node = self._targets.pick()
        seconds_max, inject = KINDS[kind]
        if (kind in ENDINGS and self._is_victim_away()) or (kind in DESTRUCTIVE and not self._may_destroy()):
            return
        heal = inject(self, node)
        if heal is None:
            return
        if kind not in AIMED:
            self.counts[kind] += 1
        self._begun += 1
        number = self._begun
        seconds = self._random.random() ** 2 * seconds_max
        self._cluster.trace.add("faults", f"{kind} of {role} {node.host} for {seconds:.2f} s")
        self._active[number] = kind, heal
        self._loop.call_later(seconds, self._end, number)

    def _end(self, number: int) -> None:
        ended = self._active.pop(number, None)
        if ended is not None:
            ended[1]()

    def _is_victim_away(self) -> bool:
        """Does the cluster not know yet that a node has lost its data?"""
        return (
            self._is_destroyed and self._victim is not None and not self._targets.is_registered(self._victim)
        )

    def _may_destroy(self) -> bool:
        """May the victim lose its data now?"""
        assert self._victim is not None
        return not self._is_any_ending() and self._targets.have_metadata_of(self._victim)

    def _is_any_ending(self) -> bool:
        """Does another node end now or soon, or does the cluster not know yet that it has?"""
        others = (node for node in self._cluster.nodes.values() if node is not self._victim)
        return (
            bool(self._ambushes)
            or any(kind in ENDINGS for kind, _ in self._active.values())
            or not all(map(self._targets.is_registered, others))
        )

    # Processes.

    def kill(self, node: SimNode) -> Heal | None:
        """SIGKILL, and a restart."""
        if not node.is_running:
            return None
        node.kill()
        return lambda: restart(node)

    def kill_all(self, node: SimNode) -> Heal:
        """SIGKILL of all nodes, and a restart."""
        for each in self._cluster.running_nodes():
            each.kill()
        return self._restart_all

    def kill_in_operation(self, node: SimNode) -> Heal | None:
        """SIGKILL in the middle of a file operation, also during recovery, truncation or a snapshot."""
        if not node.is_running:
            return None
        node.files.power_failure_at = node.files.operations + self._random.randint(1, OPERATIONS_MAX)

        def heal() -> None:
            if node.is_running:
                node.files.power_failure_at = -1
            restart(node)

        return heal

    def stop(self, node: SimNode) -> Heal | None:
        """A controlled stop, and a restart."""
        if not node.is_running:
            return None
        process = node.process
        node.stop()

        def heal() -> None:
            if node.process is process:
                node.kill()
            restart(node)

        return heal

    def pause(self, node: SimNode) -> Heal | None:
        """SIGSTOP and SIGCONT."""
        process = node.process
        if process is None or process.loop.backlog is not None:
            return None
        process.loop.pause()
        return process.loop.resume

    def end_at(self, node: SimNode, *, kind: str, moment: str, end: Callable[[SimNode], None]) -> Heal | None:
        """Provoke a moment, and end the process that reaches it first."""

        def reached(reached_by: SimNode) -> None:
            self.counts[kind] += 1
            self._ambushes.pop(ambush, None)
            self._cluster.trace.add("faults", f"{kind}: {reached_by.host}")
            end(reached_by)
            self._loop.call_later(self._random.random() * DOWN_SECONDS_MAX, restart, reached_by)

        provoke = PROVOCATIONS.get(moment, Faults.wait)
        provoked = provoke(self, node)
        if provoked is None:
            return None
        ambush = Ambush(self._cluster.nodes.values(), MOMENTS[moment], self._random, reached)
        self._ambushes[ambush] = None

        def heal() -> None:
            provoked()
            self._loop.call_later(AMBUSH_SECONDS, self._disarm, ambush)

        return heal

    def wait(self, node: SimNode) -> Heal:
        """Nothing."""
        return lambda: None

    def _disarm(self, ambush: Ambush) -> None:
        self._ambushes.pop(ambush, None)
        ambush.disarm()

    # The network.

    def isolate(self, node: SimNode) -> Heal:
        """A node reaches no other node."""
        return self._separate([node.host], self._others(node))

    def divide(self, node: SimNode) -> Heal:
        """The nodes are divided into two halves."""
        hosts = self._shuffled_hosts()
        return self._separate(hosts[: len(hosts) // 2], hosts[len(hosts) // 2 :])

    def cut_one_way(self, node: SimNode) -> Heal:
        """A node cannot send to other nodes, or cannot receive from them."""
        pairs = list(product([node.host], self._others(node)))
        if self._random.random() < 0.5:
            pairs = [(target, source) for source, target in pairs]
        return self._cluster.network.block(pairs)

    def bridge(self, node: SimNode) -> Heal:
        """Two halves that reach each other through one node only, which reaches all."""
        hosts = [host for host in self._shuffled_hosts() if host != node.host]
        return self._separate(hosts[: len(hosts) // 2], hosts[len(hosts) // 2 :])

    def slow_network(self, node: SimNode) -> Heal:
        """Everything from and to a node takes long."""
        factor = 1 + self._random.random() ** 2 * DELAY_FACTOR_MAX
        factors = self._cluster.network.delay_factors
        pairs = [pair for pair in permutations(self._cluster.network.hosts, 2) if node.host in pair]
        factors.update(dict.fromkeys(pairs, factor))

        def heal() -> None:
            for pair in pairs:
                factors.pop(pair, None)

        return heal

    def lose_connections(self, node: SimNode) -> Heal:
        """Connections are lost, before or after a request was served."""
        network = self._cluster.network
        network.loss_chance = LOSS_CHANCE

        def heal() -> None:
            network.loss_chance = 0.0

        return heal

    def delay_requests(self, node: SimNode) -> Heal:
        """Requests of nodes arrive late, after they were repeated on another connection."""
        chances = self._cluster.network.late_chances
        pairs = list(permutations((each.host for each in self._cluster.nodes.values()), 2))
        chances.update(dict.fromkeys(pairs, LATE_CHANCE))
        return chances.clear

    # Clocks and disks.

    def jump_clock(self, node: SimNode) -> Heal:
        """The wall clock jumps forwards or backwards."""
        node.clock.offset_ms = self._random.randint(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)
        return lambda: None

    def slow_disk(self, node: SimNode) -> Heal:
        """File operations of threads take much longer."""
        node.disk_slowness = 1 + self._random.random() ** 2 * SLOWNESS_MAX

        def heal() -> None:
            node.disk_slowness = 1.0

        return heal

    def fill_disk(self, node: SimNode) -> Heal:
        """The disk becomes full."""
        total, free = node.files.space_bytes("/")
        node.files.capacity_bytes = total - free + self._random.randint(0, FREE_BYTES_MAX)

        def heal() -> None:
            node.files.capacity_bytes = CAPACITY_BYTES

        return heal

    def cut_power(self, node: SimNode) -> Heal:
        """A machine loses power."""
        node.cut_power()
        return lambda: restart(node)

    def cut_all_power(self, node: SimNode) -> Heal:
        """All machines lose power."""
        for each in self._cluster.nodes.values():
            each.cut_power()
        return self._restart_all

    # Destroyed data, of one node only.

    def cut_power_of_victim(self, node: SimNode) -> Heal | None:
        """A machine loses power, and with it what was acknowledged but not synced: always the same one."""
        return self.cut_power(self._take_victim(node))

    def damage(self, node: SimNode) -> Heal | None:
        """A bit of a file flips, or its end is lost, while the node is down."""
        node = self._take_victim(node)
        node.kill()
        power_may_fail = not set(POWER_CUTS).isdisjoint(self._kinds)
        others_may_restart = not set(ENDINGS).isdisjoint(self._kinds)
        is_flip = self._random.random() < 0.5
        is_truncated = power_may_fail if is_flip else others_may_restart
        sizes_bytes = damageable(node.files, is_truncated=is_truncated)
        if sizes_bytes:
            path = self._random.choice(list(sizes_bytes))
            position = self._random.randrange(sizes_bytes[path])
            if is_flip:
                if others_may_restart:
                    position = verifiable(node.files, path, position)
                self._cluster.trace.add("faults", f"bit {position * 8} of {node.host} {path} flips")
                node.files.flip_bit(path, position, self._random.randrange(8))
            else:
                self._cluster.trace.add("faults", f"{node.host} {path} is cut to {position}")
                node.files.cut(path, position)
        self.on_disk_replaced(node)
        return lambda: restart(node)

    def empty_disk(self, node: SimNode) -> Heal | None:
        """A node returns with an empty disk."""
        return self._replace_disk(self._take_victim(node), SimFiles())

    def old_disk(self, node: SimNode) -> Heal | None:
        """A node returns with the files that it had some time ago."""
        old, self._old_files = self._old_files, None
        return None if old is None else self._replace_disk(self._take_victim(node), old)

    def _replace_disk(self, node: SimNode, files: SimFiles) -> Heal:
        node.kill()
        node.files = files
        self.on_disk_replaced(node)
        return lambda: restart(node)

    def _copy_disk(self) -> None:
        if self._victim is not None and "old disk" in self._kinds:
            self._old_files = self._victim.files.copied()

    def _take_victim(self, node: SimNode) -> SimNode:
        assert self._victim is not None
        self._is_destroyed = True
        return self._victim

    # Hosts.

    def _separate(self, some: list[str], others: list[str]) -> Heal:
        return self._cluster.network.block([*product(some, others), *product(others, some)])

    def _others(self, node: SimNode) -> list[str]:
        return [other.host for other in self._cluster.nodes.values() if other is not node]

    def _shuffled_hosts(self) -> list[str]:
        hosts = [node.host for node in self._cluster.nodes.values()]
        self._random.shuffle(hosts)
        return hosts

    def _restart_all(self) -> None:
        for node in self._cluster.nodes.values():
            restart(node)


def restart(node: SimNode) -> None:
    """Start a node, unless it runs."""
    if not node.is_running:
        node.start()


Inject = Callable[[Faults, SimNode], Heal | None]

PROVOCATIONS: dict[str, Inject] = {
    "recovery": Faults.kill,
    "truncation": Faults.isolate,
    "a snapshot fetch": Faults.kill,
}
"""Moment → what makes it likely; others occur often enough."""

AIMED = {
    f"{name} in {moment}": (moment, end)
    for name, end in (("kill", SimNode.kill), ("power cut", SimNode.cut_power))
    for moment in MOMENTS
}
"""Kind → at which moment a process ends, and how."""

KINDS: dict[str, tuple[float, Inject]] = {
    "kill": (3.0, Faults.kill),
    "kill of all": (2.0, Faults.kill_all),
    "kill in a file operation": (4.0, Faults.kill_in_operation),
    "stop": (4.0, Faults.stop),
    "pause": (6.0, Faults.pause),
    "isolation": (8.0, Faults.isolate),
    "division": (8.0, Faults.divide),
    "one-way partition": (8.0, Faults.cut_one_way),
    "bridge partition": (8.0, Faults.bridge),
    "slow network": (4.0, Faults.slow_network),
    "lost connections": (4.0, Faults.lose_connections),
    "late requests": (4.0, Faults.delay_requests),
    "clock jump": (0.0, Faults.jump_clock),
    "slow disk": (4.0, Faults.slow_disk),
    "full disk": (3.0, Faults.fill_disk),
    "power cut": (3.0, Faults.cut_power),
    "power cut of all": (2.0, Faults.cut_all_power),
    "power cut of one node": (3.0, Faults.cut_power_of_victim),
    "damaged disk": (2.0, Faults.damage),
    "empty disk": (2.0, Faults.empty_disk),
    "old disk": (2.0, Faults.old_disk),
    **{
        kind: (6.0, partial(Faults.end_at, kind=kind, moment=moment, end=end))
        for kind, (moment, end) in AIMED.items()
    },
}
"""Kind → how long it lasts at most, and what it does."""

VOTER_CHANGES = tuple(kind for kind, (moment, _) in AIMED.items() if moment == "a voter change")
"""Where voters are changed."""
POWER_CUTS = (
    "power cut",
    "power cut of all",
    *(kind for kind, (_, end) in AIMED.items() if end is SimNode.cut_power),
)
DAMAGE = "damaged disk"
DESTRUCTIVE = (DAMAGE, "empty disk", "old disk")
LOSSY = "power cut of one node"
"""Where acknowledged records are not synced."""
RESTARTS = (
    "kill",
    "kill of all",
    "kill in a file operation",
    "stop",
    *(kind for kind, (_, end) in AIMED.items() if end is SimNode.kill),
)
"""Kinds that end processes, and leave what they have written in the page cache."""
ENDINGS = (*RESTARTS, *POWER_CUTS)
"""Kinds after which a replica is not known to have all its records."""


def choose_kinds(random: Random, kinds: Iterable[str], rare: str = "") -> list[str]:
    """Some of the kinds: simulations with few kinds reach other states than those with many.

    One that is possible in few simulations is chosen with few others, so that it occurs in these.
    """
    known = list(kinds)
    if rare:
        return [rare, *random.sample(known, random.randint(0, 3))]
    return known if random.random() < 0.3 else random.sample(known, random.randint(1, min(5, len(known))))
