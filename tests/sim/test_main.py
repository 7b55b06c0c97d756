"""The command that runs many seeds reports the first violation with the command that reproduces it."""

import sys

import pytest

from runnel.sim import __main__ as command
from runnel.sim.cluster.workloads import SIMULATIONS
from runnel.sim.workload import WorkloadResult


def simulated(seed: int) -> WorkloadResult:
    assert seed < 5, f"offset {seed} was acknowledged and is lost"
    return WorkloadResult(seed, "never", ["kill"], acknowledged=10, reads=0, commits=0)


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setattr(command, "SINGLE_NODE", {"records": simulated})
    monkeypatch.setattr(command, "CLUSTER", {})

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["runnel.sim", *arguments])
        return command.main(), capsys.readouterr().out

    return run


def test_seeds_without_a_violation_are_summed_up(run):
    status, printed = run("--seeds", "4", "--jobs", "2")
    assert status == 0
    assert "4 simulations, 4 shutdowns, 40 records acknowledged: no violation" in printed


def test_the_first_violation_is_reported_with_its_seed(run):
    status, printed = run("--seeds", "20", "--jobs", "2")
    assert status == 1
    assert "offset 5 was acknowledged and is lost" in printed
    assert "python -m runnel.sim --workload records --seed 5" in printed
    assert "no violation" not in printed


def test_a_mutant_is_not_caught_by_what_fails_without_it(run, monkeypatch):
    def fails(seed, show, shape):
        raise AssertionError("offset 5 is lost")

    monkeypatch.setitem(SIMULATIONS, "records", fails)
    with pytest.raises(AssertionError, match="offset 5 is lost"):
        command.MutantRun("wall-clock", 1).run()
