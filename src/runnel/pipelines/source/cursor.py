"""The position in a range of one partition, and the effect of each fetch response on it. No I/O.

    answered(view) -> Chunk · Wait · Finished · OutOfRange · LargerFetch

A range ends when the offset after the last batch reaches its end, whether that batch contains visible
records, a transaction marker or aborted records. If compaction has removed the rest of a range, responses
are empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runnel.batch.control import read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import BatchHeader, crc_is_valid, walk_headers
from runnel.client.errors import check
from runnel.client.offsets import READ_COMMITTED
from runnel.messages.fetch import AbortedTransaction, PartitionData
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.pipelines.source.decode import Packed, packed

EMPTY_RESPONSES_AT_END = 2
"""A single response may be empty though there are records, as from a broker that has just started."""


@dataclass(slots=True)
class Chunk:
    """Batches to decode, of which offsets in [from, to) were requested."""

    batches: list[Packed]
    from_offset: int
    to_offset: int


@dataclass(slots=True)
class Wait:
    """No records yet; fetch again."""

    reason: str


@dataclass(slots=True)
class Finished:
    """The rest of the range is empty."""


@dataclass(slots=True)
class OutOfRange:
    """The position is before the log start offset or after the log end offset."""


@dataclass(slots=True)
class LargerFetch:
    """The first batch is larger than the fetch size."""


FetchOutcome = Chunk | Wait | Finished | OutOfRange | LargerFetch


@dataclass(slots=True)
class Cursor:
    """The rest of a range: [position, end)."""

    partition: TopicPartition
    position: int
    end: int
    isolation: int
    empty_answers: int = 0

    @property
    def is_done(self) -> bool:
        return self.position >= self.end

    def answered(self, view: PartitionData, throttled: bool) -> FetchOutcome:
        """Process the response to a fetch at `position`."""
        if view.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code:
            return OutOfRange()
        check(view.error_code, f"reading {self.partition} from offset {self.position}")
        records = view.records if isinstance(view.records, memoryview) else memoryview(view.records or b"")
        if not len(records):
            return self._answered_empty(view, throttled)
        batches, next_offset = visible_batches(
            records, view.aborted_transactions or (), self.position, self.end, self.isolation
        )
        if next_offset <= self.position:
            return LargerFetch()
        chunk = Chunk(batches, self.position, self.end)
        self.position = next_offset
        self.empty_answers = 0
        return chunk

    def resumed(self, position: int) -> None:
        """Skip to `position`."""
        self.position = max(self.position, position)
        self.empty_answers = 0

    def _answered_empty(self, view: PartitionData, throttled: bool) -> FetchOutcome:
        readable = view.last_stable_offset if self.isolation == READ_COMMITTED else view.high_watermark
        if readable < self.end:
            # A new leader may not know the high watermark yet.
            return Wait(f"records are readable up to offset {readable} only, not {self.end}")
        if throttled:
            return Wait("the broker throttles this client")
        self.empty_answers += 1
        if self.empty_answers < EMPTY_RESPONSES_AT_END:
            return Wait("the response is empty")
        self.position = self.end
        return Finished()


def visible_batches(
    records: memoryview,
    aborted: Sequence[AbortedTransaction],
    from_offset: int,
    to_offset: int,
    isolation: int,
) -> tuple[list[Packed], int]:
    """The batches with visible records, whose checksums are verified, and the next offset."""
    ahead = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborted_producers: set[int] = set()
    visible: list[Packed] = []
    next_offset = from_offset
    for position, header in walk_headers(records):
        if header.base_offset >= to_offset:
            # What follows was not requested, whether it is valid or not.
            return visible, max(next_offset, to_offset)
        if not crc_is_valid(records, position, header):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match")
        next_offset = max(next_offset, header.next_offset)
        while ahead and ahead[-1].first_offset <= header.last_offset:
            aborted_producers.add(ahead.pop().producer_id)
        batch = records[position : position + header.size_bytes]
        if header.is_control:
            if header.producer_id in aborted_producers and read_end_marker(batch) is not None:
                aborted_producers.discard(header.producer_id)
            continue
        if _is_wanted(header, from_offset, to_offset) and not (
            isolation == READ_COMMITTED
            and header.is_transactional
            and header.producer_id in aborted_producers
        ):
            visible.append(packed(batch, header))
    return visible, next_offset


def _is_wanted(header: BatchHeader, from_offset: int, to_offset: int) -> bool:
    return header.record_count > 0 and header.next_offset > from_offset and header.base_offset < to_offset
