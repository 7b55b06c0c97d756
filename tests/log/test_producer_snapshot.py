"""Producer snapshots: round trips, those of Apache Kafka and earlier releases, and detection of damage."""

from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runnel.batch.checksum import crc32c
from runnel.batch.header import SEQUENCE_MAX
from runnel.log.producer_snapshot import (
    DamagedSnapshot,
    decode_producers,
    encode_producers,
    first_open_offset_in,
)
from runnel.log.producers import NO_OFFSET, Producer, WrittenBatch

offsets = st.integers(-1, 2**60)
sequences = st.integers(-1, SEQUENCE_MAX)


@st.composite
def some_batches(draw: st.DrawFn) -> WrittenBatch:
    base_offset, delta, last_sequence = draw(offsets), draw(st.integers(0, 2**31 - 1)), draw(sequences)
    base_sequence = (last_sequence - delta) & SEQUENCE_MAX if last_sequence >= 0 else last_sequence
    return WrittenBatch(base_sequence, last_sequence, base_offset, base_offset + delta, draw(offsets))


written_batches = some_batches()
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


def sealed(body: bytes) -> bytes:
    return pack(">hI", 1, crc32c(body)) + body


def encode_as_kafka(states: list[Producer]) -> bytes:
    """Kafka's layout, in which a producer has one batch and one timestamp."""
    entries = [
        pack(
            ">qhiqiqiq",
            each.producer_id,
            each.epoch,
            each.batches[-1].last_sequence if each.batches else -1,
            each.batches[-1].last_offset if each.batches else -1,
            each.batches[-1].last_offset - each.batches[-1].base_offset if each.batches else 0,
            each.last_seen_ms,
            each.coordinator_epoch,
            each.transaction_start_offset,
        )
        for each in states
    ]
    return sealed(pack(">i", len(entries)) + b"".join(entries))


def encode_as_earlier(states: list[Producer]) -> bytes:
    parts = [pack(">i", len(states))]
    for each in states:
        fixed = (each.producer_id, each.epoch, each.coordinator_epoch, each.transaction_start_offset)
        parts.append(pack(">qhiqqb", *fixed, each.last_seen_ms, len(each.batches)))
        for batch in each.batches:
            written = (batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset)
            parts.append(pack(">iiqqq", *written, batch.max_timestamp))
    return sealed(b"".join(parts))


def as_kafka_keeps(state: Producer) -> Producer:
    kept = tuple(
        WrittenBatch(
            last.base_sequence, last.last_sequence, last.base_offset, last.last_offset, state.last_seen_ms
        )
        for last in state.batches[-1:]
        if last.last_offset >= 0
    )
    rest = (state.last_seen_ms, state.coordinator_epoch, state.transaction_start_offset)
    return Producer(state.producer_id, state.epoch, kept, *rest)


@example([Producer(0, 0, (), 1 << 24, 0, 0)])  # At first sight one of an earlier release, with one batch.
@given(st.lists(producer_states, max_size=6))
def test_a_snapshot_of_kafka_has_the_last_batch_of_each_producer(states):
    assert decode_producers(encode_as_kafka(states)) == [as_kafka_keeps(state) for state in states]


@given(st.lists(producer_states, max_size=6))
def test_a_snapshot_begins_as_kafkas(states):
    """Kafka reads so many producers, and ignores the rest."""
    end = len(encode_as_kafka(states))
    assert encode_producers(states)[6:end] == encode_as_kafka(states)[6:]


@given(st.lists(producer_states, max_size=6))
def test_a_snapshot_of_an_earlier_release(states):
    assert decode_producers(encode_as_earlier(states)) == states


@given(
    st.lists(producer_states, max_size=6),
    st.sampled_from([encode_producers, encode_as_kafka, encode_as_earlier]),
)
def test_the_oldest_open_transaction(states, encode):
    starts = [state.transaction_start_offset for state in states]
    expected = min((start for start in starts if start != NO_OFFSET), default=None)
    assert first_open_offset_in(encode(states)) == expected


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
