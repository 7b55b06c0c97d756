"""Many walks side by side find the records that one walk finds, also where bytes pretend to be records."""

import random

import pytest

from runnel.batch.build import build_batch, encode_record
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import BatchHeader, read_header
from runnel.batch.records import Record, unpack_records, walk_records
from runnel.pipelines.source import walking
from runnel.pipelines.source.walking import CUT_RECORDS, Walk, record_starts


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
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each time the walks that went side by side arrived."""
    arrived: list[bool] = []
    walk = walking._walk_side_by_side

    def watched(*arguments) -> bool:
        arrived.append(walk(*arguments))
        return arrived[-1]

    monkeypatch.setattr(walking, "_walk_side_by_side", watched)
    return arrived


def text(size: int, chance: random.Random) -> bytes:
    return bytes(chance.choices(b"abcdefghij{}:,0123", k=size))


def zeros(size: int, chance: random.Random) -> bytes:
    return bytes(chance.choices(b"\x00\x00\x02\x10\x80", k=size))


@pytest.mark.parametrize("fill", [text, zeros])
@pytest.mark.parametrize("headers", [(), (("a", b"1"),)])
@pytest.mark.parametrize("seed", range(3))
def test_batches_of_all_lengths(fill, headers, seed: int, side_by_side) -> None:
    chance = random.Random(seed)
    batches = []
    for count in [*(chance.randint(1, 90) for _ in range(60)), 40 * CUT_RECORDS, 3 * CUT_RECORDS + 1]:
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
    assert side_by_side == [True], "the fast way was taken, and arrived"


def test_one_long_batch_is_cut(side_by_side) -> None:
    check([unpacked([Record(0, number, b"key", b"v" * (number % 90)) for number in range(50 * CUT_RECORDS)])])
    assert side_by_side == [True]


def test_values_that_look_like_records_are_not_read_as_records(side_by_side) -> None:
    def pretender(number: int) -> bytes:
        # What stands in it would be two records, rightly numbered, if a record began there.
        return encode_record(0, number, None, b"", ()) + encode_record(0, number + 1, None, b"", ())

    check([unpacked([Record(0, 0, None, pretender(number) * 3) for number in range(40 * CUT_RECORDS)])])
    assert side_by_side == [False], "walks that were cut at the wrong place do not arrive"


def test_records_too_long_for_the_fast_way(side_by_side) -> None:
    contents = [Record(0, 0, None, b"v" * (9000 if number % 50 == 7 else 10)) for number in range(60)]
    check([unpacked(contents) for _ in range(40)])
    assert side_by_side == [False]


def test_batches_that_compaction_has_thinned_are_not_cut() -> None:
    data, header = unpacked([Record(0, 0, None, b"value") for _ in range(4 * CUT_RECORDS)])
    header.last_offset_delta += 100
    assert walking._cut(data, Walk(0, len(data), 0, header.record_count), header) == [
        Walk(0, len(data), 0, header.record_count)
    ]


@pytest.mark.parametrize("count", [1, 100])
def test_what_is_not_whole_records_is_refused(count: int) -> None:
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
