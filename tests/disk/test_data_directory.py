"""The data directory: clean restarts, recreated topics, removal, retention."""

import contextlib
from random import Random

import pytest

from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.log.checkpoints import decode_offsets
from runnel.log.names import LOG_STARTS, MANIFEST, RECOVERY_POINTS
from runnel.model.ids import TopicPartition
from runnel.model.log_config import DAY_MS, LogConfig
from runnel.sim.files import PowerFailure, SimFiles
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
    slice_bytes,
)

OTHER_ID = bytes(15) + b"\x09"


def opened(directory: DataDirectory, config: LogConfig | None = None) -> DiskLog:
    return directory.open_log(PARTITION, TOPIC_ID, config or LogConfig())


def test_after_a_clean_shutdown_no_file_of_a_log_is_touched_until_it_is_used() -> None:
    files = SimFiles()
    place = Place(files)
    directory = place.open()
    partitions = [TopicPartition("many", number) for number in range(200)]
    for partition in partitions:
        log = directory.open_log(partition, TOPIC_ID, LogConfig())
        append(log, batch(b"x", producer_id=3, producer_epoch=0, base_sequence=0), leader_epoch=4)
    directory.close()
    touched: list[str] = []
    files.fault = lambda operation, path: touched.append(path)
    directory = place.open()
    logs = [directory.open_log(partition, TOPIC_ID, LogConfig()) for partition in partitions]
    assert not [path for path in touched if "/many-" in path]
    assert [(log.end_offset, log.durable_offset, log.leader_epoch) for log in logs] == [(1, 1, 4)] * 200
    files.fault = None
    assert [producer.last_sequence for producer in logs[7].producers()] == [0]
    repeated = batch(b"x", producer_id=3, producer_epoch=0, base_sequence=0)
    assert append(logs[8], repeated) == 0
    assert append(logs[9], batch(b"y")) == 1
    assert logs[9].epoch_end(4) == (4, 2)


def test_the_manifest_is_removed_before_anything_changes() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log()
    append(log, batch(b"a"))
    directory.close()
    assert files.exists(f"/data/{MANIFEST}")
    _, log = place.open_log()
    assert not files.exists(f"/data/{MANIFEST}")
    append(log, batch(b"b"))
    _, log = place.open_log()
    assert offsets_of(read_all(log)) == [0, 1]


def test_a_damaged_manifest_costs_a_recovery_only() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log()
    append(log, batch(b"a"))
    directory.close()
    files.flip_bit(f"/data/{MANIFEST}", 60)
    _, log = place.open_log()
    assert offsets_of(read_all(log)) == [0]
    assert not files.exists(f"/data/{MANIFEST}")


def test_logs_that_were_not_opened_stay_as_they_were_closed() -> None:
    place = Place()
    directory, log = place.open_log()
    append(log, batch(b"a"))
    directory.close()
    place.open().close()
    place.open().close()
    _, log = place.open_log()
    assert offsets_of(read_all(log)) == [0]


def test_closing_twice_and_writing_after_it() -> None:
    place = Place()
    directory, log = place.open_log()
    append(log, batch(b"a"))
    directory.close()
    directory.close()
    with pytest.raises(Exception, match="closed"):
        append(log, batch(b"b"))


@pytest.mark.parametrize("clean", [True, False])
def test_a_topic_made_anew_inherits_nothing(clean: bool) -> None:
    place = Place()
    directory, log = place.open_log()
    for _ in range(9):
        append(log, batch(b"old"))
    log.delete_records_before(5)
    if clean:
        directory.close()
    directory = place.open()
    log = directory.open_log(PARTITION, OTHER_ID, LogConfig())
    assert (log.log_start_offset, log.end_offset, log.leader_epoch) == (0, 0, -1)
    append(log, batch(b"new"))
    log = place.open().open_log(PARTITION, OTHER_ID, LogConfig())
    assert (log.log_start_offset, log.end_offset) == (0, 1)
    assert b"new" in read_all(log)[0]


