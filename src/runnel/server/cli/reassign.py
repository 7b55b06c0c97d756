"""Reassignments with a throttle and a progress bar, for `runnel cluster` and `runnel topic alter`."""

import asyncio
from dataclasses import dataclass

import typer

from runnel.client.cluster import Cluster
from runnel.client.cluster_admin import BrokerView, ClusterAdmin
from runnel.model.ids import TopicPartition
from runnel.server.balance import Assignments, Location
from runnel.server.cli.confirm import confirm
from runnel.server.cli.options import parse_rate
from runnel.server.cli.output import CommandError, print_info, print_table
from runnel.server.cli.progress import progress

POLL_SECONDS = 0.5
"""How often the state of a reassignment is requested."""


@dataclass(frozen=True, slots=True)
class State:
    """The replicas of all partitions, and the brokers that may have more."""

    assignments: Assignments
    brokers: list[BrokerView]

    @property
    def targets(self) -> dict[int, Location]:
        """The brokers that are not fenced."""
        return {each.node_id: Location(each.rack, each.host) for each in self.brokers if not each.is_fenced}

    def check_known(self, node: int) -> None:
        """Reject the id of a broker that is neither registered nor has replicas."""
        known = {each.node_id for each in self.brokers}
        if node not in known and not any(node in replicas for replicas in self.assignments.values()):
            listed = ", ".join(map(str, sorted(known)))
            raise CommandError(f"node {node} is not a broker of this cluster (brokers: {listed})")


class Reassignment:
    """How a plan is carried out."""

    def __init__(
        self,
        throttle: str | None,
        *,
        waits: bool = True,
        is_dry_run: bool = False,
        is_confirmed: bool = False,
    ) -> None:
        self._rate = None if throttle is None else parse_rate(throttle, "--throttle")
        self._waits = waits
        self._is_dry_run = is_dry_run
        self._is_confirmed = is_confirmed
        self._has_moved = False
        if throttle is not None and not waits:
            raise typer.BadParameter("--throttle has to be removed at the end: remove --no-wait")

    async def load(self, cluster: Cluster) -> State:
        """The current state of the cluster."""
        admin = ClusterAdmin(cluster)
        _, brokers = await admin.describe()
        return State(await admin.assignments(), brokers)

    async def run(self, cluster: Cluster, state: State, plan: Assignments, purpose: str) -> bool:
        """Carry out a plan, and wait until it is done; False if there was nothing to do or to wait for."""
        if not plan:
            if not self._has_moved:
                print_info("nothing to move")
            return False
        moves = sum(len(set(to) - set(state.assignments[each])) for each, to in plan.items())
        if self._is_dry_run:
            _print_plan(state, plan)
            return False
        question = f"{purpose}: move {moves} replicas of {len(plan)} partitions?"
        confirm(question, self._is_confirmed or self._has_moved)
        admin = ClusterAdmin(cluster)
        topics = {each.topic for each in plan}
        if self._rate is not None:
            before = {each: (state.assignments[each], to) for each, to in plan.items()}
            await admin.throttle(before, self._rate)
        try:
            await admin.reassign(plan)
            if self._waits:
                await _wait(admin, plan)
                await admin.elect_preferred(plan)
        finally:
            if self._rate is not None:
                await admin.remove_throttle(topics)
        self._has_moved = True
        return self._waits


async def _wait(admin: ClusterAdmin, plan: Assignments) -> None:
    total = len(plan)
    with progress() as report:
        while True:
            moving = await admin.reassignments()
            left = sum(each in moving for each in plan)
            report("moving partitions", total - left, total)
            if not left:
                return
            await asyncio.sleep(POLL_SECONDS)


def _print_plan(state: State, plan: Assignments) -> None:
    print_table(
        ["partition", "replicas", "planned"],
        [(str(each), _shown(state.assignments, each), _shown(plan, each)) for each in sorted(plan)],
    )


def _shown(assignments: Assignments, partition: TopicPartition) -> str:
    return ",".join(map(str, assignments[partition]))
