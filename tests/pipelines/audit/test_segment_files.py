"""Segment files are read split by split: that must not show in the findings."""

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.header import HEADER_BYTES
from runnel.pipelines.audit import folder
from runnel.pipelines.audit.batch_summary import UNREADABLE, Tail
from runnel.pipelines.audit.folder import read_file_split
from runnel.pipelines.audit.splits import FileSplit
from tests.pipelines.audit.logs import batch, summaries

LOG = [batch(0), batch(10, 5), batch(15, 200), batch(215, 1), batch(216, 14)]


@pytest.fixture
def segment(tmp_path):
    path = tmp_path / "00000000000000000000.log"

    def read(data: bytes, is_last: bool = True):
        path.write_bytes(data)
        return list(read_file_split(FileSplit("orders", 0, str(path), 0, is_last), 0))

    return read


@given(
    st.integers(1, 3000),
    st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(0, 200)), max_size=3),
    st.integers(0, 300),
)
def test_facts_are_those_of_the_whole_file(tmp_path_factory, chunk_bytes, damages, cut_bytes):
    parts = [bytearray(entry) for entry in LOG]
    for number, position in damages:
        body = len(parts[number]) - HEADER_BYTES
        parts[number][HEADER_BYTES + position % body] ^= 0x40
    data = b"".join(parts)
    data = data[: len(data) - cut_bytes]
    path = tmp_path_factory.mktemp("log") / "segment"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folder, "CHUNK_BYTES", chunk_bytes)
        for is_last, tail in ((True, Tail.ENDS), (False, Tail.CLOSED)):
            assert list(read_file_split(FileSplit("orders", 0, str(path), 0, is_last), 0)) == summaries(
                data, tail
            )


def test_garbage_longer_than_a_chunk_ends_at_the_next_batch(segment, monkeypatch):
    monkeypatch.setattr(folder, "CHUNK_BYTES", 200)
    data = LOG[0] + bytes(5000) + LOG[2] + LOG[3]
    assert segment(data) == summaries(data)
    assert [summary.problem for summary in segment(data)] == [None, UNREADABLE, None, None]


def test_what_the_disk_cannot_read_is_damage_and_the_rest_is_read(segment, monkeypatch):
    large = [batch(offset, 500) for offset in range(0, 5000, 500)]
    starts = [sum(map(len, large[:number])) for number in range(len(large))]
    bad = starts[4] + len(large[4]) // 2
    pread = os.pread

    def pread_of_a_bad_disk(descriptor, size_bytes, position):
        if position <= bad < position + size_bytes:
            raise OSError(errno.EIO, "Input/output error")
        return pread(descriptor, size_bytes, position)

    monkeypatch.setattr(os, "pread", pread_of_a_bad_disk)
    found = segment(b"".join(large))
    valid = [summary.base_offset for summary in found if summary.problem is None]
    assert [summary for summary in found if summary.problem is not None]
    lost = set(range(0, 5000, 500)) - set(valid)
    assert 2000 in lost and len(lost) <= 2
