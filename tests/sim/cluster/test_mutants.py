"""Mutants: one is detected here, all by `make sim`."""

import pytest

from runnel.sim.cluster.mutants import MUTANTS
from runnel.sim.cluster.workloads import SIMULATIONS
from runnel.sim.history import Anomaly


def test_every_safety_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS.values()} == set(range(1, 15))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_undone(name: str) -> None:
    mutant = MUTANTS[name]
    before = [vars(target)[attribute] for target, attribute, _ in mutant.patches]
    with mutant.applied():
        for (target, attribute, _), original in zip(mutant.patches, before, strict=True):
            assert vars(target)[attribute] is not original
    assert [vars(target)[attribute] for target, attribute, _ in mutant.patches] == before


@pytest.mark.parametrize(
    ("name", "seed", "anomaly"),
    [
        ("unsynced-vote", 1, "n3 has voted for n1 in epoch 1, its disk has"),
        ("unsynced-snapshot", 1, "there is no snapshot of that"),
        ("fewer-internal-replicas", 2, "has only the replicas"),
        ("marker-before-decision", 1, "a transaction that is not prepared for that"),
    ],
)
def test_a_mutant_is_detected(name: str, seed: int, anomaly: str) -> None:
    mutant = MUTANTS[name]
    with mutant.applied(), pytest.raises(Anomaly, match=anomaly):
        SIMULATIONS[mutant.workload](seed, None, mutant.shape)
