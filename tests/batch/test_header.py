"""The batch header: patching in place, the range of the checksum, and garbage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import (
    HEADER_BYTES,
    SEQUENCE_MAX,
    crc_is_valid,
    pack_header,
    patch_offset_and_epoch,
    read_header,
    restamp,
    walk_headers,
)
from runnel.batch.records import Record, iterate_records
from tests.batch.strategies import record_lists


def batch_of(count: int = 3, **settings) -> bytearray:
    return build_batch([Record(i, 1000 + i, b"k", b"v" * i) for i in range(count)], **settings)


def test_every_field_is_decoded():
    batch = batch_of(
        4,
        base_offset=7,
        leader_epoch=3,
        producer_id=11,
        producer_epoch=2,
        base_sequence=SEQUENCE_MAX - 1,
        transactional=True,
        control=True,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 10, 11)
    assert (header.leader_epoch, header.magic, header.record_count) == (3, 2, 4)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1003)
    assert (header.producer_id, header.producer_epoch) == (11, 2)
    assert (header.base_sequence, header.last_sequence) == (SEQUENCE_MAX - 1, 1)
    assert header.is_transactional and header.is_control and not header.uses_log_append_time
    assert header.delete_horizon_ms is None
    assert header.size_bytes == len(batch)
    assert pack_header(header) == batch[:HEADER_BYTES]


def test_patching_offset_and_epoch_keeps_the_checksum_valid():
    buffer = bytearray(b"before") + batch_of() + b"behind"
    patch_offset_and_epoch(memoryview(buffer), 6, 2**40, 9)
    header = read_header(buffer, 6)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    assert crc_is_valid(buffer, 6, header)
    assert buffer.startswith(b"before") and buffer.endswith(b"behind")


def test_log_append_time_applies_to_every_record():
    batch = batch_of()
    header = read_header(batch)
    restamp(batch, 0, header, 5_000)
    assert read_header(batch) == header
    assert crc_is_valid(batch, 0, header)
    assert header.uses_log_append_time
    assert [record.timestamp for record in iterate_records(batch)] == [5_000] * 3


@given(st.lists(record_lists(max_size=4), max_size=5), st.integers(0, 200))
def test_walk_headers_finds_every_complete_batch(lists, cut):
    batches = [bytes(build_batch(records)) for records in lists]
    buffer = b"".join(batches)
    buffer = buffer[: max(len(buffer) - cut, 0)]
    found = [(position, header.size_bytes) for position, header in walk_headers(buffer)]
    expected = []
    position = 0
    for batch in batches:
        if position + len(batch) <= len(buffer):
            expected.append((position, len(batch)))
        position += len(batch)
    assert found == expected


@given(record_lists(max_size=3), st.data())
def test_one_changed_byte_fails_the_checksum(records, data):
    batch = build_batch(records)
    position = data.draw(st.integers(21, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    assert not crc_is_valid(batch, 0, read_header(batch))


@given(st.binary(max_size=200))
def test_garbage_raises_only_corrupt_batch(garbage):
    for function in (
        read_header,
        lambda buffer: list(walk_headers(buffer)),
        lambda b: list(iterate_records(b)),
    ):
        try:
            function(garbage)
        except CorruptBatch:
            continue
        assert function is not read_header or garbage[16] == 2


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_an_invalid_length_does_not_loop(length):
    batch = batch_of()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        list(walk_headers(batch))


def test_a_truncated_batch_is_not_valid():
    batch = batch_of()
    assert not crc_is_valid(batch[:-1], 0, read_header(batch))
