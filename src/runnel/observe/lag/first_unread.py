"""The first record at or after an offset that a consumer receives.

Not every offset below the end is that of such a record: markers of transactions have offsets, compaction
removes records, and consumers with read_committed do not receive aborted ones. A group that has read all that
it can read is caught up, although its committed offset is not the end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runnel.batch.committed import read_committed
from runnel.batch.errors import BatchInflatesTooFar
from runnel.batch.header import BatchHeader
from runnel.batch.records import unpack_records, walk_records
from runnel.model.limits import LOOKUP_BATCH_BYTES_MAX


@dataclass(frozen=True, slots=True)
class FirstUnread:
    """What was found from an offset on."""

    offset: int
    """The first record; if there is none, everything below is known to hold none."""
    timestamp_ms: int | None
    """The largest timestamp of its batch; None if there is no record."""
    is_append_time: bool = False
    """Whether the timestamp was set by the broker when it appended the batch."""


def first_unread(
    batches: Iterable[memoryview], offset: int, aborted: Sequence[tuple[int, int]] = ()
) -> FirstUnread:
    """The first record at or after `offset` in complete batches, or where to continue.

    `aborted` are the (producer id, first offset) of aborted transactions, whose records are not received.
    """
    for batch, header, is_received in read_committed(batches, aborted):
        found = _first_in(batch, header, offset) if is_received else None
        if found is not None:
            return FirstUnread(found, header.max_timestamp, header.uses_log_append_time)
        offset = max(offset, header.next_offset)
    return FirstUnread(offset, None)


def _first_in(batch: memoryview, header: BatchHeader, offset: int) -> int | None:
    if header.next_offset <= offset or header.record_count <= 0:
        return None
    if header.record_count == header.last_offset_delta + 1:
        # Compaction has removed none: the records need not be decompressed.
        return max(header.base_offset, offset)
    try:
        raw = unpack_records(batch, header, LOOKUP_BATCH_BYTES_MAX)
    except BatchInflatesTooFar:
        return max(header.base_offset, offset)
    for _, _, _, offset_delta, _, _, _, _ in walk_records(raw, header.record_count):
        if header.base_offset + offset_delta >= offset:
            return header.base_offset + offset_delta
    return None
