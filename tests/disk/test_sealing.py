"""Segments are sealed by a thread while the event loop drops others."""

from runnel.model.log_config import LogConfig
from tests.disk.world import START_MS, HeldWorkers, Place, append, batch, files_of, in_loop

EXPIRED = LogConfig(segment_bytes=500, retention_ms=1000, index_interval_bytes=100, file_delete_delay_ms=0)
LATE_MS = START_MS + 10_000_000


@in_loop
async def test_retention_leaves_a_segment_alone_until_its_seal_is_done() -> None:
    """A segment must not be dropped between the two renames that publish its indexes."""
    workers = HeldWorkers()
    place = Place(workers=workers)
    directory, log = place.open_log(EXPIRED)
    for _ in range(12):
        append(log, batch(bytes(100)))
    drops: list[int] = []

    def retain_now(operation: str, path: str) -> None:
        if operation == "rename" and ".timeindex" in path and not drops:
            drops.append(log.log_start_offset)
            directory.upkeep(LATE_MS)
            drops.append(log.log_start_offset)

    files_of(place).fault = retain_now
    workers.drain()
    assert drops == [0, 0]
    assert log.failure is None
    append(log, batch(b"takes writes"))
    for _ in range(3):
        workers.drain()
        directory.upkeep(LATE_MS)
    workers.drain()
    assert log.log_start_offset == log.segments.segments[0].base_offset == 13
    kept = {segment.base_offset for segment in log.segments.segments}
    names = files_of(place).names(log.segments.folder)
    assert {int(name.split(".")[0]) for name in names if name[:20].isdigit()} <= kept


@in_loop
async def test_deleted_records_go_with_their_segments_once_these_are_sealed() -> None:
    workers = HeldWorkers()
    place = Place(workers=workers)
    directory, log = place.open_log(LogConfig(segment_bytes=500))
    for _ in range(12):
        append(log, batch(bytes(100)))
    log.delete_records_before(8)
    workers.held.pop()()
    assert (log.log_start_offset, log.segments.segments[0].base_offset) == (8, 0)
    workers.drain()
    directory.upkeep(START_MS)
    workers.drain()
    directory.upkeep(START_MS)
    assert log.log_start_offset == 8
    assert log.segments.segments[0].base_offset in range(5, 9)
