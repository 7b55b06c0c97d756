"""Encrypted segments: they behave as plain ones, hide their records, and detect every change."""

import errno
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.batch.compression import Compression
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import HEADER_BYTES, read_header, seal
from runnel.disk.batch_cipher import BatchCipher
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.keyring import Keyring
from runnel.disk.os_files import OsFiles
from runnel.log.encryption import MARK, OVERHEAD_BYTES
from runnel.log.names import KEY, LOG, MASTERS, offset_of
from runnel.model.errors import DamagedLog, StorageFailed
from runnel.model.log_config import LogConfig
from runnel.ports.disk import BadDirectory, Origin
from runnel.sim.files import SimFiles
from tests.disk import compacted
from tests.disk.world import (
    EVERYTHING,
    PARTITION,
    START_MS,
    TOPIC_ID,
    HeldWorkers,
    Place,
    append,
    batch,
    commit,
    files_of,
    read_all,
    run_now,
    slice_bytes,
)
from tests.stored import stored_batches

MASTER, OTHER = bytes(range(32)), bytes(range(1, 33))
PLAIN = LogConfig(segment_bytes=1500, index_interval_bytes=200, file_delete_delay_ms=0)
ENCRYPTED = replace(PLAIN, encryption_enable=True)
FOLDER = f"/data/{PARTITION}"


def encrypted_place(**changes: object) -> Place:
    return Place(master_keys=[MASTER], **changes)  # type: ignore[arg-type]


def keys_in(place: Place) -> list[int]:
    offsets = (offset_of(name, KEY) for name in place.files.names(f"{place.path}/{PARTITION}"))
    return sorted(offset for offset in offsets if offset is not None)


def flip(place: Place, path: str, position: int) -> None:
    file = place.files.open(path)
    byte = file.pread(1, position)[0]
    file.pwritev([bytes([byte ^ 1])], position)
    file.datasync()


# Like a plain log


class Twins:
    """An encrypted log and a plain one, to which the same happens."""

    def __init__(self) -> None:
        self.places = [encrypted_place(), Place()]
        self.directories: list[DataDirectory] = []
        self.logs: list[DiskLog] = []
        self.number = 0
        self.open()

    def open(self) -> None:
        configs = (ENCRYPTED, PLAIN)
        opened = [place.open_log(config) for place, config in zip(self.places, configs, strict=True)]
        self.directories, self.logs = map(list, zip(*opened, strict=True))

    def append(self, size: int) -> None:
        self.number += 1
        for log in self.logs:
            value = b"%d:" % self.number + b"x" * size
            compression = Compression.ZSTD if size % 2 else Compression.NONE
            timestamp_ms = START_MS + self.number * size
            data = batch(
                value, value, timestamp_ms=timestamp_ms, compression=compression,
                producer_id=7, producer_epoch=0, base_sequence=log.end_offset,
            )  # fmt: skip
            append(log, data)

    def truncate(self, share: int) -> None:
        offset = self.logs[0].written_offset * share // 100
        for log in self.logs:
            log.truncate_to(offset)

    def kill(self, _: int) -> None:
        self.open()

    def restart(self, _: int) -> None:
        for directory in self.directories:
            directory.close()
        self.open()

    def delete(self, share: int) -> None:
        offset = self.logs[0].written_offset * share // 100
        for log in self.logs:
            log.delete_records_before(min(offset, log.high_watermark))

    def compare(self, max_bytes: int) -> None:
        encrypted, plain = self.logs
        assert encrypted.log_start_offset == plain.log_start_offset
        assert encrypted.written_offset == plain.written_offset
        assert read_all(encrypted, max_bytes) == read_all(plain, max_bytes)
        everything = [
            [bytes(one) for one in stored_batches(log, log.log_start_offset, EVERYTHING)] for log in self.logs
        ]
        assert everything[0] == everything[1]
        for timestamp_ms in range(START_MS, START_MS + 2000, 170):
            found = [run_now(log.find_timestamp(timestamp_ms, EVERYTHING)) for log in self.logs]
            assert found[0] == found[1]
        assert list(encrypted.producers()) == list(plain.producers())
        verified = [run_now(log.verify(log.log_start_offset, EVERYTHING)) for log in self.logs]
        assert verified[0].damage is None
        assert verified[0].next_offset == verified[1].next_offset


STEPS = st.tuples(
    st.sampled_from(["append", "append", "append", "truncate", "kill", "restart", "delete"]),
    st.integers(0, 99),
)


