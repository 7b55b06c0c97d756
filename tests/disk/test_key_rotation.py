"""Rotation of the master key: every key file is encrypted again, whatever happens meanwhile."""

import errno
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.key_rotation import RETRY_AFTER_MS, masters_in, rotate_stopped
from runnel.disk.keyring import Keyring, MasterKey, listed_masters
from runnel.disk.truncation import Truncation
from runnel.log.names import CLEANED, KEY, LOG, TEMPORARY
from runnel.model.log_config import LogConfig
from runnel.ports.disk import BadDirectory
from runnel.sim.files import PowerFailure, SimFiles
from tests.disk.world import (
    PARTITION,
    HeldWorkers,
    Place,
    append,
    batch,
    files_of,
    read_all,
)

OLD, NEW, NEWEST = (bytes([number]) * 32 for number in (1, 2, 3))
OLD_ID, NEW_ID, NEWEST_ID = (MasterKey(key).id for key in (OLD, NEW, NEWEST))
CONFIG = LogConfig(segment_bytes=1000, encryption_enable=True, file_delete_delay_ms=0)


def filled(place: Place) -> tuple[DataDirectory, DiskLog]:
    directory, log = place.open_log(CONFIG)
    for number in range(20):
        append(log, batch(b"%d" % number * 100))
    return directory, log


def run_upkeep(place: Place, directory: DataDirectory, rounds: int = 3) -> None:
    for _ in range(rounds):
        place.clock.ms += RETRY_AFTER_MS
        directory.upkeep(place.clock.ms)


def state(place: Place) -> tuple[set[str], set[str]]:
    """The master keys that key files need, and those that are listed."""
    return masters_in(place.files, place.path), listed_masters(place.files, place.path)


def test_the_keys_of_a_running_node_are_rotated() -> None:
    place = Place(master_keys=[OLD])
    directory, log = filled(place)
    batches = read_all(log)
    stored = [place.files.read(log.segments.path(segment, ".log")) for segment in log.segments.segments]
    assert not directory.change_master_keys([OLD])
    assert directory.change_master_keys([NEW, OLD])
    append(log, batch(b"between"))
    run_upkeep(place, directory)
    assert state(place) == ({NEW_ID}, {NEW_ID})
    assert read_all(log)[:-1] == batches
    assert [place.files.read(log.segments.path(segment, ".log")) for segment in log.segments.segments][
        : len(stored) - 1
    ] == stored[:-1]
    # The former key is not needed any more.
    assert directory.change_master_keys([NEW])
    directory.close()
    place.master_keys = [NEW]
    _, log = place.open_log(CONFIG)
    assert read_all(log)[:-1] == batches


def test_a_master_key_that_is_needed_cannot_be_removed() -> None:
    place = Place(master_keys=[OLD])
    directory, log = filled(place)
    with pytest.raises(BadDirectory, match=OLD_ID):
        directory.change_master_keys([NEW])
    append(log, batch(b"more"))
    run_upkeep(place, directory)
    assert state(place) == ({OLD_ID}, {OLD_ID})


def test_a_rotation_continues_after_a_restart() -> None:
    place = Place(master_keys=[OLD])
    directory, log = filled(place)
    directory.close()
    place.master_keys = [NEW, OLD]
    directory, log = place.open_log(CONFIG)
    assert state(place) == ({OLD_ID}, {OLD_ID})
    append(log, batch(b"more"))
    run_upkeep(place, directory)
    assert state(place) == ({NEW_ID}, {NEW_ID})


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_a_crash_at_any_moment(kind: str) -> None:
    for moment in range(1, 80, 3):
        place = Place(master_keys=[OLD])
        files = files_of(place)
        _, log = filled(place)
        batches = read_all(log)
        files.sync_volume("/")
        place.master_keys = [NEW, OLD]
        directory, log = place.open_log(CONFIG)
        files.power_failure_at = files.operations + moment
        with suppress(PowerFailure):
            run_upkeep(place, directory)
        files.power_failure_at = -1
        if kind == "power":
            files.lose_power(Random(moment))
        needed, listed = state(place)
        assert needed <= listed
        directory, log = place.open_log(CONFIG)
        assert log.failure is None
        assert read_all(log) == batches
        run_upkeep(place, directory)
        assert state(place) == ({NEW_ID}, {NEW_ID})
        assert read_all(log) == batches


