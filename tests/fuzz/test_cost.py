"""The cost mode in small: which requests it sends, and what it makes of the answers."""

from pathlib import Path

import pytest

from runnel.broker.apis.handlers import APIS
from runnel.messages.registry import api
from runnel.wire.frame import read_request_header
from tools.fuzz.cost.cases import Bounds, Case, Shape, cases, enveloped_cases, frame_of, leaves
from tools.fuzz.cost.measure import Cost
from tools.fuzz.cost.page import page
from tools.fuzz.cost.population import Population
from tools.fuzz.cost.run import Plan, measure_costs, worst_by_api
from tools.fuzz.cost.scenarios import Scenario
from tools.fuzz.cost.values import Fill, Values

SMALL = Population(partitions=200, groups=5, transactional_ids=2, narrow_partitions=10, acls=50, quotas=5)
BOUNDS = Bounds(elements=400, size_bytes=50_000)
METADATA, FETCH, OFFSET_FETCH, LIST_OFFSETS, BROKER_HEARTBEAT, ALTER_PARTITION = 3, 1, 9, 2, 63, 56


def cost(api_key: int, cpu_ms: float, outcome: str = "answered") -> Cost:
    case = Case(api_key, APIS[api_key].version_max, Shape())
    return Cost(Scenario.OPEN, case, 2_000_000, outcome, 1_500, cpu_ms, cpu_ms)


@pytest.mark.parametrize("api_key", APIS)
def test_every_array_text_and_number_is_tried_at_its_largest(api_key: int) -> None:
    request = api(api_key).request
    every = list(cases(api_key, BOUNDS))
    assert {case.version for case in every} == {APIS[api_key].version_min, APIS[api_key].version_max}
    for version in {case.version for case in every}:
        shapes = [case.shape for case in every if case.version == version]
        for leaf in leaves(request, version):
            if leaf.is_array:
                fills = {shape.fill for shape in shapes if list(shape.counts) == [leaf.path]}
                assert fills == set(Fill), leaf.path
            touched = [
                shape for shape in shapes if leaf.path in {**shape.counts, **shape.lengths, **shape.numbers}
            ]
            kind = getattr(leaf.type, "name", "array")
            assert touched or kind in ("bool", "uuid", "float64"), leaf.path


@pytest.mark.parametrize("api_key", [METADATA, FETCH, OFFSET_FETCH])
def test_frames_stay_within_their_bounds(api_key: int) -> None:
    values = Values(SMALL, {}, Fill.EXISTING)
    for case in cases(api_key, BOUNDS):
        fitted, frame = frame_of(case, values, BOUNDS)
        assert len(frame) - 4 <= BOUNDS.size_bytes
        header = read_request_header(memoryview(frame)[4:], {})
        assert (header.api_key, header.api_version) == (fitted.api_key, fitted.version)


def test_elements_that_stand_for_all_there_is_are_tried() -> None:
    """Each is a few bytes long: all offsets of a group, for a full array of groups."""
    tried = [case.shape for case in cases(9, Bounds()) if "groups.topics" in case.shape.nulls]
    assert max(shape.counts.get("groups", 1) for shape in tried) > 20_000


@pytest.mark.parametrize(
    ("scenario", "api_keys"),
    [
        (Scenario.OPEN, (METADATA, LIST_OFFSETS)),
        (Scenario.SECURED, (METADATA, LIST_OFFSETS)),
        (Scenario.CONTROLLER, (ALTER_PARTITION, BROKER_HEARTBEAT)),
    ],
)
def test_a_small_broker_is_measured(tmp_path: Path, scenario: Scenario, api_keys: tuple[int, int]) -> None:
    plan = Plan(SMALL, BOUNDS, scenarios=(scenario,), api_keys=frozenset(api_keys))
    costs: list[Cost] = []
    measure_costs(tmp_path, plan, costs)
    assert {one.case.api_key for one in costs} == set(api_keys)
    assert len(costs) == sum(len(list(plan.cases_of(scenario, api_key))) for api_key in api_keys)
    assert {one.outcome for one in costs} == {"answered"}
    assert all(one.cpu_ms > 0 for one in costs)
    text = page(costs, plan)
    assert f"## {scenario}" in text
    assert all(f"| {one.case.name} v" in text for one in costs)


def test_every_api_is_measured_where_it_is_served() -> None:
    measured = {api_key for scenario in Scenario for api_key in scenario.api_keys}
    assert measured == set(APIS)


def test_requests_that_brokers_forward_are_enveloped() -> None:
    envelopes = list(enveloped_cases(BOUNDS))
    assert {case.inside.api_key for case in envelopes if case.inside} >= {19, 20, 30, 33, 44, 49}
    fitted, frame = frame_of(envelopes[0], Values(SMALL, {}, Fill.EXISTING), BOUNDS)
    assert fitted.inside is not None
    assert read_request_header(memoryview(frame)[4:], {58: 0}).api_key == 58
    assert str(fitted).startswith("Envelope v0: CreateTopics v7: ")


def test_the_page_names_what_exceeds_the_bound() -> None:
    costs = [cost(METADATA, 30), cost(METADATA, 140.4), cost(FETCH, 99, "closed")]
    assert [one.cpu_ms for one in worst_by_api(costs, Scenario.OPEN)] == [99, 140.4]
    text = page(costs, Plan(SMALL, BOUNDS))
    assert "1 APIs exceed the bound of 100 ms: Metadata." in text
    assert "| Metadata v13 | 140 ms | smallest | 2.0 MB | answered with 1.5 kB |" in text
    assert "refused, connection closed" in text
    assert "No request exceeds the bound" in page(costs[:1], Plan(SMALL, BOUNDS))
