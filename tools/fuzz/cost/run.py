"""The whole measurement: every API, its worst case, and the page that shows them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from runnel.broker.apis.handlers import APIS
from tools.crash.rounds import Progress, no_progress
from tools.fuzz.cost.cases import Bounds, Case, cases, frame_of
from tools.fuzz.cost.measure import Cost, MeasuredBroker, cost_of
from tools.fuzz.cost.population import Population, populate, topic_ids
from tools.fuzz.cost.values import Fill, Values

PAUSE_MS_MAX = 100.0
REPEATS = 3
"""A case that exceeds the bound is tried again: other programs and garbage collection are not its fault."""
TIMEOUT_S = 3.0
LAST = (19, 37, 42, 47, 20)
"""APIs that create or delete what the others need."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and against how large a broker."""

    population: Population = field(default_factory=Population)
    bounds: Bounds = field(default_factory=Bounds)
    is_quick: bool = False
    """Only the newest version, and arrays filled in one way."""
    api_keys: tuple[int, ...] = tuple(sorted(APIS, key=lambda key: LAST.index(key) + 1 if key in LAST else 0))


def measure_costs(folder: Path, plan: Plan, measured: list[Cost], progress: Progress = no_progress) -> None:
    """Add the costs of all cases, API by API, so that an interrupted run keeps those that are done."""
    asyncio.run(_measure(folder, plan, measured, progress))


async def _measure(folder: Path, plan: Plan, measured: list[Cost], progress: Progress) -> None:
    data_dir = folder / "data"
    async with MeasuredBroker(data_dir) as broker:
        await populate(broker.port, plan.population)
    progress(f"{plan.population.partitions} partitions and {plan.population.groups} groups created")
    # Restarted with this data, like a broker that has run for long.
    async with MeasuredBroker(data_dir) as broker:
        ids = await topic_ids(broker.port, plan.population.topics)
        for api_key in plan.api_keys:
            values = Values(plan.population, ids, Fill.EXISTING)
            costs = [
                await _worst_of_one(broker, case, values, plan.bounds, number)
                for number, case in enumerate(cases(api_key, plan.bounds))
                if not plan.is_quick or _is_in_quick_run(case)
            ]
            costs.sort(key=lambda cost: cost.cpu_ms, reverse=True)
            progress(f"{costs[0].cpu_ms:7.1f} ms  {costs[0].case}")
            measured += costs


def _is_in_quick_run(case: Case) -> bool:
    shape = case.shape
    is_plain_array = shape.fill is Fill.EXISTING and not shape.numbers
    return case.version == APIS[case.api_key].version_max and (is_plain_array or not shape.counts)


async def _worst_of_one(
    broker: MeasuredBroker, case: Case, values: Values, bounds: Bounds, number: int
) -> Cost:
    """The cost of a case: the least of several tries where the first is above the bound."""
    tries: list[Cost] = []
    while not tries or (tries[-1].cpu_ms > PAUSE_MS_MAX and len(tries) < REPEATS):
        named = Values(
            values.population, values.ids, values.fill, f"new-{case.api_key}-{number}-{len(tries)}"
        )
        fitted, frame = frame_of(case, named, bounds)
        tries.append(await cost_of(broker, fitted, frame, TIMEOUT_S))
    return min(tries, key=lambda cost: cost.cpu_ms)


def worst_by_api(costs: Iterable[Cost]) -> list[Cost]:
    """The most expensive case of each API, in the order of their keys."""
    worst: dict[int, Cost] = {}
    for cost in costs:
        known = worst.get(cost.case.api_key)
        if known is None or cost.cpu_ms > known.cpu_ms:
            worst[cost.case.api_key] = cost
    return [worst[api_key] for api_key in sorted(worst)]