@pytest.mark.parametrize("failures", [1, 2, 100])
@pytest.mark.parametrize("operation", ["rename", "sync_folder"])
def test_a_power_failure_after_a_step_that_failed(operation: str, failures: int) -> None:
    for moment in range(5):
        place = Place(master_keys=[OLD])
        files = files_of(place)
        directory, log = filled(place)
        batches = read_all(log)
        files.sync_volume("/")
        directory.change_master_keys([NEW, OLD])
        left = [moment, failures]

        def fault(done: str, path: str, left: list[int] = left) -> None:
            is_key_step = done == operation and str(PARTITION) in path and (KEY in path or done != "rename")
            if not is_key_step or left[1] == 0:
                return
            if done == "rename" and left[0]:
                left[0] -= 1
                return
            left[1] -= 1
            raise OSError(errno.EIO, "input/output error", path)

        files.fault = fault
        run_upkeep(place, directory, 1)
        files.lose_power(Random(moment))
        needed, listed = state(place)
        assert needed <= listed
        place.master_keys = [NEW, OLD]
        directory, log = place.open_log(CONFIG)
        run_upkeep(place, directory)
        assert state(place) == ({NEW_ID}, {NEW_ID})
        assert read_all(log) == batches


def test_segments_that_are_replaced_meanwhile_keep_their_own_keys() -> None:
    workers = HeldWorkers()
    place = Place(master_keys=[OLD], workers=workers)
    directory, log = filled(place)
    workers.drain()
    directory.change_master_keys([NEW, OLD])
    place.clock.ms += RETRY_AFTER_MS
    directory.upkeep(place.clock.ms)
    # The new key files are prepared, and before they take over, the log is truncated and written again.
    prepared = f"{place.path}/{PARTITION}/{log.segments.segments[-1].base_offset:020d}{KEY}{TEMPORARY}"
    step = workers.held.pop()
    offset = log.segments.segments[2].base_offset
    outcomes: list[object] = []
    directory.truncate_soon(Truncation(log, offset), outcomes.append)
    step()
    workers.drain()
    assert outcomes == [None]
    assert not place.files.exists(prepared)
    append(log, batch(b"instead"))
    assert len(read_all(log)) == offset + 1
    for _ in range(5):
        run_upkeep(place, directory, 1)
        workers.drain()
    assert state(place) == ({NEW_ID}, {NEW_ID})
    assert len(read_all(log)) == offset + 1
    place.master_keys = [NEW]
    _, log = place.open_log(CONFIG)
    assert len(read_all(log)) == offset + 1


def test_a_second_rotation_during_the_first() -> None:
    workers = HeldWorkers()
    place = Place(master_keys=[OLD], workers=workers)
    directory, log = filled(place)
    workers.drain()
    directory.change_master_keys([NEW, OLD])
    run_upkeep(place, directory, 1)
    directory.change_master_keys([NEWEST, NEW, OLD])
    for _ in range(5):
        workers.drain()
        run_upkeep(place, directory, 1)
    workers.drain()
    assert state(place) == ({NEWEST_ID}, {NEWEST_ID})
    assert len(read_all(log)) == 20


def test_a_removed_log_does_not_stop_the_others() -> None:
    workers = HeldWorkers()
    place = Place(master_keys=[OLD], workers=workers)
    directory, _ = filled(place)
    other = directory.open_log(PARTITION._replace(partition=1), bytes(16), CONFIG)
    append(other, batch(b"value"))
    workers.drain()
    directory.change_master_keys([NEW, OLD])
    place.clock.ms += RETRY_AFTER_MS
    directory.upkeep(place.clock.ms)
    directory.remove_log(PARTITION)
    for _ in range(4):
        workers.drain()
        run_upkeep(place, directory, 1)
    workers.drain()
    assert state(place) == ({NEW_ID}, {NEW_ID})
    assert len(read_all(other)) == 1


