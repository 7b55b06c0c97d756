"""The partitioner is compatible with the Java client."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as their_murmur2

from runnel.client.partitioner import murmur2, partition_for_key


@given(st.binary(max_size=100))
def test_murmur2_equals_another_client(data):
    assert murmur2(data) == their_murmur2(data) & 0xFFFFFFFF


def test_murmur2_equals_java():
    # From the unit tests of Kafka's Java client, as unsigned numbers.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}


@given(st.binary(max_size=20), st.integers(min_value=1, max_value=50))
def test_keys_map_to_valid_partitions(key, count):
    assert 0 <= partition_for_key(key, count) < count