@settings(deadline=None, max_examples=25)
@given(st.lists(STEPS, min_size=1, max_size=25), st.sampled_from([1, 400, 100_000]))
def test_an_encrypted_log_reads_as_a_plain_one(steps: list[tuple[str, int]], max_bytes: int) -> None:
    twins = Twins()
    for name, amount in steps:
        getattr(twins, name)(amount)
    twins.compare(max_bytes)


@pytest.mark.parametrize("seed", range(4))
def test_compaction(seed: int) -> None:
    files, plain_files = SimFiles(), SimFiles()
    config = replace(compacted.CONFIG, encryption_enable=True)
    log, plain = compacted.open_log(files, config, [MASTER]), compacted.open_log(plain_files)
    for each in (log, plain):
        compacted.fill(each, Random(seed))
    table = compacted.table(plain)
    for each in (log, plain):
        compacted.compact(each)
        compacted.compact(each, compacted.NOW_MS + 10_000)
    assert compacted.table(log) == table == compacted.table(plain)
    assert compacted.leftovers(files) == []
    assert all(segment.is_encrypted for segment in log.segments.segments)
    assert b"key-" not in b"".join(
        files.read(f"/data/table-0/{name}") for name in files.names("/data/table-0")
    )
    reopened = compacted.open_log(files, config, [MASTER])
    assert compacted.records(reopened) == compacted.records(log)


def test_a_crash_at_any_moment_of_a_compaction() -> None:
    config = replace(compacted.CONFIG, encryption_enable=True)
    for moment in range(1, 60, 2):
        files = SimFiles()
        log = compacted.open_log(files, replace(config, encryption_enable=moment % 4 == 1), [MASTER])
        compacted.fill(log, Random(moment), 30)
        table = compacted.table(log)
        log.configure(config)
        fault = _Countdown(moment)
        files.fault = fault
        with suppress(_Killed):
            compacted.cleaner().consider([commit(log)], compacted.NOW_MS)
        files.fault = None
        reopened = compacted.open_log(files, config, [MASTER])
        assert reopened.failure is None
        assert compacted.table(reopened) == table
        compacted.compact(reopened)
        assert compacted.table(reopened) == table
        assert compacted.leftovers(files) == []


class _Killed(BaseException):
    """The process ends here."""