def test_a_damaged_key_does_not_stop_the_rotation() -> None:
    place = Place(master_keys=[OLD])
    directory, log = filled(place)
    damaged = log.segments.path(log.segments.segments[0], KEY)
    place.files.write(damaged, b"{}", sync=True)
    other = directory.open_log(PARTITION._replace(partition=1), bytes(16), CONFIG)
    append(other, batch(b"value"))
    directory.change_master_keys([NEW, OLD])
    run_upkeep(place, directory)
    assert state(place) == ({NEW_ID}, {NEW_ID})
    place.master_keys = [NEW]
    _, log = place.open_log(CONFIG)
    assert log.is_damaged


def test_keys_of_deleted_segments_do_not_delay_it() -> None:
    place = Place(master_keys=[OLD])
    directory, log = filled(place)
    log.delete_records_before(10)
    run_upkeep(place, directory)
    first = log.segments.segments[0].base_offset
    assert first > 0
    assert place.files.exists(f"{place.path}/{PARTITION}/{0:020d}{KEY}")
    directory.change_master_keys([NEW, OLD])
    run_upkeep(place, directory)
    assert state(place) == ({NEW_ID}, {NEW_ID})


class RenamingFiles(SimFiles):
    """Files that are renamed right after a folder was listed."""

    def __init__(self) -> None:
        super().__init__()
        self.renamed: dict[str, list[str]] = {}
        """By folder."""

    def names(self, folder: str) -> list[str]:
        found = super().names(folder)
        for path in self.renamed.pop(folder, []):
            self.rename(path, path.removesuffix(CLEANED))
        return found


@pytest.mark.parametrize("renamed_before", [[], [KEY]])
@pytest.mark.parametrize("renamed_after", [[], [KEY], [KEY, LOG]])
def test_the_key_of_a_segment_that_is_swapped_in_is_needed(
    renamed_before: list[str], renamed_after: list[str]
) -> None:
    files = RenamingFiles()
    place = Place(files, master_keys=[OLD])
    directory, log = place.open_log(CONFIG)
    append(log, batch(b"value"))
    directory.close()
    path = log.segments.path(log.segments.segments[0], "")
    for suffix in (KEY, LOG):
        files.rename(path + suffix, path + suffix + CLEANED)
    for suffix in renamed_before:
        files.rename(path + suffix + CLEANED, path + suffix)
    waiting = [suffix for suffix in renamed_after if suffix not in renamed_before]
    files.renamed[log.segments.folder] = [path + suffix + CLEANED for suffix in waiting]
    assert masters_in(files, place.path) == {OLD_ID}
    assert not files.renamed


def test_master_keys_that_are_used_during_the_search_are_kept() -> None:
    place = Place(master_keys=[OLD])
    place.open()
    keyring = Keyring([OLD], place.files, place.path)
    with keyring.wrapping():
        pass
    keyring.change([NEW, OLD])

    def search() -> set[str]:
        with keyring.wrapping():
            pass
        keyring.change([NEWEST, NEW, OLD])
        with keyring.wrapping():
            pass
        keyring.change([OLD, NEWEST, NEW])
        return set()

    keyring.forget_unneeded(search)
    assert keyring.listed == {OLD_ID, NEW_ID, NEWEST_ID}
    keyring.forget_unneeded(set)
    assert keyring.listed == {OLD_ID}


def test_a_stopped_node() -> None:
    place = Place(master_keys=[OLD])
    directory, log = filled(place)
    batches = read_all(log)
    directory.close()
    keyring = Keyring([NEW, OLD], place.files, place.path)
    keyring.check()
    problems: list[str] = []
    assert rotate_stopped(place.files, place.path, keyring, problems.append) == len(log.segments.segments)
    assert rotate_stopped(place.files, place.path, keyring, problems.append) == 0
    assert problems == []
    assert state(place) == ({NEW_ID}, {NEW_ID})
    place.master_keys = [NEW]
    _, log = place.open_log(replace(CONFIG, encryption_enable=False))
    assert read_all(log) == batches
