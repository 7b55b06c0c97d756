"""Properties of the server-side assignors: complete, balanced and sticky."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runnel.coordinator.group.consumer.assignor import GroupSpec, Subscriber
from runnel.coordinator.group.consumer.cluster import (
    NO_PARTITIONS,
    Partitions,
    TopicIdPartition,
    TopicMetadata,
)
from runnel.coordinator.group.consumer.draft import ASSIGNORS
from runnel.coordinator.group.consumer.ranges import assign_ranges
from runnel.coordinator.group.consumer.uniform import assign_uniformly

RACKS = ["a", "b", "c"]


def topic(number: int, partition_count: int, racks: list[str] | None = None) -> TopicMetadata:
    places = racks or []
    return TopicMetadata(
        f"t{number}",
        bytes([number]) * 16,
        tuple(
            frozenset(places[n % len(places) : n % len(places) + 1] if places else ())
            for n in range(partition_count)
        ),
    )


@st.composite
def questions(draw: st.DrawFn, *, is_uniform: bool = False) -> GroupSpec:
    """A group with arbitrary previous assignments, including deleted partitions."""
    counts = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    topics = {known.id: known for known in (topic(number, count) for number, count in enumerate(counts))}
    everything = [
        TopicIdPartition(known.id, n) for known in topics.values() for n in range(known.partition_count + 1)
    ]
    free = draw(st.permutations(everything))
    same = draw(st.frozensets(st.sampled_from(sorted(topics)), min_size=1))
    subscribers = []
    for number in range(draw(st.integers(1, 6))):
        wants = same if is_uniform else draw(st.frozensets(st.sampled_from(sorted(topics))))
        size = draw(st.integers(0, len(free)))
        has, free = frozenset(free[:size]), free[size:]
        rack = draw(st.sampled_from([None, *RACKS]))
        subscribers.append(Subscriber(f"m{number}", None, rack, wants, has))
    return GroupSpec(subscribers, topics)


def wanted_by(spec: GroupSpec) -> set[TopicIdPartition]:
    return set(spec.subscribed())


def still_valid(spec: GroupSpec) -> dict[str, Partitions]:
    exists = wanted_by(spec)
    return {
        s.id: frozenset(p for p in s.assigned if p in exists and p.topic_id in s.topics)
        for s in spec.subscribers
    }


@given(questions(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_subscribed_partition_has_exactly_one_subscribed_owner(spec: GroupSpec, name: str) -> None:
    shares = ASSIGNORS[name](spec)
    assert shares.keys() == {subscriber.id for subscriber in spec.subscribers}
    given_out = Counter(partition for share in shares.values() for partition in share)
    assert given_out == Counter(wanted_by(spec))
    for subscriber in spec.subscribers:
        assert {partition.topic_id for partition in shares[subscriber.id]} <= subscriber.topics


@given(questions(is_uniform=True))
def test_equal_subscriptions_are_balanced_with_the_fewest_moves(spec: GroupSpec) -> None:
    shares = assign_uniformly(spec)
    sizes = sorted(map(len, shares.values()))
    assert sizes[-1] - sizes[0] <= 1
    had = still_valid(spec)
    moves = sum(len(had[member_id] - share) for member_id, share in shares.items())
    # Members above their quota must revoke the excess; larger quotas save most for the largest members.
    larger = sum(size > sizes[0] for size in sizes) if sizes[0] != sizes[-1] else 0
    held = sorted((len(share) for share in had.values()), reverse=True)
    least = sum(max(0, size - sizes[0] - (place < larger)) for place, size in enumerate(held))
    assert moves == least


@given(questions())
def test_no_single_move_improves_the_balance(spec: GroupSpec) -> None:
    shares = assign_uniformly(spec)
    for giver in spec.subscribers:
        for taker in spec.subscribers:
            movable = any(partition.topic_id in taker.topics for partition in shares[giver.id])
            assert not movable or len(shares[giver.id]) <= len(shares[taker.id]) + 1


@given(questions(), st.sampled_from(sorted(ASSIGNORS)))
def test_assignments_are_stable(spec: GroupSpec, name: str) -> None:
    shares = ASSIGNORS[name](spec)
    again = [Subscriber(s.id, s.instance_id, s.rack, s.topics, shares[s.id]) for s in spec.subscribers]
    assert ASSIGNORS[name](GroupSpec(again, spec.topics)) == shares


def test_partitions_are_assigned_by_rack() -> None:
    known = topic(0, 6, RACKS)
    subscribers = [
        Subscriber(f"m{rack}", None, rack, frozenset({known.id}), NO_PARTITIONS) for rack in reversed(RACKS)
    ]
    shares = assign_uniformly(GroupSpec(subscribers, {known.id: known}))
    for subscriber in subscribers:
        assert {RACKS[partition.number % 3] for partition in shares[subscriber.id]} == {subscriber.rack}


def test_ranges_are_co_partitioned_with_static_members_first() -> None:
    topics = {known.id: known for known in (topic(0, 5), topic(1, 5))}
    wants = frozenset(topics)
    subscribers = [
        Subscriber("a", None, None, wants, NO_PARTITIONS),
        Subscriber("z", "instance", None, wants, NO_PARTITIONS),
    ]
    shares = assign_ranges(GroupSpec(subscribers, topics))
    for topic_id in topics:
        assert sorted(p.number for p in shares["z"] if p.topic_id == topic_id) == [0, 1, 2]
        assert sorted(p.number for p in shares["a"] if p.topic_id == topic_id) == [3, 4]
