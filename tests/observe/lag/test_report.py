"""Groups as JSON and as metrics."""

import json
from typing import Any

import pytest

from runnel.observe.lag import families as families_module
from runnel.observe.lag import report as module
from runnel.observe.lag.families import LagFamilies
from runnel.observe.lag.report import GroupFacts, evaluation, json_of, page
from tests.observe.lag.groups import World


@pytest.fixture
def world() -> World:
    """Three groups: one is behind, one caught up, and one has no committed offsets."""
    world = World()
    for partition in range(3):
        world.append("orders", partition)
        world.commit("behind", "orders", partition, 1)
        world.commit("caught-up", "orders", partition, 1)
    world.sample()
    for _ in range(60):
        world.now_ms += 1000
        for partition in range(3):
            world.append("orders", partition, partition)
            world.commit("caught-up", "orders", partition, len(world.logs["orders", partition].appended_ms))
        world.sample()
    return world


def evaluate(world: World):
    members = {"behind": 0, "caught-up": 2, "new": 1}

    def evaluated(group_id: str):
        if group_id not in members:
            return None
        facts = GroupFacts(group_id, "Stable", "consumer", members[group_id])
        return (yield from evaluation(facts, world.tracker.groups.get(group_id), world.now))

    return evaluated


IDS = ["new", "caught-up", "behind"]


def answer(world: World, **query: str | list[str]) -> dict:
    lists = {name: value if isinstance(value, list) else [value] for name, value in query.items()}
    text = b"".join(json_of(page(IDS, lists), evaluate(world), {"as_of_ms": 7}))
    found: dict = json.loads(text)
    return found


@pytest.mark.parametrize("slice_size", [1, 2, 500])
def test_json(world, monkeypatch, slice_size):
    monkeypatch.setattr(module, "SLICE", slice_size)
    found = answer(world)
    assert (found["as_of_ms"], found["after"]) == (7, None)
    behind, caught_up, new = found["groups"]
    assert [behind["group"], caught_up["group"], new["group"]] == sorted(IDS)
    assert (behind["lag"], behind["verdict"], behind["forecast"]) == (180, "stopped", "never")
    assert behind["lag_seconds"] == pytest.approx(59.5, abs=1)
    assert behind["partitions"][2] == {
        "topic": "orders",
        "partition": 2,
        "committed": 1,
        "end": 121,
        "lag": 120,
        "lag_seconds": behind["partitions"][2]["lag_seconds"],
        "reason": None,
    }
    assert behind["partitions"][0]["lag_seconds"] == 0
    assert (caught_up["lag"], caught_up["lag_seconds"], caught_up["members"]) == (0, 0, 2)
    assert (caught_up["verdict"], caught_up["forecast"], caught_up["forecast_seconds"]) == (
        "ok",
        "caught up",
        0,
    )
    assert new == {
        "group": "new",
        "state": "Stable",
        "protocol": "consumer",
        "members": 1,
        "lag": None,
        "lag_seconds": None,
        "verdict": "unknown",
        "forecast": "unknown",
        "forecast_seconds": None,
        "unknown": 0,
        "partitions": [],
    }


def test_queries(world):
    assert [group["group"] for group in answer(world, group=["new", "behind", "other"])["groups"]] == [
        "behind",
        "new",
    ]
    first = answer(world, limit="2", partitions="0")
    assert [group["group"] for group in first["groups"]] == ["behind", "caught-up"]
    assert "partitions" not in first["groups"][0]
    rest = answer(world, limit="2", after=first["after"])
    assert ([group["group"] for group in rest["groups"]], rest["after"]) == (["new"], None)
    for limit in ("0", "x", "100000"):
        with pytest.raises(ValueError, match=r"limit|invalid"):
            page(IDS, {"limit": [limit]})


def collected(world: World) -> dict[str, dict[Any, Any]]:
    found = LagFamilies([*IDS, "gone"], evaluate(world), world.tracker.position_count).families()
    return {family.name: dict(family.samples) for family in found if family is not None}


def test_metrics(world):
    found = collected(world)
    behind = (("consumergroup", "behind"), ("topic", "orders"))
    last = (("partition", "2"),)
    assert found["kafka_consumergroup_current_offset"][behind + last] == 1
    assert found["kafka_consumergroup_lag"][behind + last] == 120
    assert found["kafka_consumergroup_lag_sum"][behind] == 180
    assert found["kafka_consumergroup_members"][("consumergroup", "new"),] == 1
    seconds = found["kafka_consumergroup_group_lag_seconds"]
    assert seconds[("group", "behind"), ("topic", "orders"), *last] == pytest.approx(59.5, abs=1)
    # What is not known has no sample.
    largest = found["kafka_consumergroup_group_max_lag_seconds"]
    assert set(largest) == {(("group", "behind"),), (("group", "caught-up"),)}
    assert found["runnel_group_verdict"][("group", "behind"), ("verdict", "stopped")] == 1
    assert found["runnel_group_caught_up_seconds"] == {
        (("group", "behind"),): float("inf"),
        (("group", "caught-up"),): 0,
    }
    assert found["runnel_group_unknown_offsets"][("group", "new"),] == 0


def test_many_offsets_have_no_series_of_their_own(world, monkeypatch):
    every = collected(world)
    monkeypatch.setattr(families_module, "SERIES_MAX", 5)
    found = collected(world)
    missing = set(every) - set(found)
    assert missing == {
        "kafka_consumergroup_current_offset",
        "kafka_consumergroup_lag",
        "kafka_consumergroup_group_lag_seconds",
    }
    assert found == {name: samples for name, samples in every.items() if name not in missing}