@pytest.mark.parametrize("killed", [True, False])
def test_a_topic_made_after_another_was_removed_inherits_nothing(killed: bool) -> None:
    place = Place()
    directory, log = place.open_log()
    for _ in range(9):
        append(log, batch(b"old"))
    log.delete_records_before(5)
    directory.remove_log(PARTITION)
    if killed:
        directory = place.open()
    log = directory.open_log(PARTITION, OTHER_ID, LogConfig())
    append(log, batch(b"new"))
    log = place.open().open_log(PARTITION, OTHER_ID, LogConfig())
    assert (log.log_start_offset, log.end_offset) == (0, 1)


def test_a_removed_log_leaves_the_files_of_offsets_and_others_stay_in_them() -> None:
    files = SimFiles()
    place = Place(files)
    directory = place.open()
    for topic in ("removed", "kept"):
        log = directory.open_log(TopicPartition(topic, 0), TOPIC_ID, LogConfig())
        for _ in range(3):
            append(log, batch(b"a"))
        log.delete_records_before(2)
    directory.remove_log(TopicPartition("removed", 0))
    directory.close()
    for name in (RECOVERY_POINTS, LOG_STARTS):
        assert list(decode_offsets(files.read(f"/data/{name}"))) == [TopicPartition("kept", 0)]
    kept = place.open().open_log(TopicPartition("kept", 0), TOPIC_ID, LogConfig())
    assert (kept.log_start_offset, kept.end_offset) == (2, 3)


def test_removing_many_logs_renames_each_and_writes_nothing_that_tells_of_all() -> None:
    files = SimFiles()
    place = Place(files)
    directory = place.open()
    names = [TopicPartition("orders", number) for number in range(40)]
    for name in names:
        append(directory.open_log(name, TOPIC_ID, LogConfig()), batch(b"a"))
    directory.close()
    directory = place.open()
    for name in names:
        directory.open_log(name, TOPIC_ID, LogConfig())
    before = files.operations
    for name in names:
        directory.remove_log(name)
    assert files.operations - before == len(names)


def test_the_files_of_a_removed_log_are_deleted_later() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log(LogConfig(file_delete_delay_ms=1000))
    append(log, batch(bytes(70_000)))
    found = log.read(0, 10**6, EVERYTHING, at_least_one=True)
    directory.remove_log(PARTITION)
    assert list(directory.known_logs()) == []
    with pytest.raises(Exception, match="removed"):
        append(log, batch(b"x"))
    directory.upkeep(START_MS)
    assert len([name for name in files.names("/data") if name.endswith("-delete")]) == 1
    directory.upkeep(START_MS + 1000)
    assert not [name for name in files.names("/data") if "orders" in name]
    assert found.size_bytes > 70_000
    assert opened(directory).end_offset == 0


def test_folders_that_a_crash_left_half_removed_go() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log()
    append(log, batch(b"a"))
    directory.remove_log(PARTITION)
    directory = place.open()
    assert list(directory.known_logs()) == []
    directory.upkeep(START_MS)
    assert not [name for name in files.names("/data") if "orders" in name]


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_during_a_removal_does_not_restore_a_part_of_the_log(seed: int) -> None:
    random, files = Random(seed), SimFiles()
    directory, log = Place(files).open_log(LogConfig(segment_bytes=400, file_delete_delay_ms=0))
    for _ in range(10):
        append(log, batch(bytes(300)))
    files.sync_volume("/data")
    segments = [name for name in files.names("/data/orders-0") if name.endswith(".log")]
    assert len(segments) > 5
    directory.remove_log(PARTITION)
    files.power_failure_at = files.operations + random.randint(1, 20)
    with contextlib.suppress(PowerFailure):
        directory.upkeep(START_MS)
    files.power_failure_at = -1
    files.lose_power(random)
    if "orders-0" in files.names("/data"):
        assert set(files.names("/data/orders-0")) >= set(segments)


