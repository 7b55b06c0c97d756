"""The reference of committed batches detects replicas that differ from it."""

from collections.abc import Iterator

import pytest

from runnel.sim.cluster.committed import Batch, CommittedLog, ReadBatches
from runnel.sim.history import Anomaly


def replica(*batches: tuple[int, int, int]) -> ReadBatches:
    """A log of batches (base offset, epoch, checksum) of ten records each."""

    def read(first: int, end: int) -> Iterator[tuple[int, Batch]]:
        for base_offset, epoch, crc in batches:
            if first <= base_offset < end:
                yield base_offset, (base_offset + 10, epoch, crc)

    return read


LEADER = replica((0, 1, 7), (10, 1, 8), (20, 2, 9))


def committed_log() -> CommittedLog:
    log = CommittedLog("t-0")
    log.extend(1, 20, LEADER)
    return log


def test_equal_replicas_pass() -> None:
    log = committed_log()
    log.compare(2, 20, replica((0, 1, 7), (10, 1, 8), (20, 3, 99)))
    log.extend(1, 30, LEADER)
    assert log.end_offset == 30


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replica((0, 1, 7), (10, 1, 5)), "t-0@10: 2 has"),
        (replica((0, 1, 7), (10, 2, 8)), "t-0@10: 2 has"),
        (replica((0, 1, 7)), "2 ends at 10"),
        (replica(), "2 ends at"),
        (replica((0, 1, 7), (20, 1, 8)), "2 ends at 10"),
    ],
)
def test_differences_are_found(other: ReadBatches, message: str) -> None:
    with pytest.raises(Anomaly, match=message):
        committed_log().compare(2, 20, other)


def test_a_later_leader_must_have_what_is_committed() -> None:
    with pytest.raises(Anomaly, match="t-0@10: 3 has"):
        committed_log().extend(3, 30, replica((0, 1, 7), (10, 3, 8), (20, 3, 1)))


def test_a_gap_is_found() -> None:
    log = committed_log()
    with pytest.raises(Anomaly, match="no records from 10 to 20"):
        log.compare(2, 30, replica((0, 1, 7), (20, 2, 9)))
    log.is_compacted = True
    log.compare(2, 30, replica((0, 1, 7), (20, 2, 9)))


def test_what_follows_a_truncation_is_compared_again() -> None:
    log = committed_log()
    log.compare(2, 20, LEADER)
    log.truncated(2, 10)
    with pytest.raises(Anomaly, match="t-0@10: 2 has"):
        log.compare(2, 20, replica((0, 1, 7), (10, 3, 8)))


def test_what_is_in_a_snapshot_is_not_compared() -> None:
    log = committed_log()
    log.compare(2, 20, replica((10, 1, 8)), start_offset=10)
    log.compare(3, 20, replica(), start_offset=20)
    with pytest.raises(Anomaly, match="4 ends at"):
        log.compare(4, 20, replica(), start_offset=10)
