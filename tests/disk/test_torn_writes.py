"""Recovery in the same boot of the machine: an interrupted write is truncated, anything else is damage."""

import errno
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.header import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_POSITION,
    patch_offset_and_epoch,
    read_header,
)
from runnel.disk import torn_write
from runnel.disk.disk_log import DiskLog
from runnel.disk.torn_write import BATCH_BYTES_MAX, is_torn_write
from runnel.log.names import LAST_BOOT, LOG, offset_name
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from runnel.ports.files import File
from runnel.sim.files import PowerFailure, SimFiles
from tests.disk.test_recovery import CONFIG, FOLDER, filled, state_of
from tests.disk.world import (
    EVERYTHING,
    PARTITION,
    START_MS,
    TOPIC_ID,
    Place,
    append,
    batch,
    offsets_of,
    read_all,
    run_now,
)

UNCHECKED = (*range(8), *range(LENGTH_PREFIX_BYTES, MAGIC_POSITION))
"""Base offset and leader epoch of a batch, which its checksum does not cover."""


def path_of(base_offset: int) -> str:
    return f"{FOLDER}/{offset_name(base_offset, LOG)}"


def assert_damaged(log: DiskLog, batches: list[bytes]) -> None:
    """It is read-only, and these batches can be read."""
    assert log.is_damaged and log.failure is not None and "damaged at position" in log.failure
    assert read_all(log) == batches
    with pytest.raises(StorageFailed):
        append(log, batch(b"x"))


@given(st.data())
def test_the_last_file_cut_anywhere_ends_with_its_last_whole_batch(data) -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place)
    batches, active = read_all(log), log.segments.active
    size_bytes = data.draw(st.integers(0, active.size_bytes - 1))
    files.open(path_of(active.base_offset)).truncate(size_bytes)
    kept = [one for one in batches if read_header(one).base_offset < active.base_offset]
    kept += batches[len(kept) :][: size_bytes // len(batches[-1])]
    _, log = place.open_log(CONFIG)
    assert log.failure is None and read_all(log) == kept
    assert append(log, batch(b"next"), leader_epoch=9) == len(kept)


@given(st.data())
def test_a_flipped_bit_is_damage(data) -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place)
    batches = read_all(log)
    number = data.draw(st.integers(0, len(batches) - 1))
    checked = [byte for byte in range(len(batches[number])) if byte not in UNCHECKED]
    segment, position = log.segments.locate(number)
    path = path_of(segment.base_offset)
    files.flip_bit(path, position + data.draw(st.sampled_from(checked)), data.draw(st.integers(0, 7)))
    harmed = {name: files.read(f"{FOLDER}/{name}") for name in files.names(FOLDER) if name.endswith(LOG)}
    directory, log = place.open_log(CONFIG)
    assert_damaged(log, batches[:number])
    directory.close()
    # A power failure later does not explain it.
    files.boots += 1
    _, log = place.open_log(CONFIG)
    assert_damaged(log, batches[:number])
    assert {name: files.read(f"{FOLDER}/{name}") for name in harmed} == harmed
    # What the message names as the remedy.
    files.remove(f"/data/{LAST_BOOT}")
    _, log = place.open_log(CONFIG)
    assert log.failure is None and read_all(log) == batches[:number]
    assert append(log, batch(b"next"), leader_epoch=9) == number


def test_the_end_of_a_segment_before_the_last_is_not_lost_by_an_interrupted_write() -> None:
    for lost_bytes in (1, 81):
        files = SimFiles()
        place = Place(files)
        log = filled(place)
        batches, first = read_all(log), log.segments.segments[0]
        files.open(path_of(0)).truncate(first.size_bytes - lost_bytes)
        _, log = place.open_log(CONFIG)
        assert_damaged(log, batches[: first.next_offset - 1])


def test_a_segment_that_is_missing_is_damage() -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place)
    batches, second = read_all(log), log.segments.segments[1]
    files.remove(path_of(second.base_offset))
    _, log = place.open_log(CONFIG)
    assert_damaged(log, batches[: second.base_offset])


