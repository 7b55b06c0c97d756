"""The embedded consumer protocol and the range assignor."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor

from runnel.client.consumer_protocol import (
    assign_ranges,
    assigned_partitions,
    assignment_bytes,
    subscribed_topics,
    subscription_bytes,
)
from runnel.model.ids import TopicPartition

names = st.text("abcdef", min_size=1, max_size=3)
partitions = st.builds(TopicPartition, names, st.integers(0, 20))


@given(st.sets(names))
def test_subscriptions_round_trip_sorted(topics):
    assert subscribed_topics(subscription_bytes(topics)) == sorted(topics)


@given(st.sets(partitions))
def test_assignments_round_trip(chosen):
    assert set(assigned_partitions(assignment_bytes(chosen))) == chosen


@given(st.binary(max_size=30))
def test_an_assignment_of_another_protocol_has_no_partitions(data):
    assert isinstance(assigned_partitions(data), list)


@given(
    st.dictionaries(names, st.sets(st.sampled_from(["a", "b", "c"])), max_size=6),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 9)),
)
def test_ranges_are_complete_disjoint_and_balanced(wanted, counts):
    shares = assign_ranges(wanted, counts)
    assert set(shares) == set(wanted)
    for topic, count in counts.items():
        interested = sorted(member for member, topics in wanted.items() if topic in topics)
        got = [partition for member in interested for partition in shares[member] if partition.topic == topic]
        assert got == ([TopicPartition(topic, number) for number in range(count)] if interested else [])
        sizes = [sum(p.topic == topic for p in shares[member]) for member in interested]
        assert sizes == sorted(sizes, reverse=True) and (not sizes or sizes[0] - sizes[-1] <= 1)


def test_the_range_assignor_has_the_standard_name():
    assert RangePartitionAssignor.name == "range"
