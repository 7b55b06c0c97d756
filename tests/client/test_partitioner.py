"""Keys go where Java's producer sends them, or one key would live in two partitions."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as their_murmur2

from runnel.client.partitioner import murmur2, partition_for_key


@given(st.binary(max_size=100))
def test_murmur2_is_the_one_of_another_client(data):
    assert murmur2(data) == their_murmur2(data) & 0xFFFFFFFF


def test_murmur2_is_the_one_of_java():
    # From the unit tests of Kafka's Java client, as unsigned numbers.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}


@given(st.binary(max_size=20), st.integers(min_value=1, max_value=50))
def test_a_key_stays_within_the_partitions(key, count):
    assert 0 <= partition_for_key(key, count) < count
