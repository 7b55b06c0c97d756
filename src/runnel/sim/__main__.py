"""Run simulations by seed: exit status 0 if all guarantees hold, 1 with the seed of the first violation."""

import argparse
import itertools
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from runnel.sim.cluster.mutants import MUTANTS
from runnel.sim.cluster.workloads import SIMULATIONS, ClusterResult
from runnel.sim.txn_workload import TransactionWorkloadResult, simulate_transactions
from runnel.sim.workload import WorkloadResult, simulate

Run = TypeVar("Run")

Result = WorkloadResult | TransactionWorkloadResult | ClusterResult

SINGLE_NODE: dict[str, Callable[[int], Result]] = {
    "records": simulate,
    "transactions": simulate_transactions,
}

CLUSTER = {f"cluster-{workload}": simulate for workload, simulate in SIMULATIONS.items()}

SINGLE_NODE_SEEDS_MAX = 200
"""Of each workload of a single node, unless one is selected."""

MUTANT_SEEDS_MAX = 40
"""A mutant must be detected by one of so many simulations."""

PROGRESS_INTERVAL_S = 30


@dataclass(frozen=True, slots=True)
class Simulation:
    """One workload with one seed, and its result, or the traceback of its violation."""

    workload: str
    seed: int
    is_shown: bool = False
    result: Result | None = None
    violation: str = ""

    def run(self) -> "Simulation":
        try:
            return Simulation(self.workload, self.seed, result=self._simulate())
        except Exception:  # noqa: BLE001 - any failure is reported with its seed
            return Simulation(self.workload, self.seed, violation=traceback.format_exc())

    def _simulate(self) -> Result:
        if self.workload in SINGLE_NODE:
            return SINGLE_NODE[self.workload](self.seed)
        simulate_cluster = CLUSTER[self.workload]
        return simulate_cluster(self.seed, print) if self.is_shown else simulate_cluster(self.seed)


@dataclass(frozen=True, slots=True)
class MutantRun:
    """A mutant, and the first simulation that detects it. Raises what the simulation finds without it."""

    name: str
    seeds_max: int
    seed: int = -1
    anomaly: str = ""

    def run(self) -> "MutantRun":
        mutant = MUTANTS[self.name]
        simulate_mutant = SIMULATIONS[mutant.workload]
        for seed in range(1, self.seeds_max + 1):
            try:
                with mutant.applied():
                    simulate_mutant(seed, None, mutant.shape)
            except Exception as anomaly:  # noqa: BLE001 - an assertion of the broker detects a mutant, too
                text = f"{type(anomaly).__name__}: {anomaly}"
                # Without the mistake there must be none, or it is not what was detected.
                simulate_mutant(seed, None, mutant.shape)
                return MutantRun(self.name, self.seeds_max, seed, text)
        return self

    def show(self) -> None:
        """Print the outcome."""
        if self.seed < 0:
            print(f"mutant {self.name}: not caught in {self.seeds_max} simulations", flush=True)
        else:
            print(f"mutant {self.name}: caught by {self.anomaly[:300]} at seed {self.seed}", flush=True)


def run_mutants(names: Iterable[str], jobs: int) -> int:
    """Each mutant, until it is caught; 1 if one of them never is."""
    runs = [MutantRun(name, MUTANT_SEEDS_MAX) for name in names]
    survivors = 0
    for run in run_in_parallel(MutantRun.run, runs, jobs):
        run.show()
        survivors += run.seed < 0
    print(f"{len(runs)} mutants, {survivors} of them not caught")
    return int(survivors > 0)


def main() -> int:
    options = parse_arguments()
    if options.mutant:
        return run_mutants([options.mutant], 1)
    if options.mutants:
        return run_mutants(MUTANTS, options.jobs)
    is_single = options.seed is not None
    simulations = list(selected(options))
    started_s = time.monotonic()
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    finished = (
        run_one_by_one(simulations)
        if is_single
        else run_in_parallel(Simulation.run, simulations, options.jobs)
    )
    for simulation in with_progress(finished, len(simulations)):
        if simulation.result is None:
            command = f"python -m runnel.sim --workload {simulation.workload} --seed {simulation.seed}"
            print(simulation.violation, f"seed {simulation.seed} failed; reproduce with: {command}", sep="\n")
            return 1
        count(simulation.result, total, faults)
        if is_single:
            print(simulation.result)
    if faults:
        print("faults:", ", ".join(f"{number} {kind}" for kind, number in faults.most_common()))
    print(", ".join(f"{number} {what}" for what, number in total.items()), end="")
    print(f": no violation, {time.monotonic() - started_s:.0f} s")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runnel.sim", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=500, help="number of simulations per workload (default 500)"
    )
    parser.add_argument("--first", type=int, default=1, help="first seed (default 1)")
    parser.add_argument(
        "--seed", type=int, help="run this seed only; prints its events, the brokers' warnings and the result"
    )
    parser.add_argument("--workload", choices=[*SINGLE_NODE, *CLUSTER], help="run this workload only")
    parser.add_argument("--mutants", action="store_true", help="run all mutants: each must be detected")
    parser.add_argument("--mutant", choices=MUTANTS, help="run this mutant only")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help=f"parallel processes (default {cores})")
    return parser.parse_args()


def selected(options: argparse.Namespace) -> Iterator[Simulation]:
    """The simulations to run."""
    if options.seed is not None:
        for workload in [options.workload] if options.workload else [*SINGLE_NODE, *CLUSTER]:
            yield Simulation(workload, options.seed, is_shown=True)
        return
    seeds = range(options.first, options.first + options.seeds)
    if options.workload:
        yield from (Simulation(options.workload, seed) for seed in seeds)
        return
    for seed, workload in itertools.product(seeds[:SINGLE_NODE_SEEDS_MAX], SINGLE_NODE):
        yield Simulation(workload, seed)
    for seed, workload in itertools.product(seeds, CLUSTER):
        yield Simulation(workload, seed)


def run_one_by_one(simulations: Iterable[Simulation]) -> Iterator[Simulation]:
    return map(Simulation.run, simulations)


def run_in_parallel(run: Callable[[Run], Run], runs: Iterable[Run], jobs: int) -> Iterator[Run]:
    """Yields in the order given, without the brokers' warnings: they report the injected faults."""
    silence = partial(logging.disable, logging.WARNING)
    with ProcessPoolExecutor(max(jobs, 1), initializer=silence) as pool:
        try:
            yield from pool.map(run, runs)
        finally:
            pool.shutdown(cancel_futures=True)


def with_progress(simulations: Iterator[Simulation], total: int) -> Iterator[Simulation]:
    reported_s = time.monotonic()
    for number, simulation in enumerate(simulations, 1):
        yield simulation
        if time.monotonic() - reported_s >= PROGRESS_INTERVAL_S:
            reported_s = time.monotonic()
            print(f"{number} of {total} simulations", file=sys.stderr, flush=True)


def count(result: Result, total: Counter[str], faults: Counter[str]) -> None:
    total["simulations"] += 1
    if isinstance(result, ClusterResult):
        total["cluster histories"] += 1
        total["elections"] += result.elections
        total["elections of controllers"] += result.quorum_elections
        total.update(result.counts)
        faults.update(result.faults)
        return
    total["shutdowns"] += len(result.shutdowns)
    if isinstance(result, WorkloadResult):
        total["records acknowledged"] += result.acknowledged
    else:
        total["transactions committed"] += result.commits
        total["transactions not committed"] += result.attempts - result.commits


if __name__ == "__main__":
    sys.exit(main())
