"""Vectorised decoding equals decoding record by record."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import HEADER_BYTES, read_header, seal
from runnel.batch.records import Record, iterate_records
from runnel.batch.varint import encode_varint
from runnel.model.ids import TopicPartition
from runnel.pipelines.source import decode
from runnel.pipelines.source.columns import COLUMNS
from runnel.pipelines.source.decode import Spans, binary_column, packed, read_spans
from runnel.pipelines.source.varints import read_varints

PARTITION = TopicPartition("orders", 3)

texts = st.one_of(
    st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=70), st.just(b"x" * 9000)
)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(min_value=0, max_value=2**42),
    key=texts,
    value=texts,
    headers=st.lists(st.tuples(st.text(max_size=5), texts), max_size=3),
)
batches = st.lists(
    st.tuples(
        st.lists(records, min_size=1, max_size=6), st.sampled_from(list(Compression)), st.integers(0, 5)
    ),
    max_size=5,
)


def built(description: Sequence[tuple[list[Record], int, int]]) -> list[memoryview]:
    """Batches of a log: ascending offsets, with gaps between batches."""
    found = []
    offset = 0
    for contents, compression, gap in description:
        offset += gap
        found.append(memoryview(bytes(build_batch(contents, base_offset=offset, compression=compression))))
        offset += len(contents)
    return found


def rows_one_by_one(made: Sequence[memoryview], start: int, end: int) -> list[tuple]:
    return [
        (record.offset, record.timestamp, record.key, record.value, [*record.headers] or None)
        for batch in made
        for record in iterate_records(batch)
        if start <= record.offset < end
    ]


def rows_at_once(made: Sequence[memoryview], start: int, end: int) -> list[tuple]:
    pieces = read_spans([packed(batch, read_header(batch)) for batch in made], start, end)
    return [row for spans in pieces for row in rows_of(spans)]


def rows_of(spans: Spans) -> list[tuple]:
    names = ("offset", "timestamp", "key", "value", "headers")
    offsets, stamps, keys, values, headers = (COLUMNS[name](PARTITION, spans) for name in names)
    for column in (offsets, stamps, keys, values, headers):
        column.validate(full=True)
    return [
        (
            offset,
            stamp // 1000,
            key,
            value,
            None if found is None else [(header["key"], header["value"]) for header in found],
        )
        for offset, stamp, key, value, found in zip(
            offsets.to_pylist(),
            stamps.view(pa.int64()).to_pylist(),
            keys.to_pylist(),
            values.to_pylist(),
            headers.to_pylist(),
            strict=True,
        )
    ]


@settings(max_examples=150, deadline=None)
@given(batches, st.integers(0, 20), st.integers(0, 40))
def test_columns_equal_records(description, start: int, end: int) -> None:
    made = built(description)
    assert rows_at_once(made, start, end) == rows_one_by_one(made, start, end)


def test_records_of_many_sizes_in_many_batches() -> None:
    # Sizes around the borders at which lengths take one byte more.
    sizes = [*range(0, 140), 8180, 8190, 8200, 1_100_000, 3]
    contents = [Record(0, 5 + size, b"k" * (size % 7), b"v" * size) for size in sizes]
    made = built([(contents[start : start + 5], Compression.NONE, 0) for start in range(0, len(contents), 5)])
    assert rows_at_once(made, 0, 1000) == rows_one_by_one(made, 0, 1000)


def test_highly_compressed_batches_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "SPANS_BYTES", 10_000)
    made = built([([Record(0, 1, None, bytes(4000))], Compression.ZSTD, 0)] * 8)
    pieces = list(read_spans([packed(batch, read_header(batch)) for batch in made], 0, 100))
    assert [len(piece) for piece in pieces] == [3, 3, 2]
    assert rows_at_once(made, 2, 7) == rows_one_by_one(made, 2, 7)


def test_constant_columns_and_append_time() -> None:
    batch = build_batch([Record(0, 10, None, b"a"), Record(0, 11, None, b"b")])
    header = read_header(batch)
    header.attributes |= 0x08
    header.max_timestamp = 99
    stamped = memoryview(bytes(seal(header, bytes(batch[HEADER_BYTES:]))))
    (spans,) = read_spans([packed(stamped, read_header(stamped))], 0, 10)
    assert COLUMNS["timestampType"](PARTITION, spans).to_pylist() == [1, 1]
    assert spans.timestamps_ms.tolist() == [99, 99]
    assert COLUMNS["topic"](PARTITION, spans).to_pylist() == ["orders", "orders"]
    assert COLUMNS["partition"](PARTITION, spans).to_pylist() == [3, 3]


def test_huge_timestamps_do_not_overflow() -> None:
    batch = memoryview(bytes(build_batch([Record(0, 2**62, None, b"a")])))
    (spans,) = read_spans([packed(batch, read_header(batch))], 0, 10)
    assert COLUMNS["timestamp"](PARTITION, spans).view(pa.int64())[0].as_py() > 2**62


def test_a_header_name_that_is_not_utf8_has_replacement_characters() -> None:
    batch = bytes(build_batch([Record(0, 1, None, b"v", [("ab", b"1")])]))
    header = read_header(batch)
    broken = memoryview(bytes(seal(header, batch[HEADER_BYTES:].replace(b"ab", b"\xff\xfe"))))
    (spans,) = read_spans([packed(broken, header)], 0, 10)
    assert COLUMNS["headers"](PARTITION, spans).to_pylist() == [[{"key": "��", "value": b"1"}]]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_corrupt_records_are_rejected_or_read_within_their_bounds(data) -> None:
    contents = data.draw(st.lists(records, min_size=1, max_size=4))
    batch = bytes(build_batch(contents))
    payload = bytearray(batch[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    mangled = memoryview(bytes(seal(read_header(batch), payload)))
    try:
        rows_at_once([mangled], 0, 2**62)
    except CorruptBatch:
        pass
    except UnicodeDecodeError as error:
        raise AssertionError("columns hold text that is none") from error


@given(st.lists(st.integers(min_value=-(2**63), max_value=2**63 - 1), min_size=1))
def test_varints_of_many_records(numbers: list[int]) -> None:
    encoded = [encode_varint(number) for number in numbers]
    starts = np.cumsum([0, *(len(one) for one in encoded)])
    values, behind = read_varints(np.frombuffer(b"".join(encoded), np.uint8), starts[:-1])
    assert values.tolist() == numbers
    assert behind.tolist() == starts[1:].tolist()


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 12])
def test_unterminated_varints(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_varints(np.frombuffer(data, np.uint8), np.array([0]))


def test_binary_columns_with_nulls_at_both_ends() -> None:
    column = binary_column(b"abcdef", np.array([0, 1, 4, 6]), np.array([-1, 2, 0, -1]))
    assert column.to_pylist() == [None, b"bc", b"", None]
    assert binary_column(b"", np.array([], np.int64), np.array([], np.int64)).to_pylist() == []
