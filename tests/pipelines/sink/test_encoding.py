"""Vectorized encoding produces the records that the client encodes row by row."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.batch.compression import Compression
from runnel.batch.header import crc_is_valid, read_header
from runnel.batch.records import iterate_records
from runnel.batch.varint import encode_varint
from runnel.client.accumulator import ProducerIdentity
from runnel.client.partitioner import murmur2, partition_for_key
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.binary import content, packed, spans, varints
from runnel.pipelines.sink.columns import Columns
from runnel.pipelines.sink.murmur import murmur2_of
from runnel.pipelines.sink.packing import Packer, Sealed
from runnel.pipelines.sink.partitioning import StickyPartitioner, choose_partitions, grouped, topics_of
from runnel.pipelines.sink.rows import pieces, rows_of

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ALL = Columns(value=0, key=1, topic=2, partition=3, headers=4, timestamp=5)

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3)
row = st.tuples(
    maybe_bytes,
    maybe_bytes,
    st.sampled_from(["a", "b"]),
    st.none() | st.integers(0, 2),
    headers,
)


def arrow(rows: list[tuple]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[4] = [
        None if found is None else [{"key": name, "value": value} for name, value in found]
        for found in columns[4]
    ]
    columns[5] = [None if stamp is None else stamp * 1000 for stamp in columns[5]]
    types = [pa.binary(), pa.binary(), pa.string(), pa.int32(), HEADERS, pa.timestamp("us", tz="UTC")]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.record_batch(arrays, names=["value", "key", "topic", "partition", "headers", "timestamp"])


def packed_batches(batches: list[pa.RecordBatch], *, batch_bytes: int, codec=Compression.NONE, counts=None):
    counts = counts or {"a": 3, "b": 4}
    packer = Packer(ProducerIdentity(7, 2, is_transactional=True), codec, batch_bytes)
    partitioner = StickyPartitioner(batch_bytes, 1, {})
    sealed: list[Sealed] = []
    for batch in batches:
        rows = rows_of(batch, ALL, NOW_MS)
        topics, topic_of = topics_of(rows, None)
        partitions = choose_partitions(rows, topics, topic_of, counts, partitioner)
        order, groups = grouped(topics, topic_of, partitions)
        sealed += packer.add(rows.in_order(order), groups)
    return sealed + list(packer.finish())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(row, min_size=1, max_size=12), min_size=1, max_size=4),
    st.integers(1, 400),
    st.sampled_from(list(Compression)),
)
def test_encoded_rows_round_trip_in_order_per_partition(batches, batch_bytes, codec):
    counts = {"a": 3, "b": 4}
    stamps = iter(range(NOW_MS, 0, -1_000_003))
    batches = [[(*found, next(stamps)) for found in rows] for rows in batches]
    sealed = packed_batches([arrow(rows) for rows in batches], batch_bytes=batch_bytes, codec=codec)
    sequences: dict[TopicPartition, int] = defaultdict(int)
    last: dict[TopicPartition, int] = defaultdict(lambda: NOW_MS + 1)
    unwritten = {found[5]: found for rows in batches for found in rows}
    for place, data in sealed:
        header = read_header(data)
        assert crc_is_valid(data, 0, header) and header.is_transactional
        assert (header.producer_id, header.producer_epoch) == (7, 2)
        assert header.base_sequence == sequences[place]
        sequences[place] += header.record_count
        records = list(iterate_records(data))
        assert [record.offset for record in records] == list(range(header.record_count))
        assert header.max_timestamp == max(record.timestamp for record in records)
        for record in records:
            value, key, topic, partition, headers, stamp = unwritten.pop(record.timestamp)
            assert (record.key, record.value, list(record.headers)) == (key, value, headers or [])
            assert stamp < last[place]
            last[place] = stamp
            if partition is None and key is not None:
                partition = partition_for_key(key, counts[topic])
            assert place == TopicPartition(topic, place.partition if partition is None else partition)
    assert not unwritten


def test_a_row_without_a_timestamp_gets_the_current_time():
    [(_, data)] = packed_batches([arrow([(b"v", None, "a", 0, None, None)])], batch_bytes=1000)
    assert next(iterate_records(data)).timestamp == NOW_MS


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-200, 200), min_size=1))
def test_varints_equal_the_clients(numbers):
    column = packed([varints(np.array(numbers, np.int64))])
    assert column.to_pylist() == [encode_varint(number) for number in numbers]


@given(st.lists(st.none() | st.binary(max_size=30), min_size=1), st.integers(0, 5))
def test_vectorized_murmur2_equals_the_scalar_hash(keys, skipped):
    column = pa.array([b"before"] * skipped + keys, pa.binary()).slice(skipped)
    data, starts, lengths = spans(column)
    assert murmur2_of(data, starts, lengths).tolist() == [murmur2(key or b"") for key in keys]


def test_murmur2_equals_kafkas():
    # Reference values of org.apache.kafka.common.utils.Utils.murmur2, as unsigned numbers.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    known |= {b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}
    column = pa.array(list(known), pa.binary())
    assert murmur2_of(*spans(column)).astype(np.int32).tolist() == list(known.values())


def test_rows_without_a_key_fill_a_batch_before_the_next_partition():
    rows = [(b"x" * 83, None, "a", None, None, None)] * 30
    sealed = packed_batches([arrow(rows)], batch_bytes=1000)
    shares = [(partition.partition, read_header(data).record_count) for partition, data in sealed]
    assert sorted(shares) == [(0, 10), (1, 10), (2, 10)]


def test_a_large_value_gets_a_batch_of_its_own():
    rows = [(b"x" * size, b"k", "a", 0, None, None) for size in (10, 5000, 10)]
    counts = [read_header(data).record_count for _, data in packed_batches([arrow(rows)], batch_bytes=1000)]
    assert counts == [1, 1, 1]


def test_an_unknown_partition_is_reported():
    with pytest.raises(PipelineError, match="column `partition` contains 7, but topic 'a' has 3 partitions"):
        packed_batches([arrow([(b"v", None, "a", 7, None, None)])], batch_bytes=1000)


def test_a_null_topic_is_rejected():
    with pytest.raises(PipelineError, match="column `topic` is null"):
        packed_batches([arrow([(b"v", None, None, None, None, None)])], batch_bytes=1000)


def test_a_header_without_a_key_is_rejected():
    with pytest.raises(PipelineError, match="a header without a key"):
        rows_of(arrow([(b"v", None, "a", None, [(None, b"v")], None)]), ALL, NOW_MS)


def test_a_timestamp_before_1970_is_rejected():
    with pytest.raises(PipelineError, match="before 1970"):
        rows_of(arrow([(b"v", None, "a", None, None, -5)]), ALL, NOW_MS)


def test_a_large_arrow_batch_is_processed_in_slices(monkeypatch):
    monkeypatch.setattr("runnel.pipelines.sink.rows.PIECE_BYTES", 100)
    batch = arrow([(b"v" * 50, b"%d" % number, "a", None, None, None) for number in range(20)])
    parts = list(pieces(batch))
    assert len(parts) > 5
    keys = [key for part in parts for key in rows_of(part, ALL, NOW_MS).key.to_pylist()]
    assert keys == [b"%d" % number for number in range(20)]
    assert content(packed([varints(np.arange(3))]))[1].tolist() == [0, 1, 2, 3]