def test_a_write_of_several_segments_is_interrupted_in_the_first() -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place, 3)
    batches = read_all(log)
    files.open(path_of(0)).pwritev([batch(b"incomplete")[:70]], log.size_bytes)
    for base_offset in (5, 9):
        files.open(path_of(base_offset), create=True)
    _, log = place.open_log(CONFIG)
    assert log.failure is None and read_all(log) == batches
    assert append(log, batch(b"next")) == 3
    _, log = place.open_log(CONFIG)
    assert offsets_of(read_all(log)) == [0, 1, 2, 3]


@pytest.mark.parametrize("operations", range(1, 12))
def test_a_write_of_several_segments_that_fails_is_not_damage_however_far_it_was_undone(
    operations: int,
) -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place, 3)
    for number in range(30):
        log.stage(memoryview(batch(b"%d" % number * 10)), 0, START_MS, Origin.CLIENT)

    written = []

    def fault(operation: str, path: str) -> None:
        if operation == "pwritev":
            written.append(path)
        if operation == "pwritev" and len(written) == 4:
            files.power_failure_at = files.operations + operations
            raise OSError(errno.ENOSPC, "no space left on device", path)

    files.fault = fault
    with pytest.raises((StorageFailed, PowerFailure)):
        log.write_staged()
    files.fault, files.power_failure_at = None, -1
    _, log = place.open_log(CONFIG)
    assert log.failure is None
    assert append(log, batch(b"next")) == log.written_offset - 1


def test_a_log_that_was_not_opened_since_a_power_failure_is_still_recovered_as_after_one() -> None:
    files = SimFiles()
    place = Place(files)
    log = filled(place)
    batches = read_all(log)
    files.flip_bit(path_of(0), len(batches[0]) + 70)
    files.boots += 1
    directory = place.open()
    directory.upkeep(START_MS)
    directory = place.open()
    log = directory.open_log(PARTITION, TOPIC_ID, CONFIG)
    assert log.failure is None and log.written_offset == 1
    # From now on, its files are as they were written.
    directory.upkeep(START_MS)
    append(log, batch(b"1" * 10), leader_epoch=9)
    append(log, batch(b"2" * 10), leader_epoch=9)
    files.flip_bit(path_of(0), len(batches[0]) + 70)
    _, log = place.open_log(CONFIG)
    assert_damaged(log, batches[:1])


def test_damage_below_the_log_start_does_not_bring_deleted_records_back() -> None:
    files = SimFiles()
    place = Place(files)
    config = LogConfig()
    log = filled(place, 10, config=config)
    sizes = [len(one) for one in read_all(log)]
    log.delete_records_before(5)
    files.flip_bit(path_of(0), sum(sizes[:3]) + 70)
    for _ in range(2):
        directory, log = place.open_log(config)
        assert log.is_damaged and log.log_start_offset == 5
        for offset in range(10):
            with pytest.raises(ApiError):
                run_now(log.read_batches(offset, 1_000, EVERYTHING))
        # Its checkpoints are stored.
        directory.upkeep(START_MS)
        directory.close()


def test_damage_of_a_log_that_was_removed_is_forgotten() -> None:
    files = SimFiles()
    place = Place(files)
    filled(place, 5)
    files.flip_bit(path_of(0), 70)
    directory, log = place.open_log(CONFIG)
    assert log.is_damaged
    directory.remove_log(PARTITION)
    log = directory.open_log(PARTITION, TOPIC_ID, CONFIG)
    for number in range(3):
        append(log, batch(b"%d" % number))
    directory.upkeep(START_MS)
    files.flip_bit(path_of(0), 70)
    files.boots += 1
    _, log = place.open_log(CONFIG)
    assert log.failure is None and log.written_offset == 0


def test_without_a_boot_id_every_crash_may_have_been_a_power_failure() -> None:
    files = SimFiles()
    files.boot_id = lambda: ""  # type: ignore[method-assign]
    place = Place(files)
    log = filled(place, 5)
    batches = read_all(log)
    files.flip_bit(path_of(0), len(batches[0]) + 70)
    _, log = place.open_log(CONFIG)
    assert log.failure is None and read_all(log) == batches[:1]


