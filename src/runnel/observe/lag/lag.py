"""The lag of a group in one partition.

In records it is the high watermark less the committed offset, as Kafka's tools and exporters compute it. In
time it is the age of the first unread record, counted from its append:

    nothing is unread, or nothing that the group can read      0
    the append was observed                                    now − time of the append (timeline)
    before: the timestamp of its batch, as the broker set it   now − timestamp
            or as the producer did                             now − timestamp, "by record time"
            but no later than the first observation
    otherwise                                                  unknown, with a reason

A coordinator does not know whether a group uses read_committed. A group that has committed an offset above
the last stable offset does not. Any other that has read everything up to the last stable offset is taken to
wait for the open transaction: it is caught up in time, while its lag in records includes what it waits for.
"""

from dataclasses import dataclass
from typing import NamedTuple

from runnel.observe.lag.partitions import (
    AFTER_END,
    BEFORE_OBSERVATION,
    BY_RECORD_TIME,
    NO_RECORD,
    NOT_OBSERVED,
    OPEN_TRANSACTION,
    GroupPosition,
)


@dataclass(frozen=True, slots=True)
class Now:
    """The time of an evaluation."""

    monotonic_ms: int
    wall_ms: int


class PartitionLag(NamedTuple):
    """The lag of a group in one partition."""

    topic: str
    partition: int
    committed: int
    end: int | None
    lag: int | None
    lag_ms: int | None
    reason: str | None
    """Why something is not known, or how it is."""


def partition_lag(position: GroupPosition, now: Now) -> PartitionLag:
    """Evaluate the position of a group."""
    partition, committed = position.partition, position.offset
    ends = partition.ends
    if ends is None:
        problem = partition.problem or NOT_OBSERVED
        return PartitionLag(partition.topic, partition.index, committed, None, None, None, problem)
    # The commit may be newer than the observation.
    end = ends.end if partition.observed >= position.seen else max(ends.end, committed)
    lag_ms, reason = _lag_ms(position, end, now)
    lag = max(end - committed, 0)
    return PartitionLag(partition.topic, partition.index, committed, end, lag, lag_ms, reason)


def _lag_ms(position: GroupPosition, end: int, now: Now) -> tuple[int | None, str | None]:
    if position.offset >= end:
        return 0, AFTER_END if position.offset > end else None
    first, timeline = position.first, position.partition.timeline
    if first >= end:
        return 0, NO_RECORD
    if first >= position.readable_end:
        return 0, OPEN_TRANSACTION
    appended_ms = timeline.appended_ms(first)
    if appended_ms is not None:
        return max(now.monotonic_ms - appended_ms, 0), None
    found, began_ms = position.found, timeline.began_ms
    if found is None or found.timestamp_ms is None or found.timestamp_ms < 0 or began_ms is None:
        return None, BEFORE_OBSERVATION
    age_ms = max(now.wall_ms - found.timestamp_ms, now.monotonic_ms - began_ms, 0)
    return age_ms, None if found.is_append_time else BY_RECORD_TIME
