"""Reads of encrypted logs that a thread does: what is kept for their readers, and what is verified."""

from dataclasses import replace

import pytest

from runnel.log.names import LOG
from runnel.model.errors import DamagedLog
from runnel.model.log_config import LogConfig
from runnel.ports.disk import NotResident
from tests.disk.test_encryption import ENCRYPTED, FOLDER, PLAIN, encrypted_place, flip
from tests.disk.world import EVERYTHING, append, batch, files_of, read_all, run_now, slice_bytes


def test_large_reads_are_decrypted_by_a_thread() -> None:
    config = LogConfig(encryption_enable=True)
    _, log = encrypted_place().open_log(config)
    for number in range(30):
        append(log, batch(bytes([number]) * 50_000))
    whole = b"".join(read_all(log))
    with pytest.raises(NotResident) as caught:
        log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)
    run_now(caught.value.load)
    found = log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=True)
    data = slice_bytes(found)
    assert whole.startswith(data)
    assert 900_000 < len(data) <= 1024 * 1024
    # It was for one reader.
    with pytest.raises(NotResident):
        log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)
    small = log.read(0, 60_000, EVERYTHING, at_least_one=True, may_block=False)
    assert len(slice_bytes(small)) < 60_000


def test_a_reader_gets_nothing_beyond_its_end_from_what_another_one_loaded() -> None:
    _, log = encrypted_place().open_log(LogConfig(encryption_enable=True))
    for _ in range(10):
        append(log, batch(bytes(50_000)))
    with pytest.raises(NotResident) as caught:
        log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)
    run_now(caught.value.load)
    assert log.read(0, 10_000_000, 4, at_least_one=True, may_block=True).end_offset == 4
    with pytest.raises(NotResident):
        log.read(0, 10_000_000, 4, at_least_one=True, may_block=False)


def test_a_reader_gets_no_more_than_it_requests_from_what_another_one_loaded() -> None:
    _, log = encrypted_place().open_log(LogConfig(encryption_enable=True))
    for _ in range(10):
        append(log, batch(bytes(50_000)))
    with pytest.raises(NotResident) as caught:
        log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)
    run_now(caught.value.load)
    assert log.read(0, 120_000, EVERYTHING, at_least_one=True, may_block=True).end_offset == 2
    assert log.read(0, 10, EVERYTHING, at_least_one=True, may_block=True).end_offset == 1
    assert log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=False).end_offset == 10


def test_one_batch_that_is_larger_than_requested() -> None:
    _, log = encrypted_place().open_log(LogConfig(encryption_enable=True))
    for _ in range(2):
        append(log, batch(bytes(100_000)))
    with pytest.raises(NotResident) as caught:
        log.read(0, 10_000, EVERYTHING, at_least_one=True, may_block=False)
    run_now(caught.value.load)
    assert log.read(0, 10_000, EVERYTHING, at_least_one=False, may_block=False).size_bytes == 0
    assert log.read(0, 10_000, EVERYTHING, at_least_one=True, may_block=False).end_offset == 1


@pytest.mark.parametrize("offset", range(6))
def test_offsets_that_compaction_removed(offset: int) -> None:
    _, log = encrypted_place().open_log(LogConfig(encryption_enable=True, segment_bytes=200_000))
    for _ in range(6):
        append(log, batch(bytes(90_000)))
    segments = log.segments.segments
    assert [segment.base_offset for segment in segments] == [0, 2, 4]
    del segments[1]
    log.segments_changed()
    with pytest.raises(NotResident) as caught:
        log.read(offset, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)
    run_now(caught.value.load)
    found = log.read(offset, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)
    assert found.end_offset == (2 if offset < 2 else 6)


def test_what_is_loaded_and_not_asked_for_is_dropped() -> None:
    _, log = encrypted_place().open_log(LogConfig(encryption_enable=True))
    for _ in range(10):
        append(log, batch(bytes(50_000)))
    with pytest.raises(NotResident) as caught:
        log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)
    run_now(caught.value.load)
    log.reader.time_passed()
    log.reader.time_passed()
    with pytest.raises(NotResident):
        log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)


def test_cold_reads_of_plain_segments_are_verified() -> None:
    place = encrypted_place()
    _, log = place.open_log(replace(PLAIN, segment_bytes=100_000))
    append(log, batch(bytes(50_000)))
    log.configure(replace(ENCRYPTED, segment_bytes=100_000))
    for _ in range(2):
        append(log, batch(bytes(70_000)))
    assert [segment.is_encrypted for segment in log.segments.segments] == [False, True, True]
    log.reader.time_passed()
    log.reader.time_passed()
    files_of(place).is_resident = lambda path, position, length: False
    flip(place, f"{FOLDER}/{0:020d}{LOG}", 30_000)
    with pytest.raises(NotResident) as caught:
        log.read(0, 10_000_000, EVERYTHING, at_least_one=True, may_block=False)
    with pytest.raises(DamagedLog):
        run_now(caught.value.load)