@pytest.mark.parametrize("content", [b"", b"\x00" * 30, b"00000000\n[]"])
def test_a_damaged_file_of_the_last_boot_is_not_used(content: bytes) -> None:
    files = SimFiles()
    place = Place(files)
    before = state_of(filled(place))
    files.write(f"/data/{LAST_BOOT}", content, sync=False)
    _, log = place.open_log(CONFIG)
    assert state_of(log) == before


def test_a_record_that_contains_a_batch_may_be_incomplete() -> None:
    """Only batches with offsets of this log count."""
    files = SimFiles()
    place = Place(files)
    config = LogConfig()
    log = filled(place, 3, config=config)
    inner = batch(b"another cluster")
    data = batch(bytes(inner) * 3 + bytes(100))
    files.open(path_of(0)).pwritev([data[:-50]], log.size_bytes)
    _, log = place.open_log(config)
    assert log.failure is None and log.written_offset == 3


class CountedFile:
    """A file in memory that counts what is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    def pread(self, count: int, position: int) -> bytes:
        found = self.data[position : position + count]
        self.read_bytes += len(found)
        return found


def is_torn(data: bytes, next_offset: int) -> tuple[bool, CountedFile]:
    file = CountedFile(data)
    return is_torn_write(cast(File, file), 0, len(data), next_offset), file


def stored(value: bytes, offset: int) -> bytearray:
    data = bytearray(batch(value))
    patch_offset_and_epoch(data, 0, offset, 0)
    return data


FILLS = (b"\0", b"\2", b"\0\0\0\0\2", bytes(16) + b"\2", b"any text ")


@pytest.mark.parametrize("first_offset", [0, 7, 2**32 - 3, 2**32, 2**40])
@pytest.mark.parametrize("fill", FILLS)
def test_an_intact_batch_is_found_anywhere_behind_the_incomplete_one(
    monkeypatch: pytest.MonkeyPatch, first_offset: int, fill: bytes
) -> None:
    monkeypatch.setattr(torn_write, "CHUNK_BYTES", 128)
    for padding in range(60, 260, 7):
        begin = stored(fill * 400, first_offset)[: HEADER_BYTES + padding]
        begin[8:12] = (10_000).to_bytes(4)
        assert is_torn(bytes(begin), first_offset)[0]
        for offset in (first_offset, first_offset + 5):
            whole = begin + stored(b"intact", offset)
            assert not is_torn(bytes(whole), first_offset)[0]
            whole[-1] ^= 1
            assert is_torn(bytes(whole), first_offset)[0]


def test_bytes_that_look_like_batches_are_not_all_checked() -> None:
    """Each would be read up to the end of the file."""
    count = 5_000
    inner = bytearray()
    for number in range(count):
        header = stored(b"", 9)[:HEADER_BYTES]
        header[8:12] = ((count - number) * HEADER_BYTES - LENGTH_PREFIX_BYTES).to_bytes(4)
        inner += header
    outer = stored(bytes(inner) + bytes(100), 9)[:-100]
    found, file = is_torn(bytes(outer), 9)
    assert found and file.read_bytes < 10 * len(outer)


@pytest.mark.parametrize(
    ("size_bytes", "is_possible"), [(BATCH_BYTES_MAX, True), (BATCH_BYTES_MAX + 1, False)]
)
def test_no_batch_is_larger_than_a_request(size_bytes: int, is_possible: bool) -> None:
    begin = stored(b"x" * 500, 9)[:300]
    begin[8:12] = (size_bytes - LENGTH_PREFIX_BYTES).to_bytes(4)
    assert is_torn(bytes(begin), 9)[0] is is_possible


@pytest.mark.parametrize("size_bytes", [100, 2**20, 2**20 + 1])
def test_only_zeros_are_space_that_was_never_written_to(size_bytes: int) -> None:
    assert is_torn(bytes(size_bytes), 9)[0]
    for position in (0, 62, size_bytes - 1):
        data = bytearray(size_bytes)
        data[position] = 1
        assert not is_torn(bytes(data), 9)[0]
