"""Restored records, made column by column, are those that would be made one by one."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.batch.compression import Compression
from runnel.batch.records import iterate_records
from runnel.client.accumulator import ProducerIdentity
from runnel.model.ids import TopicPartition
from runnel.pipelines.restore.records import restored_rows
from runnel.pipelines.sink.packing import Packer
from runnel.pipelines.sink.partitioning import Group
from tests.pipelines.restore.steps import restore_headers

PLACE = TopicPartition("new", 3)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

maybe_bytes = st.none() | st.binary(max_size=40)
row = st.tuples(
    st.integers(0, 2**62),
    # Records without a timestamp have -1.
    st.integers(-1, 2**45),
    maybe_bytes,
    maybe_bytes,
    st.none() | st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3),
)


def arrow(rows: list[tuple]) -> pa.RecordBatch:
    offsets, stamps, keys, values, headers = zip(*rows, strict=True)
    lists = [
        None if found is None else [{"key": name, "value": value} for name, value in found]
        for found in headers
    ]
    types = [pa.int64(), pa.int64(), pa.binary(), pa.binary(), HEADERS]
    columns = [
        pa.array(column, kind)
        for column, kind in zip((offsets, stamps, keys, values, lists), types, strict=True)
    ]
    return pa.record_batch(columns, names=["offset", "timestamp_ms", "key", "value", "headers"])


@settings(max_examples=60, deadline=None)
@given(st.lists(row, min_size=1, max_size=12), st.integers(0, 3), st.none() | st.just("@5 3:70"))
def test_restored_records_keep_their_headers(rows, skipped, until):
    batch = arrow(rows).slice(min(skipped, len(rows) - 1))
    rows = rows[min(skipped, len(rows) - 1) :]
    packer = Packer(ProducerIdentity(1, 0, is_transactional=True), Compression.NONE, 200)
    records = restored_rows(batch, "orders", 3, until)
    sealed = [*packer.add(records, [Group(PLACE, 0, len(rows))]), *packer.finish()]
    found = [
        (record.timestamp, record.key, record.value, list(record.headers))
        for _, data in sealed
        for record in iterate_records(data)
    ]
    assert found == [
        (stamp, key, value, [*(own or []), *restore_headers("orders", 3, offset, stamp, until)])
        for offset, stamp, key, value, own in rows
    ]
