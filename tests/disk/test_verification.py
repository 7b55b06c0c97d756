"""Verification of stored batches, and damage that reads meet: in segments, indexes and epochs."""

from random import Random

import pytest

from runnel.disk.disk_log import DiskLog
from runnel.log.names import INDEX, LOG, offset_name
from runnel.model.errors import DamagedLog, StorageFailed
from runnel.model.log_config import LogConfig
from runnel.ports.disk import NotResident, Verified
from tests.disk.world import Place, append, batch, commit, files_of, in_loop, read_all, run_now

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)
FOLDER = "/data/orders-0"


def filled(place: Place, count: int = 60) -> None:
    """A log of several segments, closed cleanly."""
    directory, log = place.open_log(SMALL)
    for number in range(count):
        append(log, batch(b"value %d" % number), leader_epoch=number // 25)
    directory.close()


def verify_all(log: DiskLog, max_bytes: int = 700) -> Verified:
    offset = log.log_start_offset
    while offset < log.written_offset:
        found = run_now(log.verify(offset, max_bytes))
        if found.damage is not None:
            return found
        assert found.next_offset > offset
        offset = found.next_offset
    return Verified(offset, 0)


def test_a_sound_log_is_verified_in_pieces() -> None:
    place = Place()
    filled(place)
    _, log = place.open_log(SMALL)
    assert len(log.segments.segments) == 3
    assert verify_all(log) == Verified(60, 0)
    log.delete_records_before(30)
    assert run_now(log.verify(0, 10**6)).next_offset == 60, "from the log start on"


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_bit_of_a_segment_is_found(seed: int) -> None:
    """Wherever it is: in the records, the header, or the fields that the checksum leaves out."""
    random, place = Random(seed), Place()
    filled(place)
    files = files_of(place)
    name = random.choice(sorted(name for name in files.names(FOLDER) if name.endswith(LOG)))
    path = f"{FOLDER}/{name}"
    files.flip_bit(path, random.randrange(files.size_bytes(path)), random.randrange(8))
    _, log = place.open_log(SMALL)
    found = verify_all(log)
    assert found.damage is not None and FOLDER in found.damage
    base_offset = int(name.removesuffix(LOG))
    assert found.next_offset >= base_offset, "what is before the segment is sound"


def test_a_segment_that_is_missing_or_cut_is_found() -> None:
    for harm in ("missing", "cut"):
        place = Place()
        filled(place)
        files = files_of(place)
        name = sorted(name for name in files.names(FOLDER) if name.endswith(LOG))[1]
        if harm == "missing":
            files.remove(f"{FOLDER}/{name}")
        else:
            files.cut(f"{FOLDER}/{name}", 50)
        _, log = place.open_log(SMALL)
        found = verify_all(log)
        assert found.damage is not None
        assert found.next_offset == int(name.removesuffix(LOG))
        with pytest.raises(DamagedLog):
            log.read(found.next_offset, 1000, 60, at_least_one=True)


def test_nothing_is_appended_behind_a_hole() -> None:
    place = Place()
    filled(place)
    _, log = place.open_log(SMALL)
    path = log.segments.path(log.segments.active, LOG)
    files_of(place).cut(path, 10)
    with pytest.raises(StorageFailed, match="ends before"):
        append(log, batch(b"next"))
    assert files_of(place).size_bytes(path) == 10


def test_epochs_that_differ_from_those_of_the_batches_are_found() -> None:
    place = Place()
    filled(place)
    _, log = place.open_log(SMALL)
    log.epochs.truncate_to(50)
    found = verify_all(log)
    assert found.damage is not None and "leader epoch 2, not 1" in found.damage


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_of_an_index_hides_no_record(seed: int) -> None:
    """Index files have no checksum: a wrong entry is noticed by its user, and the index is rebuilt."""
    random, place = Random(seed), Place()
    filled(place)
    files = files_of(place)
    _, twin = place.open_log(SMALL)
    expected = read_all(twin)
    name = random.choice(sorted(name for name in files.names(FOLDER) if name.endswith(INDEX)))
    path = f"{FOLDER}/{name}"
    files.flip_bit(path, random.randrange(files.size_bytes(path)), random.randrange(8))
    _, log = place.open_log(SMALL)
    offsets = list(range(60))
    random.shuffle(offsets)
    for offset in offsets:
        try:
            found = log.read(offset, 300, 60, at_least_one=True, may_block=False)
        except NotResident as cold:
            cold.load.run()
            cold.load.finish()
            found = log.read(offset, 300, 60, at_least_one=True, may_block=True)
        data = b"".join(bytes(part) for part in found.parts)  # type: ignore[arg-type]
        assert data == b"".join(expected[offset : found.end_offset])
    assert verify_all(log) == Verified(60, 0)


@in_loop
async def test_records_from_the_disk_are_verified_before_they_are_sent() -> None:
    """A thread loads what is not in the page cache; it is the first to see what the disk returns."""
    place = Place()
    filled(place)
    files = files_of(place)
    path = f"{FOLDER}/{offset_name(0, LOG)}"
    files.flip_bit(path, files.size_bytes(path) - 1)
    directory, log = place.open_log(SMALL)
    commit(log)
    files.is_resident = lambda path, position, length: False
    with pytest.raises(NotResident) as cold:
        log.read(0, 10**6, 60, at_least_one=True, may_block=False)
    with pytest.raises(DamagedLog, match="checksum"):
        await directory.run_blocking(cold.value.load)