def test_a_long_name_can_be_removed_too() -> None:
    files = SimFiles()
    directory = Place(files).open()
    partition = TopicPartition("t" * 249, 12345)
    directory.open_log(partition, TOPIC_ID, LogConfig())
    directory.remove_log(partition)
    assert max(len(name) for name in files.names("/data")) <= 255


def test_the_directory_keeps_its_id() -> None:
    place = Place()
    directory = place.open()
    found = directory.directory_id()
    assert len(found) == 16
    directory = place.open()
    assert directory.directory_id() == found
    assert directory.directory_path() == "/data"
    assert directory.space_bytes()[0] > 0


SMALL = LogConfig(segment_bytes=400, retention_ms=DAY_MS, file_delete_delay_ms=500)


def test_old_segments_go_by_time() -> None:
    files = SimFiles()
    directory, log = Place(files).open_log(SMALL)
    for number in range(6):
        append(log, batch(bytes(100), timestamp_ms=START_MS + number * 1000))
    directory.upkeep(START_MS + DAY_MS + 1500)
    # Two batches make a segment; the first one's youngest record is at +1000.
    assert log.log_start_offset == 2
    assert offsets_of(read_all(log)) == [2, 3, 4, 5]
    assert files.exists("/data/orders-0/00000000000000000000.log.deleted")
    directory.upkeep(START_MS + DAY_MS + 2000)
    assert not files.exists("/data/orders-0/00000000000000000000.log.deleted")


def test_an_idle_log_is_emptied_and_keeps_its_offsets() -> None:
    place = Place()
    directory, log = place.open_log(SMALL)
    for _ in range(5):
        append(log, batch(bytes(100)))
    directory.upkeep(START_MS + 2 * DAY_MS)
    assert (log.log_start_offset, log.end_offset, log.size_bytes) == (5, 5, 0)
    _, log = place.open_log(SMALL)
    assert (log.log_start_offset, log.end_offset) == (5, 5)
    assert append(log, batch(b"x")) == 5


def test_old_segments_go_by_size() -> None:
    directory, log = Place().open_log(LogConfig(segment_bytes=300, retention_bytes=700))
    for _ in range(20):
        append(log, batch(bytes(100)))
    directory.upkeep(START_MS)
    assert 700 <= log.size_bytes < 700 + 300
    assert offsets_of(read_all(log))[-1] == 19


def test_deleted_records_stay_deleted() -> None:
    place = Place()
    _, log = place.open_log(SMALL)
    for _ in range(7):
        append(log, batch(bytes(100)), leader_epoch=log.end_offset)
    log.delete_records_before(3)
    assert log.log_start_offset == 3
    assert [segment.base_offset for segment in log.segments.segments] == [2, 4, 6]
    assert log.epochs.entries[0] == (3, 3)
    log.delete_records_before(1)
    assert log.log_start_offset == 3
    _, log = place.open_log(SMALL)
    assert log.log_start_offset == 3
    with pytest.raises(Exception, match="above the high watermark 7"):
        log.delete_records_before(8)
    log.delete_records_before(7)
    assert read_all(log) == []


def test_a_file_that_is_being_sent_outlives_its_segment() -> None:
    files = SimFiles()
    directory, log = Place(files).open_log(LogConfig(segment_bytes=100_000, file_delete_delay_ms=0))
    for _ in range(3):
        append(log, batch(bytes(90_000)))
    found = log.read(0, 10**6, EVERYTHING, at_least_one=True)
    expected = read_all(log)[0]
    log.delete_records_before(2)
    directory.upkeep(START_MS)
    assert not files.exists("/data/orders-0/00000000000000000000.log")
    assert slice_bytes(found) == expected


def test_checkpoints_are_written_in_time() -> None:
    place = Place()
    directory, log = place.open_log(SMALL)
    for _ in range(7):
        append(log, batch(bytes(100)))
    directory.upkeep(START_MS)
    directory.upkeep(START_MS + 60_000)
    reopened = place.open()
    assert opened(reopened, SMALL).durable_offset == log.durable_offset == 6
