"""The whole measurement: every API, its worst case, and the page that shows them."""

import asyncio
import shutil
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from runnel.broker.apis.handlers import APIS
from tools.crash.rounds import Progress, no_progress
from tools.fuzz.cost.cases import ENVELOPE_KEY, Bounds, Case, cases, enveloped_cases, frame_of
from tools.fuzz.cost.measure import Cost, MeasuredBroker, cost_of
from tools.fuzz.cost.population import Population, cluster_id_of, populate, topic_ids
from tools.fuzz.cost.scenarios import CLIENT, Scenario, add_security
from tools.fuzz.cost.values import METADATA_ID, METADATA_TOPIC, QUORUM_APIS, Fill, Values

PAUSE_MS_MAX = 100.0
REPEATS = 3
"""A case that exceeds the bound is tried again: other programs and garbage collection are not its fault."""
TIMEOUT_S = 3.0
FRAMES_AHEAD = 2
"""Building a request takes longer than serving it: another process does so meanwhile."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and against how large a broker."""

    population: Population = field(default_factory=Population)
    bounds: Bounds = field(default_factory=Bounds)
    is_quick: bool = False
    """Only the newest version, and arrays filled in one way."""
    scenarios: tuple[Scenario, ...] = tuple(Scenario)
    api_keys: frozenset[int] | None = None
    """None for all of a scenario."""

    def api_keys_of(self, scenario: Scenario) -> list[int]:
        """The APIs that are measured in a scenario, in this order."""
        return [key for key in scenario.api_keys if self.api_keys is None or key in self.api_keys]

    def cases_of(self, scenario: Scenario, api_key: int) -> Iterator[Case]:
        """The requests of an API that are measured in a scenario."""
        for case in cases(api_key, self.bounds):
            is_planned = not self.is_quick or _is_in_quick_run(case)
            if is_planned and (scenario is not Scenario.SECURED or _is_authorized_by_element(case)):
                yield case
        if api_key == ENVELOPE_KEY:
            yield from enveloped_cases(self.bounds)


def _is_in_quick_run(case: Case) -> bool:
    shape = case.shape
    is_plain_array = shape.fill is Fill.EXISTING and not shape.numbers
    return _is_newest(case) and (is_plain_array or not shape.counts)


def _is_authorized_by_element(case: Case) -> bool:
    """Whether permissions make a difference to its cost: it has an array, or null, which means all."""
    shape = case.shape
    is_array = bool(shape.counts) and not shape.numbers and not shape.lengths
    return _is_newest(case) and (is_array or bool(shape.nulls) or shape == type(shape)())


def _is_newest(case: Case) -> bool:
    return case.version == APIS[case.api_key].version_max


def measure_costs(folder: Path, plan: Plan, measured: list[Cost], progress: Progress = no_progress) -> None:
    """Add the costs of all cases, API by API, so that an interrupted run keeps those that are done."""
    with ProcessPoolExecutor(1) as executor:
        asyncio.run(_measure(folder, plan, measured, executor, progress))


async def _measure(
    folder: Path, plan: Plan, measured: list[Cost], executor: Executor, progress: Progress
) -> None:
    population = plan.population
    populated = folder / "populated"
    async with MeasuredBroker(populated) as broker:
        await populate(broker.client_port, population)
    progress(f"{population.partitions} partitions and {population.groups} groups created")
    for scenario in plan.scenarios:
        if not plan.api_keys_of(scenario):
            continue
        progress(scenario)
        data_dir = folder / scenario.name.lower() / "data"
        shutil.copytree(populated, data_dir)
        if scenario is Scenario.SECURED:
            async with MeasuredBroker(data_dir, scenario, {"super.users": CLIENT}) as broker:
                await add_security(broker.client_port, population)
        # Restarted with this data, like a broker that has run for long.
        async with MeasuredBroker(data_dir, scenario) as broker:
            await _measure_scenario(broker, plan, measured, executor, progress)
        shutil.rmtree(data_dir)


async def _measure_scenario(
    broker: MeasuredBroker, plan: Plan, measured: list[Cost], executor: Executor, progress: Progress
) -> None:
    scenario = broker.scenario
    values = Values(plan.population, {}, Fill.EXISTING)
    if scenario is Scenario.CONTROLLER:
        values = replace(values, broker_epoch=broker.broker_epoch)
    values = replace(
        values,
        ids=await topic_ids(broker.client_port, plan.population.topics),
        cluster_id=await cluster_id_of(broker.client_port),
    )
    for api_key in plan.api_keys_of(scenario):
        named = values
        if scenario is Scenario.CONTROLLER and api_key in QUORUM_APIS:
            named = replace(values, ids={METADATA_TOPIC: METADATA_ID})
        tries = Tries(executor, named, plan.bounds, api_key)
        costs = [
            await tries.least(broker, number, case, frame)
            async for number, case, frame in tries.first(list(plan.cases_of(scenario, api_key)))
        ]
        costs.sort(key=lambda cost: cost.cpu_ms, reverse=True)
        progress(f"{costs[0].cpu_ms:7.1f} ms  {costs[0].case}")
        measured += costs


@dataclass(frozen=True, slots=True)
class Tries:
    """The requests of one API, built by another process."""

    executor: Executor
    values: Values
    bounds: Bounds
    api_key: int

    async def first(self, planned: list[Case]) -> AsyncIterator[tuple[int, Case, bytes]]:
        """The number, the fitted case and the frame of each, a few built ahead."""
        building: deque[asyncio.Future[tuple[Case, bytes]]] = deque()
        for number, case in enumerate(planned):
            building.append(self._build(case, number, 0))
            if len(building) > FRAMES_AHEAD:
                yield number - FRAMES_AHEAD, *await building.popleft()
        for number in range(len(planned) - len(building), len(planned)):
            yield number, *await building.popleft()

    async def least(self, broker: MeasuredBroker, number: int, case: Case, frame: bytes) -> Cost:
        """The cost of a case: the least of several tries where the first is above the bound."""
        tries = [await cost_of(broker, case, frame, TIMEOUT_S)]
        while tries[-1].cpu_ms > PAUSE_MS_MAX and len(tries) < REPEATS:
            case, frame = await self._build(case, number, len(tries))
            tries.append(await cost_of(broker, case, frame, TIMEOUT_S))
        return min(tries, key=lambda cost: cost.cpu_ms)

    def _build(self, case: Case, number: int, attempt: int) -> "asyncio.Future[tuple[Case, bytes]]":
        values = replace(self.values, fresh=f"new-{self.api_key}-{number}-{attempt}")
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self.executor, frame_of, case, values, self.bounds)


def worst_by_api(costs: Iterable[Cost], scenario: Scenario) -> list[Cost]:
    """The most expensive case of each API in a scenario, in the order of their keys."""
    worst: dict[int, Cost] = {}
    for cost in costs:
        known = worst.get(cost.case.api_key)
        if cost.scenario is scenario and (known is None or cost.cpu_ms > known.cpu_ms):
            worst[cost.case.api_key] = cost
    return [worst[api_key] for api_key in sorted(worst)]
