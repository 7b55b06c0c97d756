"""Plans for replicas: valid, balanced, spread over racks and hosts, and no larger than they must be."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.model.ids import TopicPartition
from runnel.server.balance import (
    Assignments,
    Location,
    TooFewBrokers,
    plan_drain,
    plan_factor,
    plan_rebalance,
)

PLAIN = {node: Location(None, f"host{node}") for node in range(1, 6)}


def partitions(*replicas: list[int]) -> Assignments:
    return {TopicPartition("t", number): list(each) for number, each in enumerate(replicas)}


@st.composite
def clusters(draw, racks=(None,)):
    """Some brokers, and partitions with replicas on them."""
    count = draw(st.integers(1, 7))
    brokers = {node: Location(draw(st.sampled_from(racks)), f"host{node}") for node in range(1, count + 1)}
    factor = draw(st.integers(1, min(3, count)))
    replicas = st.permutations(sorted(brokers)).map(lambda nodes: list(nodes[:factor]))
    return brokers, partitions(*draw(st.lists(replicas, max_size=25)))


def applied(before: Assignments, plan: Assignments) -> Assignments:
    return {**before, **plan}


def check_valid(before: Assignments, plan: Assignments, brokers: dict[int, Location]) -> None:
    for partition, replicas in plan.items():
        assert replicas != before[partition]
        assert len(set(replicas)) == len(replicas)
        assert set(replicas) <= set(brokers)


def spread(brokers: dict[int, Location], replicas: list[int]) -> int:
    return len({brokers[each].rack for each in replicas})


@given(clusters())
def test_a_rebalanced_cluster_is_even(cluster):
    brokers, before = cluster
    plan = plan_rebalance(before, brokers)
    check_valid(before, plan, brokers)
    after = applied(before, plan)
    counts = Counter({node: 0 for node in brokers})
    counts.update(node for replicas in after.values() for node in replicas)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert plan_rebalance(after, brokers) == {}


@given(clusters(racks=("a", "b", "c")))
def test_rebalancing_never_reduces_the_number_of_racks(cluster):
    brokers, before = cluster
    plan = plan_rebalance(before, brokers)
    check_valid(before, plan, brokers)
    for partition, replicas in plan.items():
        assert spread(brokers, replicas) >= spread(brokers, before[partition])


def test_only_what_is_needed_is_moved():
    before = partitions([1, 2], [2, 1], [1, 2], [2, 1])
    plan = plan_rebalance(before, {node: PLAIN[node] for node in (1, 2, 3, 4)})
    moved = sum(len(set(to) - set(before[each])) for each, to in plan.items())
    assert moved == 4


def test_leaders_are_levelled_without_moving_replicas():
    before = partitions([1, 2, 3], [1, 2, 3], [1, 2, 3])
    plan = plan_rebalance(before, {node: PLAIN[node] for node in (1, 2, 3)})
    assert sorted(each[0] for each in applied(before, plan).values()) == [1, 2, 3]


@given(clusters(racks=(None, "a", "b")), st.data())
def test_a_drained_broker_has_no_replicas(cluster, data):
    brokers, before = cluster
    node = data.draw(st.sampled_from(sorted(brokers)))
    others = {each: place for each, place in brokers.items() if each != node}
    factor = max(map(len, before.values()), default=0)
    if factor > len(others) and any(node in each for each in before.values()):
        with pytest.raises(TooFewBrokers):
            plan_drain(before, brokers, node)
        return
    plan = plan_drain(before, brokers, node)
    check_valid(before, plan, others)
    assert {each for each, replicas in before.items() if node in replicas} == set(plan)
    for partition, replicas in plan.items():
        # All other replicas stay where they are.
        assert [each for each in before[partition] if each != node] == [
            each for each in replicas if each in before[partition]
        ]


def test_a_drained_replica_goes_to_another_rack():
    brokers = {1: Location("a", "h1"), 2: Location("b", "h2"), 3: Location("a", "h3"), 4: Location("c", "h4")}
    before = partitions([1, 2], [4, 3], [4, 3])
    assert plan_drain(before, brokers, 2)[TopicPartition("t", 0)] == [1, 4]


def test_workers_of_one_host_do_not_share_a_partition():
    brokers = {1: Location(None, "x"), 2: Location(None, "x"), 3: Location(None, "y"), 4: Location(None, "z")}
    assert plan_drain(partitions([3, 1]), brokers, 3)[TopicPartition("t", 0)] == [4, 1]


def test_the_replication_factor_grows_and_shrinks():
    before = partitions([1], [2], [3])
    brokers = {node: PLAIN[node] for node in (1, 2, 3)}
    grown = applied(before, plan_factor(before, brokers, 3))
    assert all(sorted(each) == [1, 2, 3] for each in grown.values())
    assert [each[0] for each in grown.values()] == [1, 2, 3]
    shrunk = applied(grown, plan_factor(grown, brokers, 1))
    assert shrunk == before
    assert plan_factor(before, brokers, 1) == {}
    with pytest.raises(TooFewBrokers, match="t-0"):
        plan_factor(before, brokers, 4)
