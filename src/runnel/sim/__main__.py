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

from runnel.sim.txn_workload import TransactionWorkloadResult, simulate_transactions
from runnel.sim.workload import WorkloadResult, simulate

Result = WorkloadResult | TransactionWorkloadResult

WORKLOADS: dict[str, Callable[[int], Result]] = {
    "records": simulate,
    "transactions": simulate_transactions,
}

PROGRESS_INTERVAL_S = 30


@dataclass(frozen=True, slots=True)
class Simulation:
    """One workload with one seed, and its result, or the traceback of its violation."""

    workload: str
    seed: int
    result: Result | None = None
    violation: str = ""

    def run(self) -> "Simulation":
        try:
            return Simulation(self.workload, self.seed, WORKLOADS[self.workload](self.seed))
        except Exception:  # noqa: BLE001 - any failure is reported with its seed
            return Simulation(self.workload, self.seed, violation=traceback.format_exc())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m runnel.sim", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=200, help="number of simulations per workload (default 200)"
    )
    parser.add_argument("--first", type=int, default=1, help="first seed (default 1)")
    parser.add_argument(
        "--seed", type=int, help="run this seed only; prints the broker's warnings and the result"
    )
    parser.add_argument("--workload", choices=WORKLOADS, help="run this workload only")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help=f"parallel processes (default {cores})")
    options = parser.parse_args()
    is_single = options.seed is not None
    seeds = [options.seed] if is_single else range(options.first, options.first + options.seeds)
    workloads = [options.workload] if options.workload else list(WORKLOADS)
    simulations = [Simulation(workload, seed) for seed, workload in itertools.product(seeds, workloads)]
    started_s = time.monotonic()
    total: Counter[str] = Counter()
    finished = run_one_by_one(simulations) if is_single else run_in_parallel(simulations, options.jobs)
    for simulation in with_progress(finished, len(simulations)):
        if simulation.result is None:
            command = f"python -m runnel.sim --workload {simulation.workload} --seed {simulation.seed}"
            print(simulation.violation, f"seed {simulation.seed} failed; reproduce with: {command}", sep="\n")
            return 1
        count(simulation.result, total)
        if is_single:
            print(simulation.result)
    print(", ".join(f"{number} {what}" for what, number in total.items()), end="")
    print(f": no violation, {time.monotonic() - started_s:.0f} s")
    return 0


def run_one_by_one(simulations: Iterable[Simulation]) -> Iterator[Simulation]:
    return map(Simulation.run, simulations)


def run_in_parallel(simulations: Iterable[Simulation], jobs: int) -> Iterator[Simulation]:
    """Yields in the order of the seeds, without the broker's warnings: they report the injected faults."""
    with ProcessPoolExecutor(max(jobs, 1), initializer=logging.disable, initargs=(logging.WARNING,)) as pool:
        try:
            yield from pool.map(Simulation.run, simulations)
        finally:
            pool.shutdown(cancel_futures=True)


def with_progress(simulations: Iterator[Simulation], total: int) -> Iterator[Simulation]:
    reported_s = time.monotonic()
    for number, simulation in enumerate(simulations, 1):
        yield simulation
        if time.monotonic() - reported_s >= PROGRESS_INTERVAL_S:
            reported_s = time.monotonic()
            print(f"{number} of {total} simulations", file=sys.stderr, flush=True)


def count(result: Result, total: Counter[str]) -> None:
    total["simulations"] += 1
    total["shutdowns"] += len(result.shutdowns)
    if isinstance(result, WorkloadResult):
        total["records acknowledged"] += result.acknowledged
    else:
        total["transactions committed"] += result.commits
        total["transactions not committed"] += result.attempts - result.commits


if __name__ == "__main__":
    sys.exit(main())
