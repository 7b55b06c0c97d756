"""Sequence numbers of producers: duplicates are found, without false positives."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.header import SEQUENCE_MAX
from runnel.pipelines.audit.sequences import DuplicateSequence, ProducerSequences, SequenceGap, StaleEpoch


def test_what_is_written_twice_is_reported_with_its_first_place():
    sequences = ProducerSequences()
    assert sequences.add(7, 0, 0, 10, 100) is None
    assert sequences.add(7, 0, 10, 5, 110) is None
    assert sequences.add(7, 0, 10, 5, 115) == DuplicateSequence(110)
    assert sequences.add(7, 0, 12, 1, 120) == DuplicateSequence(112)
    assert sequences.add(7, 0, 15, 5, 121) is None


def test_sequences_wrap():
    sequences = ProducerSequences()
    assert sequences.add(7, 0, SEQUENCE_MAX - 4, 10, 0) is None
    assert sequences.add(7, 0, 5, 10, 10) is None
    assert sequences.add(7, 0, 3, 2, 20) == DuplicateSequence(8)
    assert sequences.add(7, 0, SEQUENCE_MAX, 1, 22) == DuplicateSequence(4)


def test_a_newer_epoch_and_another_producer_start_over():
    sequences = ProducerSequences()
    sequences.add(7, 0, 0, 10, 0)
    assert sequences.add(7, 1, 0, 10, 10) is None
    assert sequences.add(8, 0, 0, 10, 20) is None
    assert sequences.add(7, 0, 10, 1, 30) == StaleEpoch(1)


def test_a_marker_with_a_newer_epoch_starts_over():
    sequences = ProducerSequences()
    sequences.add(7, 0, 0, 10, 0)
    sequences.end_transaction(7, 0)
    assert sequences.add(7, 0, 10, 2, 11) is None
    sequences.end_transaction(7, 1)
    assert sequences.add(7, 1, 0, 2, 14) is None
    assert sequences.add(7, 1, 0, 2, 16) == DuplicateSequence(14)


def test_what_is_missing_is_a_jump():
    sequences = ProducerSequences()
    sequences.add(7, 0, 0, 10, 0)
    assert sequences.add(7, 0, 15, 5, 10) == SequenceGap(5)
    assert sequences.add(7, 0, 12, 1, 15) == DuplicateSequence(None)


def test_a_sequence_before_all_known_ones_is_not_a_duplicate():
    sequences = ProducerSequences()
    sequences.add(7, 0, 1000, 10, 0)
    assert sequences.add(7, 0, 0, 5, 10) == SequenceGap(-1010)
    assert sequences.add(7, 0, 5, 5, 15) is None


@given(st.integers(0, SEQUENCE_MAX), st.lists(st.integers(1, 50), min_size=1, max_size=60), st.data())
def test_exactly_the_planted_repeats_are_found(first, sizes, data):
    """The twin: a list of all batches that were ever written."""
    sequences, offset, sequence, written = ProducerSequences(), 0, first, []
    for size in sizes:
        assert sequences.add(1, 0, sequence, size, offset) is None
        written.append((sequence, size, offset))
        sequence, offset = (sequence + size) & SEQUENCE_MAX, offset + size
        if data.draw(st.integers(0, 3)) == 0:
            again = data.draw(st.sampled_from(written))
            assert sequences.add(1, 0, again[0], again[1], offset) == DuplicateSequence(again[2])
            offset += again[1]
