"""Simulation of consumer groups: crashes, power failures, full disk, lost connections, leaving members.

One seed is one simulation of the shipped broker.
"""

from random import Random

import pytest

from runnel.sim.clients import create_topic
from runnel.sim.group_clients import PARTITIONS, Ledger, Member
from runnel.sim.simulation import Simulation
from tests.broker.simulated_runs import run_clients, run_until_shutdown

MEMBERS = 4
RESTARTS = 5
SETTLE_SECONDS_MAX = 60.0


@pytest.mark.parametrize("seed", range(4))
def test_groups_hold_their_guarantees_through_crashes(seed: int) -> None:
    random = Random(seed)
    policy = random.choice(["commit", "never"])
    settings = {"log.flush.policy": policy, "group.min.session.timeout.ms": "100"}
    simulation = Simulation(random.getrandbits(64), settings=settings)
    ledger = Ledger()
    members = [Member(f"m{number}", ledger) for number in range(MEMBERS)]
    simulation.run_broker(lambda incarnation: create_topic(incarnation, len(PARTITIONS)))
    # Without a flush before the acknowledgement, a power failure may lose acknowledged records, as in Kafka.
    shutdown_kinds = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    for _ in range(RESTARTS):
        run_until_shutdown(simulation, members, random, shutdown_kinds)

    before = ledger.assignments
    deadlines: list[float] = []

    def is_settled(now: float) -> bool:
        if not deadlines:
            deadlines.append(now + SETTLE_SECONDS_MAX)
        assert now < deadlines[0], "no progress"
        generations = {member.generation for member in members}
        owned = [member.owned or set() for member in members]
        return (
            ledger.assignments > before
            and len(generations) == 1
            and sum(map(len, owned)) == len(PARTITIONS) == len(set().union(*owned))
        )

    simulation.run_broker(lambda incarnation: run_clients(incarnation, members, is_settled))