class _Countdown:
    def __init__(self, moment: int) -> None:
        self.left = moment

    def __call__(self, operation: str, path: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise _Killed


# Layout


def test_sizes_are_those_of_the_files() -> None:
    place = encrypted_place()
    _, log = place.open_log(ENCRYPTED)
    for _ in range(30):
        append(log, batch(bytes(100)))
    assert len(log.segments.segments) > 2
    for segment in log.segments.segments:
        assert segment.size_bytes == place.files.size_bytes(log.segments.path(segment, LOG))
        assert segment.size_bytes <= ENCRYPTED.segment_bytes
    found = log.read(0, 100_000, EVERYTHING, at_least_one=True)
    clear = slice_bytes(found)
    count = found.end_offset
    assert len(clear) == log.segments.segments[0].size_bytes - count * OVERHEAD_BYTES


def test_each_segment_has_a_key_that_is_durable_before_its_first_batch() -> None:
    place = encrypted_place()
    files = files_of(place)
    _, log = place.open_log(ENCRYPTED)
    seen: list[tuple[str, str]] = []
    files.fault = lambda operation, path: seen.append((operation, path))
    for _ in range(30):
        append(log, batch(bytes(100)))
    files.fault = None
    assert keys_in(place) == [segment.base_offset for segment in log.segments.segments]
    for segment in log.segments.segments:
        first_write = seen.index(("pwritev", log.segments.path(segment, LOG)))
        renamed = next(
            number
            for number, (operation, path) in enumerate(seen)
            if operation == "rename" and log.segments.path(segment, KEY) in path
        )
        assert ("sync_folder", FOLDER) in seen[renamed:first_write]


def test_new_segments_are_encrypted_and_old_ones_stay_readable() -> None:
    place = encrypted_place()
    _, log = place.open_log(PLAIN)
    append(log, batch(b"one"))
    log.configure(ENCRYPTED)
    append(log, batch(b"two"))
    append(log, batch(b"three"))
    log.configure(PLAIN)
    append(log, batch(b"four"))
    assert [segment.is_encrypted for segment in log.segments.segments] == [False, True, False]
    assert [segment.base_offset for segment in log.segments.segments] == [0, 1, 3]
    assert len(read_all(log)) == 4
    _, log = place.open_log(ENCRYPTED)
    assert len(read_all(log)) == 4
    append(log, batch(b"five"))
    assert [segment.is_encrypted for segment in log.segments.segments] == [False, True, False, True]
    assert len(read_all(log)) == 5


def test_a_setting_that_changes_while_batches_are_staged() -> None:
    place = encrypted_place()
    _, log = place.open_log(PLAIN)
    log.stage(memoryview(batch(b"one")), 0, START_MS, Origin.CLIENT)
    log.configure(ENCRYPTED)
    log.stage(memoryview(batch(b"two")), 0, START_MS, Origin.CLIENT)
    log.write_staged()
    commit(log)
    assert [segment.is_encrypted for segment in log.segments.segments] == [False, True]
    assert len(read_all(log)) == 2


def test_removed_segments_leave_no_keys() -> None:
    place = encrypted_place()
    directory, log = place.open_log(replace(ENCRYPTED, retention_bytes=3000))
    for _ in range(30):
        append(log, batch(bytes(100)))
    for _ in range(3):
        append(log, batch(bytes(1400)))
        place.clock.ms += 100_000
        directory.upkeep(place.clock.ms)
    first = log.segments.segments[0].base_offset
    # Those of the last drop are removed with the next one: until then a power cut may restore the segments.
    assert [offset for offset in keys_in(place) if offset < first - 10] == []
    log.truncate_to(first)
    assert keys_in(place)[-1] == log.segments.active.base_offset == first
    directory.remove_log(PARTITION)
    place.clock.ms += 100_000
    directory.upkeep(place.clock.ms)
    assert not [name for name in place.files.names("/data") if "orders" in name]


def test_a_key_of_a_segment_that_was_never_written_is_not_used_for_a_plain_one() -> None:
    place = encrypted_place()
    _, log = place.open_log(PLAIN)
    append(log, batch(b"one"))
    place.files.write(f"{FOLDER}/{1:020d}{KEY}", b"left by a crash", sync=True)
    log.roll_now()
    append(log, batch(b"two"))
    assert keys_in(place) == []
    _, log = place.open_log(PLAIN)
    assert len(read_all(log)) == 2


def test_the_first_write_to_a_segment_is_done_by_a_thread() -> None:
    workers = HeldWorkers()
    place = encrypted_place(write_workers=workers)
    _, log = place.open_log(ENCRYPTED)
    outcomes: list[object] = []
    log.stage(memoryview(batch(b"one")), 0, START_MS, Origin.CLIENT)
    assert log.write_later(outcomes.append)
    assert keys_in(place) == []
    workers.finish_one()
    assert outcomes == [None]
    assert keys_in(place) == [0]
    log.stage(memoryview(batch(b"two")), 0, START_MS, Origin.CLIENT)
    assert not log.write_later(outcomes.append)
    log.write_staged()
    commit(log)
    assert len(read_all(log)) == 2


def test_a_full_disk_leaves_no_half_of_a_key() -> None:
    place = encrypted_place()
    files = files_of(place)
    _, log = place.open_log(ENCRYPTED)

    def fault(operation: str, path: str) -> None:
        if operation in ("write", "create") and KEY in path:
            raise OSError(errno.ENOSPC, "no space left on device", path)

    files.fault = fault
    with pytest.raises(StorageFailed):
        append(log, batch(b"lost"))
    files.fault = None
    append(log, batch(b"kept"))
    _, log = place.open_log(ENCRYPTED)
    assert len(read_all(log)) == 1


# What is hidden, and what is detected


def test_no_file_contains_a_record(tmp_path: Path) -> None:
    place = Place(OsFiles(), str(tmp_path / "data"), master_keys=[MASTER])
    directory, log = place.open_log(replace(ENCRYPTED, segment_bytes=5000))
    for number in range(50):
        append(
            log, batch(b"a secret value %d" % number, producer_id=3, producer_epoch=0, base_sequence=number)
        )
    directory.close()
    stored = [path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert len(stored) > 10
    assert not any(b"secret" in data or data[73:76] == b"key" for data in stored)
    assert not any(MASTER in data or MASTER.hex().encode() in data for data in stored)


def test_no_changed_bit_of_a_batch_passes() -> None:
    cipher = BatchCipher(MASTER, b"context")
    clear = bytes(batch(b"value"))
    stored = bytearray(b"".join(cipher.encrypt(clear)))
    assert cipher.decrypt(stored) == clear
    assert len(stored) == len(clear) + OVERHEAD_BYTES == read_header(stored).size_bytes
    for position in [*range(8), *range(12, len(stored))]:
        for bit in range(8):
            stored[position] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                cipher.decrypt(stored)
            stored[position] ^= 1 << bit
    for size in range(len(stored)):
        with pytest.raises(CorruptBatch):
            cipher.decrypt(bytes(stored[:size]))
    with pytest.raises(CorruptBatch):
        BatchCipher(MASTER, b"another context").decrypt(stored)
    with pytest.raises(CorruptBatch):
        BatchCipher(OTHER, b"context").decrypt(stored)


def test_runs_of_batches_are_decrypted_alike_small_or_large() -> None:
    cipher = BatchCipher(MASTER, b"context")
    clear = [bytes(batch(b"x" * size)) for size in (1, 1000, 7)]
    stored = bytearray(b"".join(bytes(part) for part in cipher.encrypt_all(clear)))
    assert cipher.decrypt_all(stored) == bytes(cipher.decrypt_large(stored)) == b"".join(clear)
    stored[-1] ^= 1
    for decrypt in (cipher.decrypt_all, cipher.decrypt_large):
        with pytest.raises(CorruptBatch):
            decrypt(stored)
        with pytest.raises(CorruptBatch):
            decrypt(stored[:-20])


def test_no_nonce_is_used_twice() -> None:
    cipher = BatchCipher(MASTER, b"context")
    data = bytes(batch(b"value"))
    assert len({cipher.encrypt(data)[0][61:] for _ in range(1000)}) == 1000


def test_a_flipped_bit_is_damage() -> None:
    place = encrypted_place()
    directory, log = place.open_log(ENCRYPTED)
    for _ in range(30):
        append(log, batch(bytes(100)))
    directory.close()
    segment = log.segments.segments[0]
    flip(place, log.segments.path(segment, LOG), segment.size_bytes // 2)
    _, log = place.open_log(ENCRYPTED)
    with pytest.raises(DamagedLog):
        read_all(log)
    assert run_now(log.verify(0, EVERYTHING)).damage is not None
    with pytest.raises(DamagedLog):
        run_now(log.read_batches(0, 100_000, EVERYTHING))


def test_a_flipped_bit_is_found_by_recovery_and_nothing_behind_it_is_thrown_away() -> None:
    place = encrypted_place()
    _, log = place.open_log(LogConfig(encryption_enable=True))
    for _ in range(3):
        append(log, batch(bytes(100)))
    path = log.segments.path(log.segments.active, LOG)
    size_bytes = log.size_bytes
    flip(place, path, 100)
    _, log = place.open_log(LogConfig(encryption_enable=True))
    assert log.is_damaged
    assert place.files.size_bytes(path) == size_bytes


@pytest.mark.parametrize("left_bytes", [1, 30, 70, 120])
def test_an_interrupted_write_is_truncated(left_bytes: int) -> None:
    place = encrypted_place()
    _, log = place.open_log(LogConfig(encryption_enable=True))
    append(log, batch(bytes(100)))
    size_bytes = log.size_bytes
    append(log, batch(bytes(100)))
    path = log.segments.path(log.segments.active, LOG)
    place.files.open(path).truncate(size_bytes + left_bytes)
    _, log = place.open_log(LogConfig(encryption_enable=True))
    assert log.failure is None
    assert log.written_offset == 1
    assert place.files.size_bytes(path) == size_bytes
    append(log, batch(b"next"))
    assert len(read_all(log)) == 2


def test_a_wrong_length_is_not_taken_for_an_interrupted_write() -> None:
    place = encrypted_place()
    _, log = place.open_log(LogConfig(encryption_enable=True))
    append(log, batch(bytes(100)))
    flip(place, log.segments.path(log.segments.active, LOG), 9)
    _, log = place.open_log(LogConfig(encryption_enable=True))
    assert log.is_damaged


@pytest.mark.parametrize("damage", ["flipped", "missing", "of another segment"])
def test_a_damaged_key_is_damage_of_its_segment(damage: str) -> None:
    place = encrypted_place()
    directory, log = place.open_log(ENCRYPTED)
    for _ in range(30):
        append(log, batch(bytes(100)))
    directory.close()
    path = log.segments.path(log.segments.segments[0], KEY)
    _, log = place.open_log(ENCRYPTED)
    if damage == "flipped":
        flip(place, path, len(place.files.read(path)) // 2 + 30)
    elif damage == "missing":
        place.files.remove(path)
    else:
        other = log.segments.path(log.segments.segments[1], KEY)
        place.files.write(path, place.files.read(other), sync=True)
    with pytest.raises(DamagedLog):
        log.read(0, 1000, EVERYTHING, at_least_one=True)
    second = log.segments.segments[1].base_offset
    assert log.read(second, 1000, EVERYTHING, at_least_one=True).size_bytes


def test_recovery_reports_a_damaged_key() -> None:
    place = encrypted_place()
    _, log = place.open_log(ENCRYPTED)
    append(log, batch(bytes(100)))
    place.files.write(log.segments.path(log.segments.active, KEY), b"{}", sync=True)
    _, log = place.open_log(ENCRYPTED)
    assert log.is_damaged
    assert place.files.size_bytes(log.segments.path(log.segments.active, LOG))


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "active"])
@pytest.mark.parametrize("end", ["clean", "killed", "power failure"])
def test_a_lost_key_is_reported_as_damage_at_the_start(which: int, end: str) -> None:
    place = encrypted_place()
    directory, log = place.open_log(ENCRYPTED)
    for _ in range(30):
        append(log, batch(bytes(100)))
    segment = log.segments.segments[which]
    stored = {each: place.files.size_bytes(log.segments.path(each, LOG)) for each in log.segments.segments}
    if end == "clean":
        directory.close()
    elif end == "power failure":
        place.files = copy = files_of(place).copied()
        copy.boots += 1
    place.files.remove(log.segments.path(segment, KEY))
    place.files.sync_folder(FOLDER)
    _, opened = place.open_log(ENCRYPTED)
    assert opened.is_damaged
    assert opened.end_offset == segment.base_offset
    # The files are kept: the key may be in a backup.
    assert {each: place.files.size_bytes(log.segments.path(each, LOG)) for each in stored} == stored


@pytest.mark.parametrize("is_closed", [True, False])
def test_clear_records_that_look_encrypted_are_no_damage(is_closed: bool) -> None:
    place = encrypted_place()
    directory, log = place.open_log(PLAIN)
    data = bytearray(batch(bytes(100)))
    data[HEADER_BYTES : HEADER_BYTES + len(MARK)] = MARK
    header = read_header(data)
    append(log, bytes(seal(header, bytes(data[HEADER_BYTES:]))))
    if is_closed:
        directory.close()
    _, log = place.open_log(PLAIN)
    assert not log.is_damaged
    assert log.end_offset == 1


# Master keys


def test_without_the_master_key_there_is_no_start() -> None:
    place = encrypted_place()
    directory, log = place.open_log(ENCRYPTED)
    append(log, batch(b"value"))
    directory.close()
    place.master_keys = []
    with pytest.raises(BadDirectory, match="no master key"):
        place.open()
    place.master_keys = [OTHER]
    with pytest.raises(BadDirectory, match="which is not given") as caught:
        place.open()
    assert MASTER.hex() not in str(caught.value)
    place.master_keys = [OTHER, MASTER]
    _, log = place.open_log(ENCRYPTED)
    assert len(read_all(log)) == 1


def test_a_key_file_of_an_unknown_master_key_is_not_damage() -> None:
    place = encrypted_place()
    _, log = place.open_log(ENCRYPTED)
    append(log, batch(b"value"))
    place.files.remove(f"/data/{MASTERS}")
    for master_keys in ([OTHER], []):
        place.master_keys = master_keys
        with pytest.raises(StorageFailed, match="master key") as caught:
            place.open_log(ENCRYPTED)
        assert not isinstance(caught.value, DamagedLog)
    place.master_keys = [MASTER]
    _, log = place.open_log(ENCRYPTED)
    assert len(read_all(log)) == 1


def test_without_a_master_key_an_encrypted_log_takes_no_records() -> None:
    place = Place()
    _, log = place.open_log(PLAIN)
    append(log, batch(b"plain"))
    log.configure(ENCRYPTED)
    with pytest.raises(StorageFailed, match="no master key"):
        append(log, batch(b"secret"))
    assert len(read_all(log)) == 1
    log.configure(PLAIN)
    append(log, batch(b"plain"))
    assert len(read_all(log)) == 2


def test_a_log_of_another_topic_id_cannot_be_read() -> None:
    place = encrypted_place()
    directory, log = place.open_log(ENCRYPTED)
    append(log, batch(b"value"))
    segments = log.segments
    keyring = Keyring([MASTER], place.files, "/data")
    for topic_id, partition in ((bytes(16), PARTITION), (TOPIC_ID, PARTITION._replace(partition=1))):
        with pytest.raises(CorruptBatch):
            keyring.keys_of(partition, topic_id).load(place.files, segments.folder, 0)
    assert keyring.keys_of(PARTITION, TOPIC_ID).load(place.files, segments.folder, 0)
    directory.close()
