"""Run simulations by seed: exit status 0 if all guarantees hold, 1 with the seed of the first violation."""

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable

from runnel.sim.txn_workload import TransactionWorkloadResult, simulate_transactions
from runnel.sim.workload import WorkloadResult, simulate

WORKLOADS: dict[str, Callable[[int], WorkloadResult | TransactionWorkloadResult]] = {
    "records": simulate,
    "transactions": simulate_transactions,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m runnel.sim", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=200, help="number of simulations per workload (default 200)"
    )
    parser.add_argument("--first", type=int, default=1, help="first seed (default 1)")
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--workload", choices=WORKLOADS, help="run this workload only")
    options = parser.parse_args()
    seeds = (
        [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    )
    started = time.monotonic()
    total: Counter[str] = Counter()
    for seed in seeds:
        for workload in [options.workload] if options.workload else WORKLOADS:
            try:
                result = WORKLOADS[workload](seed)
            except Exception:  # noqa: BLE001 - any failure is reported with its seed
                traceback.print_exc()
                command = f"python -m runnel.sim --workload {workload} --seed {seed}"
                print(f"seed {seed} failed; reproduce with: {command}")
                return 1
            count(result, total)
            if options.seed is not None:
                print(result)
    print(", ".join(f"{number} {what}" for what, number in total.items()), end="")
    print(f": no violation, {time.monotonic() - started:.0f} s")
    return 0


def count(result: WorkloadResult | TransactionWorkloadResult, total: Counter[str]) -> None:
    total["simulations"] += 1
    total["shutdowns"] += len(result.shutdowns)
    if isinstance(result, WorkloadResult):
        total["records acknowledged"] += result.acknowledged
    else:
        total["transactions committed"] += result.commits
        total["transactions not committed"] += result.attempts - result.commits


if __name__ == "__main__":
    sys.exit(main())
