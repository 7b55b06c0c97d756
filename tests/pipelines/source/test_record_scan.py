"""Parallel scans find the same records as a sequential scan, also if values look like records."""

import random

import pytest

from runnel.batch.build import build_batch, encode_record
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import BatchHeader, read_header
from runnel.batch.records import Record, unpack_records, walk_records
from runnel.pipelines.source import record_scan
from runnel.pipelines.source.record_scan import SPLIT_RECORDS, Scan, record_starts


def unpacked(contents: list[Record]) -> tuple[bytes, BatchHeader]:
    batch = build_batch(contents)
    header = read_header(batch)
    return unpack_records(batch, header), header


def check(batches: list[tuple[bytes, BatchHeader]]) -> None:
    expected: list[int] = []
    position = 0
    for data, header in batches:
        expected += [position + span[0] for span in walk_records(data, header.record_count)]
        position += len(data)
    data = b"".join(part for part, _ in batches)
    found = record_starts(data, [len(part) for part, _ in batches], [header for _, header in batches])
    assert found.tolist() == expected


@pytest.fixture
def parallel_results(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The result of every parallel scan."""
    results: list[bool] = []
    scan = record_scan._scan_in_parallel

    def watched(*arguments) -> bool:
        results.append(scan(*arguments))
        return results[-1]

    monkeypatch.setattr(record_scan, "_scan_in_parallel", watched)
    return results


def text(size: int, chance: random.Random) -> bytes:
    return bytes(chance.choices(b"abcdefghij{}:,0123", k=size))


def zeros(size: int, chance: random.Random) -> bytes:
    return bytes(chance.choices(b"\x00\x00\x02\x10\x80", k=size))


@pytest.mark.parametrize("fill", [text, zeros])
@pytest.mark.parametrize("headers", [(), (("a", b"1"),)])
@pytest.mark.parametrize("seed", range(3))
def test_batches_of_all_lengths(fill, headers, seed: int, parallel_results) -> None:
    chance = random.Random(seed)
    batches = []
    for count in [*(chance.randint(1, 90) for _ in range(60)), 40 * SPLIT_RECORDS, 3 * SPLIT_RECORDS + 1]:
        sizes = [chance.choice((0, 5, 30, 60, 62, 64, 100)) for _ in range(count)]
        batches.append(
            unpacked(
                [
                    Record(0, 5 * number, None, fill(size, chance), headers)
                    for number, size in enumerate(sizes)
                ]
            )
        )
    chance.shuffle(batches)
    check(batches)
    assert parallel_results == [True], "the fast way was taken, and arrived"


def test_a_long_batch_is_split(parallel_results) -> None:
    check(
        [unpacked([Record(0, number, b"key", b"v" * (number % 90)) for number in range(50 * SPLIT_RECORDS)])]
    )
    assert parallel_results == [True]


def test_values_that_look_like_records_are_not_read_as_records(parallel_results) -> None:
    def pretender(number: int) -> bytes:
        # The value contains two records with consecutive numbers.
        return encode_record(0, number, None, b"", ()) + encode_record(0, number + 1, None, b"", ())

    check([unpacked([Record(0, 0, None, pretender(number) * 3) for number in range(40 * SPLIT_RECORDS)])])
    assert parallel_results == [False], "scans that were cut at the wrong place do not arrive"


def test_records_too_long_for_parallel_scans(parallel_results) -> None:
    contents = [Record(0, 0, None, b"v" * (9000 if number % 50 == 7 else 10)) for number in range(60)]
    check([unpacked(contents) for _ in range(40)])
    assert parallel_results == [False]


def test_compacted_batches_are_not_split() -> None:
    data, header = unpacked([Record(0, 0, None, b"value") for _ in range(4 * SPLIT_RECORDS)])
    header.last_offset_delta += 100
    assert record_scan._split(data, Scan(0, len(data), 0, header.record_count), header) == [
        Scan(0, len(data), 0, header.record_count)
    ]


@pytest.mark.parametrize("count", [1, 100])
def test_incomplete_records_are_rejected(count: int) -> None:
    data, header = unpacked([Record(0, 0, None, b"value") for _ in range(5)])
    for change in (
        data[:-1],
        data + b"\x00",
        b"\x01" + data[1:],
        b"\xff" * len(data),
    ):
        parts = [(data, header)] * (count - 1) + [(change, header)]
        with pytest.raises(CorruptBatch):
            record_starts(
                b"".join(part for part, _ in parts),
                [len(part) for part, _ in parts],
                [one for _, one in parts],
            )
    header.record_count = 6
    with pytest.raises(CorruptBatch):
        record_starts(data, [len(data)], [header])
