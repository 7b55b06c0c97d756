"""Encoding and decoding records, compared with other clients."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch, encode_record
from runnel.batch.compression import Compression
from runnel.batch.control import EndMarker, build_end_marker, read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import crc_is_valid, patch_offset_and_epoch, read_header, seal
from runnel.batch.records import Record, iterate_records, read_pairs, unpack_records
from runnel.batch.varint import encode_varint, read_varint
from tests.batch.other_clients import AiokafkaBatch, AiokafkaBuilder, KafkaPythonBatch, KafkaPythonBuilder
from tests.batch.strategies import compressions, record_lists


def rows(records):
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]


@given(record_lists(), compressions, st.integers(0, 2**40))
def test_records_round_trip(records, compression, base_offset):
    batch = build_batch(records, compression=compression, base_offset=base_offset)
    assert crc_is_valid(batch, 0, read_header(batch))
    expected = [(base_offset + row[0], *row[1:]) for row in rows(records)]
    assert rows(iterate_records(batch)) == expected
    header = read_header(batch)
    pairs = read_pairs(unpack_records(batch, header), header.record_count)
    assert [(base_offset + delta, *pair) for delta, *pair in pairs] == [
        (row[0], row[2], row[3]) for row in expected
    ]


def aiokafka_build(records: list[Record], compression: int) -> bytes:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=77,
        producer_epoch=1,
        base_sequence=5,
        batch_size=2**20,
    )
    for record in records:
        assert builder.append(
            record.offset, record.timestamp, record.key, record.value, headers=list(record.headers)
        )
    return bytes(builder.build())


def kafka_python_build(records: list[Record], compression: int) -> bytes:
    builder = KafkaPythonBuilder(2, compression, False, 77, 1, 5, 2**20)
    for record in records:
        assert builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


BUILDERS = [aiokafka_build, kafka_python_build]
READERS = [AiokafkaBatch, KafkaPythonBatch]


@pytest.mark.parametrize("build", BUILDERS)
@given(records=record_lists())
def test_uncompressed_bytes_equal_those_of_other_clients(build, records):
    ours = build_batch(records, producer_id=77, producer_epoch=1, base_sequence=5)
    theirs = bytearray(build(records, 0))
    patch_offset_and_epoch(theirs, 0, 0, -1)
    assert ours == theirs


@pytest.mark.parametrize("build", BUILDERS)
@given(records=record_lists(), compression=compressions)
def test_batches_of_other_clients_are_decoded(build, records, compression):
    assert rows(iterate_records(build(records, compression))) == rows(records)


@pytest.mark.parametrize("reader", READERS)
@given(records=record_lists(), compression=compressions)
def test_other_clients_decode_our_batches(reader, records, compression):
    batch = reader(bytes(build_batch(records, compression=compression)))
    assert batch.validate_crc()
    assert rows(batch) == rows(records)


@given(record_lists(), compressions, st.data())
def test_damaged_batches_raise_only_corrupt_batch(records, compression, data):
    batch = build_batch(records, compression=compression)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(17, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptBatch):
        list(iterate_records(batch, max_bytes=2**20))


@given(st.binary(max_size=60), st.integers(-1, 4))
def test_random_records_raise_only_corrupt_batch(payload, count):
    header = read_header(build_batch([Record(0, 0, None, None)]))
    header.record_count = count
    pairs = None
    with suppress(CorruptBatch):
        pairs = read_pairs(payload, count)
    try:
        read = list(iterate_records(seal(header, payload)))
    except CorruptBatch:
        return
    assert len(read) == count
    assert pairs is not None
    assert [pair[1:] for pair in pairs] == [(record.key, record.value) for record in read]


def test_a_huge_record_count_allocates_nothing():
    header = read_header(build_batch([Record(0, 0, None, None)]))
    header.record_count = 2**31 - 1
    with pytest.raises(CorruptBatch, match="cannot hold"):
        list(iterate_records(seal(header, encode_record(0, 0, None, None, ()))))


def test_records_match_their_lengths():
    header = read_header(build_batch([Record(0, 0, b"k", b"v")]))
    record = encode_record(0, 0, b"k", b"v", ())
    assert list(iterate_records(seal(header, record)))
    without_header_count = encode_varint(len(record) - 2) + record[1:-1]
    for damaged in (record + b"\0", record[:-1], without_header_count):
        with pytest.raises(CorruptBatch):
            list(iterate_records(seal(header, damaged)))
        with pytest.raises(CorruptBatch):
            read_pairs(damaged, 1)


def test_an_empty_batch_is_rejected():
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value):
    encoded = encode_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (-65, "8101"), (300, "d804")],
)
def test_varints_are_zigzag_of_seven_bits(value, encoded):
    assert encode_varint(value).hex() == encoded


@pytest.mark.parametrize("bad", [b"", b"\x80", b"\xff" * 11])
def test_an_unterminated_varint_is_corrupt(bad):
    with pytest.raises(CorruptBatch):
        read_varint(bad, 0)


@given(st.booleans(), st.integers(0, 2**31 - 1))
def test_end_markers_round_trip(committed, coordinator_epoch):
    marker = EndMarker(committed, coordinator_epoch)
    batch = build_end_marker(marker, producer_id=4, producer_epoch=2, timestamp_ms=9)
    header = read_header(batch)
    assert header.is_control and header.is_transactional and header.base_sequence == -1
    assert read_end_marker(batch) == marker
    # kafka-python decodes the marker's key: version 0, type 1 to commit and 0 to abort.
    (record,) = iterate_records(batch)
    assert record.key == (b"\0\0\0\1" if committed else b"\0\0\0\0")


def test_other_control_batches_are_not_end_markers():
    leader_change = build_batch([Record(0, 0, b"\0\0\0\2", b"\0\0")], control=True)
    assert read_end_marker(leader_change) is None


@pytest.mark.parametrize(("key", "value"), [(None, None), (b"\0\0", b""), (b"\0\0\0\1", b"\0\0")])
def test_a_short_control_record_is_corrupt(key, value):
    with pytest.raises(CorruptBatch):
        read_end_marker(build_batch([Record(0, 0, key, value)], control=True))


def test_every_codec_compresses_repetitive_data():
    records = [Record(i, i, b"key", b"the same value " * 20) for i in range(100)]
    plain = len(build_batch(records))
    for compression in Compression:
        if compression is not Compression.NONE:
            assert len(build_batch(records, compression=compression)) < plain / 2
