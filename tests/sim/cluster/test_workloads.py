"""A few simulations of a cluster in every test run; `make sim` runs hundreds."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from runnel.sim.cluster.workloads import simulate_keys, simulate_records, simulate_transactions
from tools.processes import child


@pytest.mark.parametrize("seed", [4])
def test_acknowledged_records_survive_the_faults_of_a_cluster(seed: int) -> None:
    result = simulate_records(seed)
    assert result.faults
    assert result.counts["acknowledged"] > 0
    assert result.counts["reads"] > 0
    assert result.counts["commits"] > 0


@pytest.mark.parametrize("seed", [3])
def test_records_with_keys_are_stored_once_through_the_faults_of_a_cluster(seed: int) -> None:
    result = simulate_keys(seed)
    assert result.faults
    assert result.counts["acknowledged"] > 0
    assert result.counts["reads"] > 0


@pytest.mark.parametrize("seed", [2])
def test_transactions_are_atomic_through_the_faults_of_a_cluster(seed: int) -> None:
    result = simulate_transactions(seed)
    assert result.faults
    assert result.counts["attempts"] > result.counts["commits"] > 0


def test_equal_seeds_have_equal_traces_in_all_processes() -> None:
    """Sets of strings, bytes and objects have another order in each of these processes."""
    command = "from runnel.sim.cluster.workloads import *; print(simulate_transactions(11).digest)"
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(
                child(
                    [sys.executable, "-c", command],
                    env={**os.environ, "PYTHONHASHSEED": hash_seed},
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for hash_seed in ("1", "2")
        )
        assert one.communicate()[0] == other.communicate()[0] != ""
