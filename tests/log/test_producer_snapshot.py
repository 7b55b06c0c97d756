"""Producer snapshots: round trips, and detection of damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.header import SEQUENCE_MAX
from runnel.log.producer_snapshot import DamagedSnapshot, decode_producers, encode_producers
from runnel.log.producers import Producer, WrittenBatch

offsets = st.integers(-1, 2**60)
sequences = st.integers(-1, SEQUENCE_MAX)
written_batches = st.builds(WrittenBatch, sequences, sequences, offsets, offsets, offsets)
producer_states = st.builds(
    Producer,
    st.integers(0, 2**62),
    st.integers(0, 2**15 - 1),
    st.lists(written_batches, max_size=5).map(tuple),
    offsets,
    sequences,
    offsets,
)


@given(st.lists(producer_states, max_size=6))
def test_snapshots_come_back(states):
    assert decode_producers(encode_producers(states)) == states


@given(st.lists(producer_states, min_size=1, max_size=3), st.data())
def test_a_damaged_snapshot_is_detected(states, data):
    snapshot = bytearray(encode_producers(states))
    position = data.draw(st.integers(0, len(snapshot) - 1))
    if data.draw(st.booleans()):
        del snapshot[position:]
    else:
        snapshot[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedSnapshot):
        decode_producers(bytes(snapshot))


@given(st.binary(max_size=60))
def test_garbage_is_only_ever_a_damaged_snapshot(garbage):
    with pytest.raises(DamagedSnapshot):
        decode_producers(garbage)
