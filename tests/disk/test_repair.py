"""Repair of a log after a failed sync: rewritten, or truncated where records are lost."""

import errno

from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from tests.disk.world import (
    START_MS,
    HeldWorkers,
    Place,
    append,
    batch,
    commit,
    files_of,
    in_loop,
    offsets_of,
    read_all,
)


@in_loop
async def test_a_log_whose_unsynced_batches_are_lost_is_truncated_and_takes_writes() -> None:
    place = Place()
    directory, log = place.open_log(LogConfig())
    for number in range(3):
        append(log, batch(b"%d" % number))
    await directory.sync(log)
    size_bytes = log.size_bytes
    for number in range(3, 6):
        append(log, batch(b"%d" % number))
    files = files_of(place)

    def fault(operation: str, path: str) -> None:
        if operation == "datasync" and path.endswith(".log"):
            raise OSError(errno.EIO, "on purpose", path)

    files.fault = fault
    outcome = directory.sync(log)
    assert "on purpose" in str(outcome.exception())
    assert "on purpose" in str(log.failure)
    files.fault = None
    # The page of the fifth batch was never written, and the kernel has dropped it.
    files.open(f"{log.segments.folder}/{0:020}.log").pwritev([bytes(4)], size_bytes * 4 // 3 + 62)
    directory.upkeep(START_MS)
    assert log.failure is None
    assert offsets_of(read_all(log)) == [0, 1, 2, 3]
    assert log.high_watermark == log.end_offset == 4
    assert append(log, batch(b"again")) == 4
    assert await directory.sync(log) == 5


@in_loop
async def test_what_is_staged_when_a_repair_begins_is_not_truncated_by_it() -> None:
    """The repair gave the file the size that it had at the start: an acknowledged batch was lost."""
    workers = HeldWorkers()
    place = Place(workers=workers)
    directory, log = place.open_log(LogConfig())
    append(log, batch(b"0"))
    staged = log.stage(memoryview(batch(b"1")), 0, START_MS, Origin.CLIENT)
    log.fail("its sync failed", can_repair=True)
    directory.upkeep(START_MS)
    log.write_staged()
    assert log.written_offset == staged.last_offset + 1
    workers.drain()
    assert log.failure is None
    assert offsets_of(read_all(commit(log))) == [0, 1]
