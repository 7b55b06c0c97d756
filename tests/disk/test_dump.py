"""`log dump` of valid and of damaged files."""

import pytest

from runnel.batch.build import build_batch
from runnel.batch.compression import Compression
from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.header import patch_offset_and_epoch, read_header
from runnel.batch.records import Record
from runnel.disk.dump import (
    AbortedRow,
    BatchRow,
    IndexRow,
    ProblemRow,
    ProducerRow,
    RecordRow,
    SegmentRow,
    dump,
)
from runnel.disk.os_files import OsFiles
from runnel.log.aborted import AbortedTransaction, encode_aborted
from runnel.log.index import OffsetIndex, TimeIndex
from runnel.log.producer_snapshot import encode_producers
from runnel.log.producers import Producer

BASE = 100


def segment_batches() -> list[bytearray]:
    marker = build_end_marker(EndMarker(True, 4), producer_id=8, producer_epoch=1, timestamp_ms=7)
    batches = [
        build_batch([Record(0, 10, b"k", b"v", [("h", b"x")])]),
        build_batch([Record(0, 30, None, b"a"), Record(0, 20, b"b", None)], compression=Compression.ZSTD),
        marker,
    ]
    offset = BASE
    for batch in batches:
        patch_offset_and_epoch(batch, 0, offset, 2)
        offset = read_header(batch).next_offset
    return batches


@pytest.fixture
def folder(tmp_path):
    """A partition's folder with one sound segment, its indexes, and a producer snapshot."""
    folder = tmp_path / "data" / "topic-0"
    folder.mkdir(parents=True)
    batches = segment_batches()
    (folder / f"{BASE:020d}.log").write_bytes(b"".join(batches))
    offsets, times = OffsetIndex(BASE), TimeIndex(BASE)
    offsets.append(BASE + 2, len(batches[0]))
    times.append(10, BASE)
    times.append(30, BASE + 2)
    (folder / f"{BASE:020d}.index").write_bytes(offsets.encode())
    (folder / f"{BASE:020d}.timeindex").write_bytes(times.encode())
    aborted = [AbortedTransaction(8, BASE, BASE + 3, BASE + 4)]
    (folder / f"{BASE:020d}.txnindex").write_bytes(encode_aborted(aborted))
    (folder / f"{BASE:020d}.snapshot").write_bytes(encode_producers([Producer(8, 1, (), 5)]))
    return folder


def rows(path, **settings):
    return list(dump(OsFiles(), str(path), **settings))


def problems(path):
    return [row for row in rows(path) if isinstance(row, ProblemRow)]


def test_a_sound_folder_is_listed_without_problems(folder):
    segment, first, second, third, offset_index, time_index, index, aborted, producer = rows(folder)
    assert isinstance(segment, SegmentRow) and segment.base_offset == BASE
    assert isinstance(first, BatchRow) and first.position == 0 and first.compression == "none"
    assert isinstance(second, BatchRow) and second.compression == "zstd" and second.crc_is_valid
    assert second.position == first.size_bytes and second.header.last_offset == BASE + 2
    assert isinstance(third, BatchRow) and third.marker == EndMarker(True, 4)
    assert isinstance(offset_index, IndexRow) and offset_index.entries == 1
    assert isinstance(time_index, IndexRow) and time_index.entries == 2
    assert isinstance(index, IndexRow) and index.entries == 1
    assert isinstance(aborted, AbortedRow) and aborted.producer_id == 8 and aborted.last_offset == BASE + 3
    assert isinstance(producer, ProducerRow) and producer.producer.producer_id == 8
    assert rows(folder / f"{BASE:020d}.txnindex") == [index, aborted]


def test_records_come_on_demand(folder):
    records = [row for row in rows(folder, with_records=True) if isinstance(row, RecordRow)]
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in records[:3]] == [
        (100, 10, b"k", b"v"),
        (101, 30, None, b"a"),
        (102, 20, b"b", None),
    ]
    assert records[0].headers == [("h", b"x")]


def test_a_whole_data_directory_is_walked(folder):
    assert rows(folder.parent) == rows(folder)
    assert rows(folder / f"{BASE:020d}.log") == rows(folder)[:-1]


def damage(folder, suffix: str, change) -> None:
    path = folder / f"{BASE:020d}{suffix}"
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def test_a_checksum_mismatch_is_shown_and_the_dump_continues(folder):
    def flip(data):
        data[65] ^= 1

    damage(folder, ".log", flip)
    assert [row.crc_is_valid for row in rows(folder) if isinstance(row, BatchRow)] == [False, True, True]
    assert "checksum" in problems(folder)[0].text


def test_a_torn_tail_is_shown_after_the_valid_batches(folder):
    damage(folder, ".log", lambda data: data.__delitem__(slice(len(data) - 5, None)))
    assert len([row for row in rows(folder) if isinstance(row, BatchRow)]) == 2
    assert "damaged" in problems(folder)[0].text


def test_garbage_instead_of_batches_is_shown(folder):
    damage(folder, ".log", lambda data: data.__setitem__(slice(None), bytes(500)))
    assert "damaged" in problems(folder)[0].text


def test_offsets_that_go_back_are_shown(folder):
    first = segment_batches()[0]
    damage(folder, ".log", lambda data: data.extend(first))
    assert "offset 100 comes where 104" in problems(folder)[0].text


@pytest.mark.parametrize(
    ("suffix", "position", "text"),
    [
        (".index", 3, "ends with offset"),
        (".index", 7, "no batch at position"),
        (".timeindex", 7, "the latest with"),
        (".txnindex", 25, "no end marker of producer 8"),
        (".txnindex", 9, "no end marker of producer 9"),
    ],
)
def test_a_wrong_index_entry_is_shown(folder, suffix, position, text):
    def change(data):
        data[position] ^= 1

    damage(folder, suffix, change)
    assert text in problems(folder)[0].text


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_cut_off_file_is_shown(folder, suffix):
    damage(folder, suffix, lambda data: data.pop())
    (problem,) = problems(folder)
    assert problem.path.endswith(suffix)
