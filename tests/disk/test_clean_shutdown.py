"""Marks of a clean shutdown: the broker epoch, and a manifest that is valid for no other run."""

import errno
import json
from random import Random

from runnel.batch.checksum import crc32c
from runnel.disk.disk_log import DiskLog
from runnel.log.names import CLEAN_SHUTDOWN, HIGH_WATERMARKS, MANIFEST
from runnel.model.ids import METADATA_TOPIC_ID, TopicPartition
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from tests.disk.world import PARTITION, START_MS, TOPIC_ID, Place, batch, files_of, in_loop, read_all

CONFIG = LogConfig(segment_bytes=500)
METADATA = TopicPartition("__cluster_metadata", 0)


def append(log: DiskLog, count: int = 1) -> None:
    for _ in range(count):
        log.stage(memoryview(batch(bytes(100))), 0, START_MS, Origin.CLIENT)
        log.write_staged()


def closed_by(epoch: int, count: int = 5) -> Place:
    """A folder with one log that a broker with this epoch closed."""
    place = Place()
    directory = place.open()
    append(directory.open_log(PARTITION, TOPIC_ID, CONFIG), count)
    directory.broker_epoch = epoch
    directory.close()
    return place


def test_a_clean_shutdown_stores_the_broker_epoch_once() -> None:
    place = closed_by(42)
    assert place.files.read(f"/data/{CLEAN_SHUTDOWN}") == b'{"version":0,"brokerEpoch":42}'
    directory = place.open()
    assert directory.previous_broker_epoch == 42
    assert directory.was_closed_cleanly(PARTITION)
    # The process dies: the next start must not find the mark.
    crashed = place.open()
    assert crashed.previous_broker_epoch == -1
    assert not crashed.was_closed_cleanly(PARTITION)


def test_a_power_failure_after_the_start_cannot_bring_the_marks_back() -> None:
    place = closed_by(42)
    place.open()
    files_of(place).lose_power(Random(1))
    survived = [name for name in place.files.names("/data") if name in (CLEAN_SHUTDOWN, MANIFEST)]
    assert survived == []


def test_a_manifest_is_not_used_after_another_release_has_run() -> None:
    """Apache Kafka leaves the manifest alone, and replaces the mark of the clean shutdown."""
    place = closed_by(42)
    manifest = place.files.read(f"/data/{MANIFEST}")
    append(place.open().open_log(PARTITION, TOPIC_ID, CONFIG), 3)
    place.files.write(f"/data/{MANIFEST}", manifest, sync=True)
    for mark in (b'{"version":0,"brokerEpoch":57}', None):
        if mark is not None:
            place.files.write(f"/data/{CLEAN_SHUTDOWN}", mark, sync=True)
        directory = place.open()
        log = directory.open_log(PARTITION, TOPIC_ID, CONFIG)
        assert log.end_offset == 8, "what was appended since the manifest is kept"
        assert log.was_closed_cleanly == directory.was_closed_cleanly(PARTITION) == (mark is not None)
        place.files.write(f"/data/{MANIFEST}", manifest, sync=True)


def test_the_metadata_log_may_have_grown_without_a_trace() -> None:
    """A controller of Apache Kafka neither removes nor replaces the mark of the clean shutdown."""
    place = Place()
    directory = place.open()
    append(directory.open_log(METADATA, METADATA_TOPIC_ID, CONFIG), 5)
    directory.close()
    marks = {name: place.files.read(f"/data/{name}") for name in (MANIFEST, CLEAN_SHUTDOWN)}
    append(place.open().open_log(METADATA, METADATA_TOPIC_ID, CONFIG), 3)
    for name, mark in marks.items():
        place.files.write(f"/data/{name}", mark, sync=True)
    assert place.open().open_log(METADATA, METADATA_TOPIC_ID, CONFIG).end_offset == 8


def test_a_manifest_of_an_earlier_release_is_used() -> None:
    place = closed_by(-1)
    _, _, body = place.files.read(f"/data/{MANIFEST}").partition(b"\n")
    rows = json.dumps(json.loads(body)[1]).encode()
    earlier = b"runnel-manifest 1 %08x\n" % crc32c(rows) + rows
    for has_mark, is_used in ((False, True), (True, False)):
        place.files.write(f"/data/{MANIFEST}", earlier, sync=True)
        if has_mark:
            place.files.write(f"/data/{CLEAN_SHUTDOWN}", b"{}", sync=True)
        elif place.files.exists(f"/data/{CLEAN_SHUTDOWN}"):
            place.files.remove(f"/data/{CLEAN_SHUTDOWN}")
        directory = place.open()
        assert (PARTITION in directory._closed_logs) == is_used
        assert directory.open_log(PARTITION, TOPIC_ID, CONFIG).end_offset == 5


def test_a_log_that_cannot_be_closed_leaves_no_mark() -> None:
    place = Place()
    directory = place.open()
    append(directory.open_log(PARTITION, TOPIC_ID, CONFIG))
    append(directory.open_log(TopicPartition("other", 0), bytes(reversed(TOPIC_ID)), CONFIG))
    directory.broker_epoch = 42

    def refuse(operation: str, path: str) -> None:
        if operation == "datasync" and "/other-0/" in path:
            raise OSError(errno.EIO, "on purpose", path)

    files_of(place).fault = refuse
    directory.close()
    files_of(place).fault = None
    directory = place.open()
    assert directory.previous_broker_epoch == -1
    assert directory.open_log(PARTITION, TOPIC_ID, CONFIG).end_offset == 1


@in_loop
async def test_high_watermarks_are_stored_every_few_seconds_and_at_a_clean_stop() -> None:
    place = Place()
    directory = place.open()
    log = directory.open_log(PARTITION, TOPIC_ID, CONFIG)
    append(log, 9)
    log.advance_high_watermark(4)
    path = f"/data/{HIGH_WATERMARKS}"
    for later_ms in (0, 5_000):
        directory.upkeep(START_MS + later_ms)
    assert place.files.read(path) == b"0\n1\norders 0 4\n"
    log.advance_high_watermark(6)
    # The process dies: what was stored last is what is known.
    directory = place.open()
    log = directory.open_log(PARTITION, TOPIC_ID, CONFIG)
    assert (log.high_watermark, log.end_offset) == (4, 9)
    log.advance_high_watermark(7)
    directory.close()
    directory = place.open()
    log = directory.open_log(PARTITION, TOPIC_ID, CONFIG)
    assert log.high_watermark == 7
    # It never exceeds the end, nor survives its log.
    log.truncate_to(2)
    assert place.files.read(path) == b"0\n1\norders 0 2\n"
    directory.remove_log(PARTITION)
    log = directory.open_log(PARTITION, bytes(reversed(TOPIC_ID)), CONFIG)
    append(log, 5)
    assert (log.high_watermark, len(read_all(log))) == (0, 5)
    log = place.open().open_log(PARTITION, bytes(reversed(TOPIC_ID)), CONFIG)
    assert (log.high_watermark, log.end_offset) == (0, 5)
